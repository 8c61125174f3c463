// Memory that leaves the card: online grows into what offline lends, and gives it back.

#include <algorithm>
#include <cstdlib>

#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/held.h"

namespace qgpu::gpu {
namespace {

constexpr int kMostLentGiB = 40;   // what the host has room for, and what a minute has time for
constexpr double kWaitMs = 2'000;  // what a need is answered within: docs/internals/paging.md

// Of a card, in GiB: both can't be on it as a whole, and half of what is lent must leave.
struct Sizes {
  explicit Sizes(const TheCard& card)
      : whole(static_cast<int>(card.bytes >> 30)),
        lender(std::min(whole * 3 / 4, kMostLentGiB)),
        firm(whole < 16 ? 1 : 2),
        online(whole - lender / 2) {}
  int whole, lender, firm, online;
};

std::uint64_t outBytes(Scene& scene) {
  return scene.task("batch").value("pageable_out_bytes", std::uint64_t{0});
}

// One visit of online: it takes all that it may have, piece by piece, and goes.
Json visit(CheckContext& context, Scene& scene, Child& lender, const Sizes& sizes) {
  const std::string end = scene.signalFile();
  const int contextMiB = context.card.standIn() ? 512 : 1'024;
  auto online =
      scene.run({"serve", "online", 0, sizes.online},
                Scene::work({"memory", "--kind", "plain", "--piece", "64", "--most",
                             std::to_string(sizes.online * 1'024 - contextMiB), "--until", end}));
  scene.await("online to have its memory", *online, [&] { return said(*online, "held") == 1; });
  const std::uint64_t out = outBytes(scene), before = made(lender);
  Scene::give(end);
  const std::int64_t from = testing::monotonicNs();
  Json got = resultOf(*online, "the online program");
  scene.await("offline's memory", lender, [&] { return outBytes(scene) == 0; });
  const double backMs = msSince(from);
  scene.await("offline to go on", lender, [&] { return made(lender) > before + 2; });
  return {{"got_bytes", got["got_bytes"]},   {"error", got["error"]}, {"took_ms", got["took_ms"]},
          {"longest_ms", got["longest_ms"]}, {"out_bytes", out},      {"back_ms", backMs},
          {"goes_on_ms", msSince(from)}};
}

}  // namespace

void checkPaging(CheckContext& context) {
  const Sizes sizes(context.card);
  Scene scene(context.card, {"--overcommit=1"});
  // There each process has bytes of its own, but for those that name a file.
  if (context.card.standIn()) ::setenv("QGPU_STAND_IN_CARD", scene.signalFile().c_str(), 1);
  const std::string end = scene.signalFile();
  Tenant batch{"batch", "offline", 50, sizes.lender};
  batch.pageable = sizes.lender - sizes.firm;
  // On the stand-in a processor does it, which others may want.
  const std::string piece = context.card.standIn() ? "64" : "1024";
  auto lender =
      scene.run(batch, Scene::work({"lend", "--mib", std::to_string(batch.pageable * 1'024),
                                    "--piece", piece, "--until", end}));
  scene.await("offline", *lender, [&] { return made(*lender) > 0; });
  Json visits = Json::array();
  for (int i = 0; i < context.count(3, 1); ++i) {
    visits.push_back(visit(context, scene, *lender, sizes));
  }
  Scene::give(end);
  const Json lent = resultOf(*lender, "the offline program");
  Finding finding{"memory that leaves the card",
                  "online has all of its memory, each piece within 2 s; offline's is back, each "
                  "word right"};
  finding.figures = {{"suspend", scene.card()["suspend"]},
                     {"lent_bytes", lent["bytes"]},
                     {"lent_took_ms", lent["took_ms"]},
                     {"kernels", lent["kernels"]},
                     {"wrong", lent["wrong"]},
                     {"visits", visits}};
  const bool kept = lent["wrong"] == 0 && std::ranges::all_of(visits, [](const Json& each) {
                      return each["error"] == 0 && each["out_bytes"] > 0;
                    });
  const bool soon =
      std::ranges::all_of(visits, [](const Json& each) { return each["longest_ms"] <= kWaitMs; });
  finding.verdict = kept && (context.quick || soon) ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

}  // namespace qgpu::gpu
