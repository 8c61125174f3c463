// qgpu-test-gpu [--results FOLDER] [--quick] [--suspends rm|gate] [CHECK...]: what qgpu promises,
// on a real NVIDIA card. One JSON line for each finding, and with --results a page MODEL-DATE.md of
// all. With --suspends a manager that finds anything else fails the check. Ends with 0 when every
// promise was met, 1 when not, 77 where there is no card.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <sys/utsname.h>
#include <time.h>

#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"

namespace qgpu::gpu {
namespace {

constexpr int kNoCard = 77;

struct Check {
  const char* name;
  int seconds;  // on a card, some
  void (*run)(Stage&);
};
constexpr Check kChecks[] = {
    {"rungs", 30, checkRungs},       {"quota", 25, checkQuota},
    {"shared", 10, checkShared},     {"torch", 40, checkTorch},
    {"hook", 35, checkHook},         {"alone", 34, checkAlone},
    {"shares", 36, checkShares},     {"latency", 60, checkLatency},
    {"suspends", 40, checkSuspends}, {"timeslices", 35, checkTimeslices},
    {"late", 20, checkLate},         {"kills", 25, checkKills},
    {"wait", 85, checkWait},         {"interference", 50, checkInterference}};

struct Asked {
  std::string results;
  std::string suspends;
  bool quick = false;
  Words checks;
};

bool known(const std::string& name) {
  return std::any_of(std::begin(kChecks), std::end(kChecks),
                     [&](const Check& check) { return name == check.name; });
}

void usage(std::FILE* to) {
  std::fprintf(to,
               "usage: qgpu-test-gpu [--results FOLDER] [--quick] [--suspends rm|gate] [CHECK...]\n"
               "checks, all without a name, and some seconds that each takes on a card:\n");
  int all = 0;
  for (const Check& check : kChecks) {
    std::fprintf(to, "  %-13s %3d\n", check.name, check.seconds);
    all += check.seconds;
  }
  std::fprintf(to, "  %-13s %3d\n", "together", all);
}

// False: nonsense, and said so.
bool parse(int argc, char** argv, Asked& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      out.quick = true;
    } else if (word == "--results" && i + 1 < argc) {
      out.results = argv[++i];
    } else if (word == "--suspends" && i + 1 < argc) {
      out.suspends = argv[++i];
    } else if (known(word)) {
      out.checks.push_back(word);
    } else {
      std::fprintf(stderr, "qgpu-test-gpu: '%s' is no check\n", word.c_str());
      usage(stderr);
      return false;
    }
  }
  return true;
}

std::string today() {
  const time_t now = ::time(nullptr);
  char text[32];
  tm parts{};
  std::strftime(text, sizeof text, "%Y-%m-%d", ::gmtime_r(&now, &parts));
  return text;
}

// "NVIDIA H200" is "h200-2026-11-22.md".
std::string fileName(const std::string& model) {
  constexpr std::string_view kMaker = "NVIDIA ";
  std::string name;
  for (const char c : model.starts_with(kMaker) ? model.substr(kMaker.size()) : model) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return name + "-" + today() + ".md";
}

std::vector<std::string> about(const TheCard& card) {
  utsname machine{};
  ::uname(&machine);
  return {card.model + ", " + std::to_string(card.bytes >> 20) + " MiB, driver " + card.driver,
          std::string(machine.sysname) + " " + machine.release + ", " + today(),
          "`./dev test-gpu`, qgpu " QGPU_VERSION};
}

void calibrate(Stage& stage) {
  Child child(Scene::work({"calibrate"}), {{"CUDA_VISIBLE_DEVICES", stage.card.uuid}});
  const Json rates = resultOf(child, "the calibration");
  stage.spinPerMs = rates["spin_per_ms"].get<std::uint64_t>();
  stage.mixPerMs = rates["mix_per_ms"].get<std::uint64_t>();
}

void runAll(const Asked& asked, Stage& stage) {
  for (const Check& check : kChecks) {
    const bool chosen = asked.checks.empty() ||
                        std::count(asked.checks.begin(), asked.checks.end(), check.name) != 0;
    if (!chosen) continue;
    const std::int64_t from = e2e::monotonicNs();
    try {
      if (stage.spinPerMs == 0) calibrate(stage);
      check.run(stage);
    } catch (const crash::Violation& wrong) {
      stage.record.add({check.name, "", Json::object(), Verdict::kFailed, wrong.what()});
    }
    stage.record.took(check.name, static_cast<double>(e2e::monotonicNs() - from) / 1e9);
  }
}

int run(const Asked& asked) {
  auto card = TheCard::find();
  if (!card) {
    std::printf(
        "qgpu-test-gpu: no NVIDIA card on this machine (NVML lists none): nothing was "
        "tested\n");
    return kNoCard;
  }
  card->suspends = asked.suspends;
  Record record;
  Stage stage{*card, record, asked.quick};
  runAll(asked, stage);
  if (!asked.results.empty() && !card->standIn()) {
    const std::string path = asked.results + "/" + fileName(card->model);
    std::ofstream page(path);
    page << record.markdown("qgpu on a " + card->model, about(*card));
    if (!page.flush()) {
      std::fprintf(stderr, "qgpu-test-gpu: %s can't be written\n", path.c_str());
      return 1;
    }
    std::printf("qgpu-test-gpu: wrote %s\n", path.c_str());
  }
  return record.allMet() ? 0 : 1;
}

}  // namespace
}  // namespace qgpu::gpu

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "help" || word == "-h" || word == "--help") return qgpu::gpu::usage(stdout), 0;
  }
  qgpu::gpu::Asked asked;
  return qgpu::gpu::parse(argc, argv, asked) ? qgpu::gpu::run(asked) : 2;
}
