// Online bursts over an offline batch: how soon online has the card, when offline has it back, and
// how much of the rest offline gets. Start and end of each burst are the online program's own
// stamps; standstill and progress are the offline program's; preempt and release are the card's.

#include <algorithm>
#include <utility>

#include "services/demo/act_common.h"
#include "services/demo/acts.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kBurstsWanted = 200;

TenantSpec offlineBatch() {
  TenantSpec spec = busyTenant("batch", 50, "2..100");
  spec.tenantClass = TenantClass::Offline;
  spec.work.push_back("--progress");
  return spec;
}

TenantSpec onlineBursts() {
  return {"serve",
          TenantClass::Online,
          0,
          {},
          {"--mode=bursts", "--kernel-ms=1..4", "--idle-ms=110..200", "--burst-kernels=1..3"}};
}

// Bursts that lie in the window wholly; one that began before it still counts as busy time.
std::vector<Burst> within(const std::vector<Burst>& bursts, Interval window) {
  std::vector<Burst> inside;
  for (const Burst& burst : bursts) {
    if (burst.submitNs >= window.begin && burst.endNs <= window.end) inside.push_back(burst);
  }
  return inside;
}

Percentiles scaled(std::vector<std::int64_t> values, std::int64_t unitNs) {
  for (std::int64_t& value : values) value = (value + unitNs / 2) / unitNs;
  return percentiles(values);
}

std::string usText(std::int64_t us) {
  return std::to_string(us) + " us";
}

void addFigures(ResultSheet& sheet, const HybridFigures& h) {
  const auto add = [&sheet](const char* what, const char* wanted, std::string got, bool met) {
    sheet.add("hybrid", what, wanted, got, met);
  };
  const bool measured = h.preemptUs.n > 0;
  add("online submit to offline shut out, p50", "<= 100 us",
      measured ? usText(h.preemptUs.p50) : "not told", measured && h.preemptUs.p50 <= 100);
  add("online submit to offline shut out, p99", "<= 1000 us",
      measured ? usText(h.preemptUs.p99) : "not told", measured && h.preemptUs.p99 <= 1000);
  add("online submit to its kernel running, p50", "<= 1000 us", usText(h.startUs.p50),
      h.startUs.n > 0 && h.startUs.p50 <= 1000);
  add("online submit to its kernel running, p99", "<= 3000 us", usText(h.startUs.p99),
      h.startUs.n > 0 && h.startUs.p99 <= 3000);
  add("online bursts measured", ">= 200", std::to_string(h.startUs.n),
      h.startUs.n >= kBurstsWanted);
  const auto releaseFits = [&h](std::int64_t tenths) {
    return h.releaseMs.n > 0 && tenths >= 950 && tenths <= 1050;
  };
  add("online's last retired work to release, p50", "100 ms +- 5",
      h.releaseMs.n > 0 ? tenthsText(h.releaseMs.p50, "ms") : "not seen",
      releaseFits(h.releaseMs.p50));
  add("online's last retired work to release, p99", "100 ms +- 5",
      h.releaseMs.n > 0 ? tenthsText(h.releaseMs.p99, "ms") : "not seen",
      releaseFits(h.releaseMs.p99));
  add("offline: share of the rest", ">= 95.0 %", percentText(h.offlineShareOfRestPermille),
      h.offlineShareOfRestPermille >= 950);
  add("offline: resumed and right", "yes", h.offlineResumed ? "yes" : "no", h.offlineResumed);
}

}  // namespace

std::int64_t restOf(const HybridStamps& stamps) {
  std::vector<Interval> taken;
  for (const Burst& burst : stamps.bursts) {
    taken.push_back({burst.submitNs, burst.endNs + kOnlineIdleNs});
  }
  return uncovered(stamps.window, std::move(taken));
}

std::vector<std::int64_t> releasesOf(const HybridStamps& stamps) {
  std::vector<std::int64_t> releases;
  for (std::size_t i = 0; i < stamps.bursts.size(); i++) {
    const std::int64_t end = stamps.bursts[i].endNs;
    const std::int64_t next =
        i + 1 < stamps.bursts.size() ? stamps.bursts[i + 1].submitNs : stamps.window.end;
    for (const Standstill& still : stamps.standstills) {
      if (still.resumedNs <= end || still.lastNs > end) continue;
      if (still.resumedNs < next) releases.push_back(still.resumedNs - end);
      break;
    }
  }
  return releases;
}

std::vector<std::int64_t> stopsOf(const HybridStamps& stamps) {
  std::vector<std::int64_t> stops;
  for (const Burst& burst : stamps.bursts) {
    for (const Standstill& still : stamps.standstills) {
      if (still.resumedNs <= burst.endNs || still.lastNs > burst.endNs) continue;
      stops.push_back(std::max<std::int64_t>(0, still.lastNs - burst.submitNs));
      break;
    }
  }
  return stops;
}

Status hybridAct(const ActSetting& setting) {
  const std::string title = "hybrid: online bursts over an offline batch of 2 to 100 ms kernels";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  ActResult act{"hybrid", "best-effort", {}};
  Cast cast(setting.stage, {offlineBatch(), onlineBursts()});
  if (Status status = cast.warmUp(); !status) return status;
  if (Status status = cast.watch(setting.ns * 4); !status) return status;
  const Series& batch = cast.used("batch");
  HybridStamps stamps{{batch.front().atNs, batch.back().atNs}, {}, {}};
  const std::int64_t offlineUsed = batch.back().usedNs - batch.front().usedNs;
  const Result<CardCounters> card = setting.stage.node().firstCard();
  if (!card) return card.error();

  // Online leaves; the batch must then go on to be right at its end.
  cast.child("serve").say("end");
  const std::int64_t before = usedAt(batch, batch.back().atNs);
  pauseFor(kSecond / 2);
  const Result<TaskSnapshot> after = setting.stage.node().tasks();
  if (!after) return after.error();
  const TaskCounters* offline = after->find("batch");
  const bool wentOn = offline != nullptr && offline->usedNs > before;
  for (const TenantSpec& spec : cast.specs()) {
    act.tasks.push_back(figureOf(cast, spec, stamps.window));
  }
  const auto reports = closeAct(setting, cast, std::move(act));
  if (!reports) return reports.error();

  stamps.bursts = reports->at("serve").bursts;
  stamps.standstills = reports->at("batch").standstills;
  HybridFigures figures;
  const std::int64_t rest = restOf(stamps);
  stamps.bursts = within(stamps.bursts, stamps.window);
  std::vector<std::int64_t> starts;
  for (const Burst& burst : stamps.bursts) starts.push_back(burst.startNs - burst.submitNs);
  figures.preemptUs = {card->preemptUs.p50, card->preemptUs.p99,
                       static_cast<std::size_t>(card->preemptUs.n)};
  figures.startUs = scaled(starts, 1000);
  figures.releaseMs = {card->releaseUs.p50 / 100, card->releaseUs.p99 / 100,
                       static_cast<std::size_t>(card->releaseUs.n)};
  figures.offlineShareOfRestPermille = rest > 0 ? offlineUsed * 1000 / rest : 0;
  figures.offlineResumed = wentOn && reports->at("batch").checksumOk();
  addFigures(setting.sheet, figures);
  const Percentiles stops = scaled(stopsOf(stamps), 100'000);
  setting.sheet.tell("hybrid",
                     "offline's last progress after online's submit, p99 (looked for "
                     "every 0.5 ms)",
                     stops.n > 0 ? tenthsText(stops.p99, "ms") : "not seen");
  const Percentiles seen = scaled(releasesOf(stamps), 100'000);
  if (seen.n > 0) {
    setting.sheet.tell("hybrid", "online's last kernel to offline's next progress, p50, p99",
                       tenthsText(seen.p50, "ms") + ", " + tenthsText(seen.p99, "ms"));
  }
  setting.sheet.hybrid = figures;
  return ok();
}

}  // namespace qgpu::demo
