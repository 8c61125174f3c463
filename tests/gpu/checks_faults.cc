// What must not happen: tenants or managers that leave something behind when they are killed while
// a task is held.

#include <signal.h>

#include "tests/crash/violation.h"
#include "tests/gpu/held.h"

namespace qgpu::gpu {
namespace {

void checkTenantKilled(CheckContext& context) {
  constexpr double kMostMs = 1'000;
  const std::uint64_t before = context.card.used();
  HeldTenant all(context, {});
  const std::int64_t from = testing::monotonicNs();
  all.offline->signalChild(SIGKILL);
  all.scene.await("the end of the killed task", [&] { return all.scene.task("batch").is_null(); });
  const double goneMs = msSince(from);
  Scene::give(all.rest);
  const Json online = resultOf(*all.online, "the online program");
  // Its memory is free, and the next program has the card.
  auto next = all.scene.run({"next", "offline", 50},
                            Scene::work({"verify", "--rounds", std::to_string(context.mixPerMs)}));
  resultOf(*next, "the next program");
  all.scene.await("the card's memory", [&] {
    constexpr std::uint64_t kRest = 64 << 20;  // the driver's own
    return context.card.used() <= before + kRest;
  });
  Finding finding{"a tenant killed while it is held",
                  "its task is gone within 1 s, its memory free, the next one runs"};
  finding.figures = {{"suspend", all.scene.card()["suspend"]},
                     {"gone_ms", goneMs},
                     {"memory_free_ms", msSince(from)},
                     {"online_end_p99_us", online["end_p99_us"]},
                     {"faults", all.scene.faults()}};
  finding.verdict = context.quick || goneMs <= kMostMs ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

void checkManagerKilled(CheckContext& context) {
  constexpr double kGraceMs = 5'000, kLateMs = 500;
  HeldTenant all(context, {});
  all.scene.daemon().kill();
  const std::int64_t from = testing::monotonicNs();
  const std::uint64_t before = made(*all.offline);
  all.scene.await("offline to go on without a manager", *all.offline,
                  [&] { return made(*all.offline) > before + 4; });
  const double onMs = msSince(from);
  all.scene.daemon().start();
  all.scene.await("a hold by the new manager", [&] { return held(all.scene, "batch"); });
  Scene::give(all.rest);
  resultOf(*all.online, "the online program");
  Scene::give(all.end);
  resultOf(*all.offline, "the offline program");
  Finding finding{"the manager killed while a task is held",
                  "the task goes on after the grace of 5 s; a new manager holds it again"};
  finding.figures = {{"suspend", all.scene.card()["suspend"]},
                     {"goes_on_ms", onMs},
                     {"faults", all.scene.faults()}};
  finding.verdict = context.quick || onMs <= kGraceMs + kLateMs ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

}  // namespace

void checkKills(CheckContext& context) {
  checkTenantKilled(context);
  checkManagerKilled(context);
}

}  // namespace qgpu::gpu
