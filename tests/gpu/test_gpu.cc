// qgpu-test-gpu [--results FOLDER] [--report FOLDER] [--sign KEY] [--quick] [--suspends rm|gate]
// [CHECK...]: what qgpu promises, on a real NVIDIA card. One JSON line for each finding, and with
// --results a page of all, written whole after each check: a run that is cut off leaves what it
// found. The page is named for the model, the day and what was asked for, so that a part of the
// checks replaces no page of all. With --report the same at the end as a report of `qgpuctl prove`,
// signed with --sign. With --suspends a manager that finds anything else fails the check. Ends with
// 0 when every promise was met, 1 when not, 2 where it was asked for nonsense, 77 where there is no
// card.

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "services/base/wall_time.h"
#include "services/demo/tenants/machine_use.h"
#include "services/demo/tenants/node_client.h"
#include "services/prove/page.h"
#include "services/prove/prove.h"
#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/isolation_report.h"

namespace qgpu::gpu {
namespace {

constexpr int kNonsense = 2, kNoCard = 77;

struct Check {
  const char* name;
  int seconds;  // on a card, some
  void (*run)(CheckContext&);
};
constexpr Check kChecks[] = {{"rungs", 30, checkSuspendMethods},
                             {"layout", 5, checkLayout},
                             {"quota", 25, checkQuota},
                             {"shared", 10, checkShared},
                             {"torch", 60, checkTorch},
                             {"inference", 110, checkInference},
                             {"hook", 35, checkHook},
                             {"alone", 26, checkAlone},
                             {"shares", 37, checkShares},
                             {"starts", 20, checkStarts},
                             {"latency", 70, checkLatency},
                             {"suspends", 25, checkSuspends},
                             {"timeslices", 35, checkTimeslices},
                             {"late", 20, checkLate},
                             {"kills", 25, checkKills},
                             {"wait", 85, checkWait},
                             {"interference", 50, checkInterference},
                             {"paging", 60, checkPaging}};

struct Asked {
  std::string results;
  std::string report, key;
  std::string suspends;
  bool quick = false;
  Arguments checks;  // in the order of the list
};

void usage(std::FILE* to) {
  std::fprintf(to,
               "usage: qgpu-test-gpu [--results FOLDER] [--report FOLDER] [--sign KEY] [--quick] "
               "[--suspends rm|gate] [CHECK...]\n"
               "checks, all without a name, and some seconds that each takes on a card:\n");
  int all = 0;
  for (const Check& check : kChecks) {
    std::fprintf(to, "  %-13s %3d\n", check.name, check.seconds);
    all += check.seconds;
  }
  std::fprintf(to, "  %-13s %3d\n", "together", all);
}

// False: nonsense, and said so.
bool parse(const Arguments& words, Asked& out) {
  const auto wrong = [](const std::string& what) {
    std::fprintf(stderr, "qgpu-test-gpu: %s\n", what.c_str());
    usage(stderr);
    return false;
  };
  const std::map<std::string, std::string*> options = {{"--results", &out.results},
                                                       {"--report", &out.report},
                                                       {"--sign", &out.key},
                                                       {"--suspends", &out.suspends}};
  Arguments names;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--quick") {
      out.quick = true;
    } else if (const auto option = options.find(word); option != options.end()) {
      if (i + 1 == words.size()) return wrong("nothing stands after " + word);
      *option->second = words[++i];
    } else {
      names.push_back(word);
    }
  }
  if (!out.suspends.empty() && out.suspends != "rm" && out.suspends != "gate") {
    return wrong("--suspends is rm or gate, not '" + out.suspends + "'");
  }
  if (!out.key.empty() && out.report.empty()) return wrong("--sign is of a --report");
  const bool all = names.empty();
  for (const Check& check : kChecks) {
    if (std::erase(names, check.name) != 0 || all) out.checks.emplace_back(check.name);
  }
  return names.empty() || wrong("'" + names.front() + "' is no check");
}

std::string today() {
  const time_t now = ::time(nullptr);
  char text[32];
  tm parts{};
  std::strftime(text, sizeof text, "%Y-%m-%d", ::gmtime_r(&now, &parts));
  return text;
}

// What was asked for, as words that ask for the same: " --quick hook"; none where it was all.
std::string words(const Asked& asked) {
  std::string text = asked.quick ? " --quick" : "";
  if (!asked.suspends.empty()) text += " --suspends " + asked.suspends;
  if (asked.checks.size() == std::size(kChecks)) return text;
  for (const std::string& check : asked.checks) text += " " + check;
  return text;
}

// "NVIDIA H200" that was asked for hook alone is "h200-2026-11-22-hook.md".
std::string fileName(const std::string& model, const std::string& day, const std::string& asked) {
  constexpr std::string_view kMaker = "NVIDIA ";
  const bool its = model.starts_with(kMaker);
  return inOneWord((its ? model.substr(kMaker.size()) : model) + " " + day + asked) + ".md";
}

// Where the page goes, and what it says above its findings.
struct Page {
  Page(const TheCard& card, const Asked& asked) : title("qgpu on a " + card.model) {
    const std::string day = today(), all = words(asked);
    utsname machine{};
    ::uname(&machine);
    about = {card.model + ", " + std::to_string(card.bytes >> 20) + " MiB, driver " + card.driver,
             std::string(machine.sysname) + " " + machine.release + ", " + day,
             "`./dev test-gpu" + all + "`, qgpu " QGPU_VERSION};
    path = asked.results + "/" + fileName(card.model, day, all);
  }

  std::string path, title;
  std::vector<std::string> about;
};

// False: it can't be made, or nobody may write there; and said so.
bool makeFolder(const std::string& path) {
  std::error_code wrong;
  std::filesystem::create_directories(path, wrong);
  if (!wrong && ::access(path.c_str(), W_OK) == 0) return true;
  std::fprintf(stderr, "qgpu-test-gpu: nothing can be written in %s (%s): name another folder\n",
               path.c_str(), wrong ? wrong.message().c_str() : std::strerror(errno));
  return false;
}

// Whole or as it was. False: it can't be written, and said so.
bool write(const Page& page, const Record& record, const Arguments& missing) {
  std::vector<std::string> about = page.about;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (i == 0) about.emplace_back("Not run yet:");
    about.back() += " " + missing[i];
  }
  const std::string part = page.path + ".part";
  std::ofstream file(part);
  file << record.markdown(page.title, about);
  file.close();
  if (file && std::rename(part.c_str(), page.path.c_str()) == 0) return true;
  std::fprintf(stderr, "qgpu-test-gpu: %s can't be written\n", page.path.c_str());
  return false;
}

void calibrate(CheckContext& context) {
  Child child(Scene::work({"calibrate"}), {{"CUDA_VISIBLE_DEVICES", context.card.uuid}});
  const Json rates = resultOf(child, "the calibration");
  context.spinPerMs = rates["spin_per_ms"].get<std::uint64_t>();
  context.mixPerMs = rates["mix_per_ms"].get<std::uint64_t>();
}

void run(const Check& check, CheckContext& context) {
  const std::int64_t from = testing::monotonicNs();
  context.record.begin(check.name);
  try {
    if (context.spinPerMs == 0) calibrate(context);
    check.run(context);
  } catch (const std::exception& wrong) {
    context.record.add({check.name, "", Json::object(), Verdict::kFailed, wrong.what()});
  }
  context.record.took(check.name, static_cast<double>(testing::monotonicNs() - from) / 1e9);
}

// As a manager of this card says, and this machine. Throws where none starts.
prove::Head headOf(const TheCard& card, const Asked& asked) {
  Scene scene(card, {});
  const Json now = scene.card();
  const auto settings = demo::NodeClient(scene.daemon().socket()).settings();
  if (!settings) throw crash::Violation(settings.error().message);
  utsname machine{};
  ::uname(&machine);
  prove::Head head;
  head.card = card.uuid;
  head.model = card.model;
  head.backend = "nvidia";
  head.driver = card.driver;
  head.kernel = machine.release;
  head.version = QGPU_VERSION;
  head.host = machine.nodename;
  head.date = rfc3339(unixMsNow());
  head.suspend = now["suspend"];
  head.isolation = now["isolation"];
  head.realtime = settings->realtime;
  head.clock = "monotonic";
  head.command = "./dev test-gpu --report FOLDER" + words(asked);
  return head;
}

// False: it can't be written or signed, and said so.
bool report(prove::Head head, const Asked& asked, const Record& record) {
  prove::Report made = isolationReport(record);
  made.head = std::move(head);
  prove::ProveOptions options;
  options.folder = asked.report;
  options.key = asked.key;
  const auto written = prove::writeReport(options, made);
  if (!written) {
    std::fprintf(stderr, "qgpu-test-gpu: %s\n", written.error().message.c_str());
    return false;
  }
  std::printf("qgpu-test-gpu: %s, in %s\n", prove::countsOf(made).c_str(), written->c_str());
  return true;
}

// What a run of minutes would miss at its end. False: and said so.
bool mayReport(const Asked& asked) {
  if (!asked.report.empty() && !makeFolder(asked.report)) return false;
  if (asked.key.empty() || ::access(asked.key.c_str(), R_OK) == 0) return true;
  std::fprintf(stderr, "qgpu-test-gpu: the key %s can't be read (%s)\n", asked.key.c_str(),
               std::strerror(errno));
  return false;
}

int runOn(TheCard& card, const Asked& asked) {
  prove::Head head;
  if (!asked.report.empty()) head = headOf(card, asked);  // of a card however it suspends
  card.suspends = asked.suspends;
  const Page page(card, asked);
  Record record;
  CheckContext context{card, record, asked.quick};
  const demo::MachineUse::Counters before = demo::MachineUse::count();
  bool kept = true;
  Arguments left = asked.checks;
  for (const Check& check : kChecks) {
    if (std::erase(left, check.name) == 0) continue;
    run(check, context);
    if (!asked.results.empty()) kept = write(page, record, left);
  }
  if (!asked.results.empty() && kept) {
    std::printf("qgpu-test-gpu: wrote %s\n", page.path.c_str());
  }
  const auto use = demo::MachineUse::between(before, demo::MachineUse::count());
  head.othersPermille = use.othersPermille;
  head.stolenPermille = use.stolenPermille;
  if (!asked.report.empty()) kept = report(std::move(head), asked, record) && kept;
  return kept && record.allMet() ? 0 : 1;
}

int run(const Asked& asked) {
  auto card = TheCard::find();
  if (!card) {
    std::printf(
        "qgpu-test-gpu: no NVIDIA card on this machine (NVML lists none): nothing was "
        "tested\n");
    return kNoCard;
  }
  if (!asked.results.empty() && !makeFolder(asked.results)) return kNonsense;
  if (!mayReport(asked)) return kNonsense;
  try {
    return runOn(*card, asked);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "qgpu-test-gpu: no report: %s\n", wrong.what());
    return 1;
  }
}

}  // namespace
}  // namespace qgpu::gpu

int main(int argc, char** argv) {
  const qgpu::gpu::Arguments words(argv + 1, argv + argc);
  for (const std::string& word : words) {
    if (word == "help" || word == "-h" || word == "--help") return qgpu::gpu::usage(stdout), 0;
  }
  qgpu::gpu::Asked asked;
  return qgpu::gpu::parse(words, asked) ? qgpu::gpu::run(asked) : qgpu::gpu::kNonsense;
}
