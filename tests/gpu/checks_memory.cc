// Memory: the quota in every way that CUDA has of taking some, and PyTorch.

#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/pairs.h"

namespace qgpu::gpu {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr int kOutOfMemory = 2;
constexpr int kQuotaGiB = 4;
constexpr std::uint64_t kQuota = kQuotaGiB * kGiB;
// What a context, its modules and the driver's rounding may take of a quota.
constexpr std::uint64_t kOverheadMax = kGiB;

void checkKind(Stage& stage, Scene& scene, const std::string& kind) {
  const std::uint64_t before = stage.card.used();
  const std::string end = scene.signalFile();
  auto taker = scene.run({"taker", "ordinary", 10, kQuotaGiB},
                         Scene::work({"memory", "--kind", kind, "--piece", "64", "--most",
                                      std::to_string(2 * kQuotaGiB * 1024), "--until", end}));
  scene.await(
      "a program that takes " + kind + " memory",
      [&] { return said(*taker, "held") || !taker->alive(); }, std::chrono::seconds(60));
  const std::uint64_t during = stage.card.used();
  const std::uint64_t taken = during > before ? during - before : 0;
  Scene::give(end);
  const Json got = resultOf(*taker, "taker of " + kind);
  const auto bytes = got["got_bytes"].get<std::uint64_t>();
  Finding finding{"quota, " + kind,
                  "CUDA's out of memory at the quota, 0 bytes over it, and room "
                  "again after frees"};
  finding.figures = {{"quota_bytes", kQuota},
                     {"got_bytes", bytes},
                     {"error", got["error"]},
                     {"total_seen_bytes", got["total_bytes"]},
                     {"again_error", got["again_error"]}};
  // Memory of the card itself, of everybody: what nobody can have hidden. Managed memory may lie
  // in the host.
  const std::uint64_t over = taken > kQuota ? taken - kQuota : 0;
  if (!stage.card.standIn()) {
    finding.figures["card_bytes"] = taken;
    finding.figures["over_bytes"] = over;
  }
  const bool sizes = bytes <= kQuota && bytes + kOverheadMax >= kQuota && over == 0;
  const bool words =
      got["error"] == kOutOfMemory && got["again_error"] == 0 && got["total_bytes"] == kQuota;
  finding.verdict = sizes && words ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(finding));
  scene.await("the end of the task", [&] { return scene.task("taker").is_null(); });
}

// Runs the PyTorch program; null with `why` set where there is no PyTorch that sees the card.
Json torch(Child& child, std::string& why) {
  constexpr int kNone = 77;
  child.wait(std::chrono::seconds(180));
  if (child.wait(milliseconds(0)) == kNone) {
    why = child.output();
    return nullptr;
  }
  return resultOf(child, "PyTorch");
}

}  // namespace

void checkQuota(Stage& stage) {
  Scene scene(stage.card, {});
  for (const char* kind : {"plain", "async", "pool", "physical", "managed", "array", "graph"}) {
    try {
      if (stage.card.standIn() && kind == std::string("graph")) continue;  // no such thing there
      checkKind(stage, scene, kind);
    } catch (const crash::Violation& wrong) {
      stage.record.add(
          {std::string("quota, ") + kind, "", Json::object(), Verdict::kFailed, wrong.what()});
    }
  }
}

// Shared memory counts for who still holds it once its owner is killed, and for nobody afterwards.
void checkShared(Stage& stage) {
  Scene scene(stage.card, {});
  const std::uint64_t before = stage.card.used();
  const std::string end = scene.signalFile();
  auto sharer = scene.run({"sharer", "ordinary", 10, kQuotaGiB},
                          Scene::work({"shared", "--shared", "256", "--piece", "32", "--most",
                                       std::to_string(2 * kQuotaGiB * 1024), "--until", end}));
  scene.await(
      "a program that holds a killed one's memory",
      [&] { return said(*sharer, "held") || !sharer->alive(); }, std::chrono::seconds(60));
  const std::uint64_t during = stage.card.used();
  const std::uint64_t taken = during > before ? during - before : 0;
  Scene::give(end);
  const Json got = resultOf(*sharer, "sharer");
  const std::uint64_t all =
      got["got_bytes"].get<std::uint64_t>() + got["shared_bytes"].get<std::uint64_t>();
  Finding finding{"quota, memory of a killed process",
                  "counts for who holds it on by IPC, 0 bytes over the quota, and comes back"};
  finding.figures = {{"quota_bytes", kQuota},
                     {"got_bytes", got["got_bytes"]},
                     {"shared_bytes", got["shared_bytes"]},
                     {"error", got["error"]},
                     {"again_error", got["again_error"]}};
  const std::uint64_t over = taken > kQuota ? taken - kQuota : 0;
  if (!stage.card.standIn()) {
    finding.figures["card_bytes"] = taken;
    finding.figures["over_bytes"] = over;
  }
  const bool sizes = all <= kQuota && all + kOverheadMax >= kQuota && over == 0;
  const bool words = got["error"] == kOutOfMemory && got["again_error"] == 0;
  finding.verdict = sizes && words ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(finding));
}

void checkTorch(Stage& stage) {
  constexpr double kLoopMax = 1.01;
  constexpr int kTorchGiB = 8;
  const Words script = {"python3", e2e::binary("torch_work.py")};
  Scene scene(stage.card, {});
  std::string why;
  auto alone = scene.bare(script);
  const Json bare = torch(*alone, why);
  if (bare.is_null()) {
    stage.record.add({"PyTorch unmodified", "", Json::object(), Verdict::kSkipped, why});
    return;
  }
  auto tenant = scene.run({"torch", "ordinary", 10, kTorchGiB}, script);
  const Json under = resultOf(*tenant, "PyTorch");
  Finding same{"PyTorch unmodified", "same results; its own OutOfMemoryError at the quota"};
  same.figures = {{"sum", under["sum"]},         {"sum_bare", bare["sum"]},
                  {"total", under["total"]},     {"out_of_memory", under["out_of_memory"]},
                  {"most_bytes", under["most"]}, {"version", under["version"]}};
  const bool right = under["sum"] == bare["sum"] && under["out_of_memory"] == true &&
                     under["total"] == kTorchGiB * kGiB;
  same.verdict = right ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(same));
  const Words loop = {script[0], script[1], "loop"};
  const Pairs all = Pairs::run(stage.count(4, 2), [&](bool is) {
    auto looping = is ? scene.run({"torch", "ordinary", 10, kTorchGiB}, loop) : scene.bare(loop);
    return resultOf(*looping, "a loop in PyTorch")["loop_us"].get<double>();
  });
  std::vector<double> ratios;
  for (std::size_t i = 0; i < all.bare.size(); ++i) ratios.push_back(all.under[i] / all.bare[i]);
  Finding cost{"PyTorch, loop of small operations", "at most 1 % slower"};
  cost.figures = {{"bare_us", all.bare}, {"under_us", all.under}};
  judgePairs(cost, "ratio", std::move(ratios), kLoopMax);
  if (stage.quick) cost.verdict = Verdict::kReported;
  stage.record.add(std::move(cost));
}

}  // namespace qgpu::gpu
