// Memory: the quota in every way that CUDA has of taking some, and PyTorch.

#include <algorithm>

#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/pairs.h"
#include "tests/gpu/torch/torch_program.h"

namespace qgpu::gpu {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr int kOutOfMemory = 2;
constexpr int kQuotaGiB = 4;
constexpr std::uint64_t kQuota = kQuotaGiB * kGiB;
constexpr int kMostMiB = 2 * kQuotaGiB * 1024;  // where nothing stops a program
// What a context, its modules and the driver's rounding may take of a quota.
constexpr std::uint64_t kOverheadMax = kGiB;

// A program that takes memory, while it has it.
struct Taken {
  Json got;                // what it said of it
  std::uint64_t card = 0;  // how much more of the card is gone than before, whoever has it
};

Taken take(CheckContext& context, Scene& scene, const std::string& what, Arguments work) {
  const std::uint64_t before = context.card.used();
  const std::string end = scene.signalFile();
  work.insert(work.end(), {"--until", end});
  auto taker = scene.run({"taker", "ordinary", 10, kQuotaGiB}, Scene::work(std::move(work)));
  scene.await("a program that takes " + what, *taker, [&] { return said(*taker, "held") == 1; });
  Taken taken;
  const std::uint64_t during = context.card.used();
  taken.card = during - std::min(before, during);
  Scene::give(end);
  taken.got = resultOf(*taker, "a program that takes " + what);
  scene.await("the end of the task", [&] { return scene.task("taker").is_null(); });
  return taken;
}

Arguments taking(const std::string& kind, int mostMiB) {
  return {"memory", "--kind", kind, "--piece", "64", "--most", std::to_string(mostMiB)};
}

// What counts for the task of such a program, by what it is told itself.
std::uint64_t countedFor(const Json& got) {
  return got["total_bytes"].get<std::uint64_t>() - got["free_at_end_bytes"].get<std::uint64_t>();
}

// What the kernel driver takes for itself beneath a program: no call tells, so it counts for
// nobody.
std::uint64_t driversOwn(CheckContext& context, Scene& scene) {
  const Taken nothing = take(context, scene, "nothing", taking("plain", 0));
  return nothing.card - std::min(nothing.card, countedFor(nothing.got));
}

// Memory of the card itself, of everybody: what nobody can have hidden. The driver's own is not the
// program's: what it takes beneath each, and page tables of eight bytes for each 4 KiB at most.
// Managed memory may lie in the host. True: none is beyond the quota.
bool judgeCard(Json& figures, std::uint64_t card, std::uint64_t own) {
  const std::uint64_t most = kQuota + own + kQuota / 512;
  const std::uint64_t over = card - std::min(card, most);
  figures["card_bytes"] = card;
  figures["driver_own_bytes"] = own;
  figures["over_bytes"] = over;
  return over == 0;
}

void checkKind(CheckContext& context, Scene& scene, const std::string& kind, std::uint64_t own) {
  const auto [got, card] = take(context, scene, kind + " memory", taking(kind, kMostMiB));
  const auto bytes = got["got_bytes"].get<std::uint64_t>();
  Finding finding{"quota, " + kind,
                  "CUDA's out of memory at the quota, 0 bytes over it, and room "
                  "again after frees"};
  finding.figures = {{"isolation", scene.card()["isolation"]},
                     {"quota_bytes", kQuota},
                     {"got_bytes", bytes},
                     {"counted_bytes", countedFor(got)},
                     {"error", got["error"]},
                     {"total_seen_bytes", got["total_bytes"]},
                     {"again_error", got["again_error"]}};
  const bool within = judgeCard(finding.figures, card, own);
  const bool sizes = bytes <= kQuota && bytes + kOverheadMax >= kQuota && within;
  const bool words =
      got["error"] == kOutOfMemory && got["again_error"] == 0 && got["total_bytes"] == kQuota;
  finding.verdict = sizes && words ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

}  // namespace

void checkQuota(CheckContext& context) {
  Scene scene(context.card, {});
  const std::uint64_t own = driversOwn(context, scene);
  for (const char* kind :
       {"plain", "async", "pool", "physical", "mapped", "managed", "array", "graph"}) {
    try {
      if (context.card.standIn() && kind == std::string("graph")) continue;  // no such thing there
      checkKind(context, scene, kind, own);
    } catch (const crash::Violation& wrong) {
      context.record.add(
          {std::string("quota, ") + kind, "", Json::object(), Verdict::kFailed, wrong.what()});
    }
  }
}

// Shared memory counts for who still holds it once its owner is killed, and for nobody afterwards.
void checkShared(CheckContext& context) {
  Scene scene(context.card, {});
  const std::uint64_t own = driversOwn(context, scene);
  const auto [got, card] =
      take(context, scene, "what a killed one allocated",
           {"shared", "--shared", "256", "--piece", "32", "--most", std::to_string(kMostMiB)});
  const std::uint64_t all =
      got["got_bytes"].get<std::uint64_t>() + got["shared_bytes"].get<std::uint64_t>();
  Finding finding{"quota, memory of a killed process",
                  "counts for who holds it on by IPC, 0 bytes over the quota, and comes back"};
  finding.figures = {{"isolation", scene.card()["isolation"]},
                     {"quota_bytes", kQuota},
                     {"got_bytes", got["got_bytes"]},
                     {"shared_bytes", got["shared_bytes"]},
                     {"error", got["error"]},
                     {"again_error", got["again_error"]}};
  const bool within = judgeCard(finding.figures, card, own);
  const bool sizes = all <= kQuota && all + kOverheadMax >= kQuota && within;
  const bool words = got["error"] == kOutOfMemory && got["again_error"] == 0;
  finding.verdict = sizes && words ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

void checkTorch(CheckContext& context) {
  constexpr double kLoopMax = 1.01;
  constexpr int kTorchGiB = 8;
  const Arguments script = {"python3", testing::binary("torch_work.py")};
  Scene scene(context.card, {});
  std::string why;
  auto alone = scene.bare(script);
  const Json bare = torchResult(*alone, why);
  if (bare.is_null()) {
    context.record.add({"PyTorch unmodified", "", Json::object(), Verdict::kSkipped, why});
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
  context.record.add(std::move(same));
  const Arguments loop = {script[0], script[1], "loop"};
  const Pairs all = Pairs::run(context.count(3, 2), [&](bool is) {
    auto looping = is ? scene.run({"torch", "ordinary", 10, kTorchGiB}, loop) : scene.bare(loop);
    return resultOf(*looping, "a loop in PyTorch")["loop_us"].get<double>();
  });
  std::vector<double> ratios;
  for (std::size_t i = 0; i < all.bare.size(); ++i) ratios.push_back(all.under[i] / all.bare[i]);
  Finding cost{"PyTorch, loop of small operations", "at most 1 % slower"};
  cost.figures = {{"bare_us", all.bare}, {"under_us", all.under}};
  judgePairs(cost, "ratio", std::move(ratios), kLoopMax);
  if (context.quick) cost.verdict = Verdict::kReported;
  context.record.add(std::move(cost));
}

}  // namespace qgpu::gpu
