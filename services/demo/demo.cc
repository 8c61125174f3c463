// qgpu-demo: what `./dev demo` runs.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "services/demo/acts.h"
#include "services/demo/demo_options.h"
#include "services/demo/private_node.h"
#include "services/demo/result_sheet.h"
#include "services/demo/tenants/children.h"
#include "services/demo/tenants/machine_use.h"

namespace {

using namespace qgpu;
using namespace qgpu::demo;

constexpr std::int64_t kBusyPermille = 20;  // from here on a machine is not quiet
// Shares are wanted within 3 percent of what one does without qgpu: a machine whose own speed moves
// by more than this between two looks of seconds can't show them.
constexpr std::int64_t kUnsteadyPermille = 60;

enum Exit { kFine = 0, kFailed = 1, kUsage = 2, kStopped = 130 };

using Act = Status (*)(const ActSetting&);

const std::map<std::string, Act>& acts() {
  static const std::map<std::string, Act> kActs = {{"be", bestEffortAct}, {"fs", fixedShareAct},
                                                   {"bs", burstShareAct}, {"hybrid", hybridAct},
                                                   {"clpeak", clpeakAct}, {"alone", aloneAct}};
  return kActs;
}

void complain(const std::string& message) {
  std::fprintf(stderr, "qgpu-demo: %s\n", message.c_str());
}

std::string realtimeText(const std::string& got) {
  if (got == "fifo") return "real-time priority (SCHED_FIFO)";
  if (got == "slice") return "no real-time priority, but short slices (sched_setattr)";
  if (got == "nice") return "no real-time priority, only a better nice value";
  return "no real-time priority (" + got + ")";
}

// Whose card this is and what the manager's card loop was allowed to have.
Status introduce(PrivateNode& node, ResultSheet& sheet) {
  const Result<CardCounters> card = node.client().firstCard();
  if (!card) return card.error();
  const Result<NodeSettings> settings = node.client().settings();
  if (!settings) return settings.error();
  sheet.cardJson = card->raw;
  sheet.realtime = settings->realtime;
  std::printf("card: %s, suspend %s; the card loop has %s\n", card->model.c_str(),
              card->suspend.c_str(), realtimeText(settings->realtime).c_str());
  return ok();
}

void play(const DemoOptions& options, ResultSheet& sheet) {
  const std::string binDir = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  PrivateNode node(binDir);
  Status status = node.open();
  if (status) status = introduce(node, sheet);
  if (!status) return sheet.failures.push_back(status.error().message);
  const ActSetting setting{node, sheet, static_cast<std::int64_t>(options.seconds * 1e9)};
  for (const std::string& name : options.acts) {
    if (interrupted()) return;
    status = acts().at(name)(setting);
    if (status || interrupted()) continue;
    complain("act " + name + ": " + status.error().message);
    sheet.failures.push_back(name + ": " + status.error().message);
    if (!node.managerRuns()) return;
  }
  // The card's counters at the end say more than those at the start.
  if (const Result<CardCounters> card = node.client().firstCard(); card) sheet.cardJson = card->raw;
}

Status writeJson(const ResultSheet& sheet) {
  const char* named = std::getenv("DEMO_JSON");
  const std::string path = named != nullptr && *named != 0 ? named : "demo.json";
  std::ofstream file(path, std::ios::trunc);
  file << sheet.json();
  file.close();
  if (!file) {
    return fail(ErrorCode::Unavailable, path + " can't be written; name another with DEMO_JSON");
  }
  std::printf("\nwritten: %s\n", path.c_str());
  return ok();
}

// Says what missed figures mean: whether the machine was this demo's alone.
void explainMisses(const ResultSheet& sheet, const MachineUse& use) {
  if (sheet.missed() == 0) return;
  std::printf("\n%zu of %zu figures were missed", sheet.missed(), sheet.figures.size());
  if (sheet.roomPercent != 0) {
    std::printf(", %zu of them by more than %lld %%", sheet.beyondRoom(),
                static_cast<long long>(sheet.roomPercent));
  }
  std::printf(
      ". Meanwhile other programs took %s of this machine's CPUs and its host %s, and its speed "
      "without qgpu moved by up to %s",
      percentText(use.othersPermille).c_str(), percentText(use.stolenPermille).c_str(),
      percentText(sheet.apartPermille).c_str());
  const bool busy = use.othersPermille + use.stolenPermille >= kBusyPermille ||
                    sheet.apartPermille >= kUnsteadyPermille;
  std::printf(busy ? ": try again on a quiet machine.\n"
                   : ": nothing that explains it. Please report it with demo.json.\n");
}

int run(const DemoOptions& options) {
  becomeKeeper();
  ResultSheet sheet;
  sheet.roomPercent = options.roomPercent;
  const MachineUse::Counters before = MachineUse::count();
  play(options, sheet);
  if (interrupted()) {
    complain("stopped; everything that it started is ended");
    return kStopped;
  }
  if (!sheet.figures.empty()) std::printf("\n%s", sheet.table().c_str());
  explainMisses(sheet, MachineUse::between(before, MachineUse::count()));
  for (const std::string& failure : sheet.failures) complain("FAILED " + failure);
  const Status written = writeJson(sheet);
  if (!written) complain(written.error().message);
  const bool strictly = !options.strict || sheet.beyondRoom() == 0;
  return sheet.failures.empty() && strictly && written ? kFine : kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parseDemoOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (!options) {
    complain(options.error().message);
    return kUsage;
  }
  if (options->help) {
    std::fputs(demoUsage(), stdout);
    return kFine;
  }
  return run(*options);
}
