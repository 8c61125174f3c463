// Online bursts over an offline batch: how soon online has the card, when offline has it back, and
// how much of the rest offline gets. Start and end of each burst are the online program's own
// stamps; standstill and progress are the offline program's; preempt and release are the card's.

#include <algorithm>
#include <utility>

#include "runtime/units.h"
#include "services/demo/act_common.h"
#include "services/demo/acts.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kBurstsWanted = 200;

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
  const auto measure = [&sheet](const char* what, Wanted wanted, std::int64_t got, std::size_t of,
                                std::string (*text)(std::int64_t)) {
    if (of == 0) return sheet.miss("hybrid", what, "not seen");
    sheet.measure("hybrid", what, wanted, got, text);
  };
  constexpr auto kMost = Wanted::Kind::AtMost;
  measure("online submit to offline shut out, p50", {kMost, 100}, h.preemptUs.p50, h.preemptUs.n,
          usText);
  measure("online submit to offline shut out, p99", {kMost, 1000}, h.preemptUs.p99, h.preemptUs.n,
          usText);
  measure("online submit to its kernel running, p50", {kMost, 1000}, h.startUs.p50, h.startUs.n,
          usText);
  measure("online submit to its kernel running, p99", {kMost, 3000}, h.startUs.p99, h.startUs.n,
          usText);
  sheet.measure("hybrid", "online bursts measured", {Wanted::Kind::AtLeast, kBurstsWanted},
                static_cast<std::int64_t>(h.startUs.n), countText);
  constexpr Wanted kRelease{Wanted::Kind::Near, 1000, 50};
  measure("online's last retired work to release, p50", kRelease, h.releaseMs.p50, h.releaseMs.n,
          millisText);
  measure("online's last retired work to release, p99", kRelease, h.releaseMs.p99, h.releaseMs.n,
          millisText);
  sheet.measure("hybrid", "offline: work done, of a card in the rest", {Wanted::Kind::AtLeast, 950},
                h.offlineShareOfRestPermille, percentText);
  sheet.tell("hybrid", "offline: time counted, of the rest", percentText(h.accountOfRestPermille));
  sheet.add("hybrid", "offline: resumed and right", "yes", h.offlineResumed ? "yes" : "no",
            h.offlineResumed);
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

namespace {

HybridFigures figuresOf(const CardCounters& card, HybridStamps stamps, const WorkReport& batch,
                        const Series& counted, double bareRate) {
  HybridFigures figures;
  const std::int64_t rest = restOf(stamps);
  stamps.bursts = within(stamps.bursts, stamps.window);
  std::vector<std::int64_t> starts;
  for (const Burst& burst : stamps.bursts) starts.push_back(burst.startNs - burst.submitNs);
  figures.preemptUs = {card.preemptUs.p50, card.preemptUs.p99,
                       static_cast<std::size_t>(card.preemptUs.n)};
  figures.startUs = scaled(starts, 1000);
  figures.releaseMs = {card.releaseUs.p50 / 100, card.releaseUs.p99 / 100,
                       static_cast<std::size_t>(card.releaseUs.n)};
  if (rest <= 0) return figures;
  const std::int64_t length = stamps.window.end - stamps.window.begin;
  const std::int64_t used =
      usedAt(counted, stamps.window.end) - usedAt(counted, stamps.window.begin);
  figures.offlineShareOfRestPermille = mulDiv(workPermille(batch, 0, 1, bareRate), length, rest);
  figures.accountOfRestPermille = mulDiv(used, 1000, rest);
  return figures;
}

// Online bursts and the batch, until online leaves and a moment longer: the batch must go on.
struct HybridPlay {
  Reports reports;
  CardCounters card;
  bool wentOn = false;
};
Result<HybridPlay> playHybrid(const ActSetting& setting, TenantGroup& tenants) {
  HybridPlay play;
  if (Status status = tenants.warmUp(); !status) return status.error();
  tenants.mark();
  if (Status status = tenants.watch(setting.ns * 4); !status) return status.error();
  tenants.mark();
  const Result<CardCounters> card = setting.node.client().firstCard();
  if (!card) return card.error();
  play.card = *card;
  tenants.child("serve").say("end");
  const std::int64_t before = tenants.used("batch").back().usedNs;
  pauseFor(kSecond / 2);
  const Result<TaskSnapshot> after = setting.node.client().tasks();
  if (!after) return after.error();
  const TaskCounters* offline = after->find("batch");
  play.wentOn = offline != nullptr && offline->usedNs > before;
  auto reports = tenants.finish();
  if (!reports) return reports.error();
  play.reports = std::move(*reports);
  if (play.reports.at("batch").marks.size() == 2) return play;
  return fail(ErrorCode::Unavailable, "the batch did not say how much it had done");
}

}  // namespace

Status hybridAct(const ActSetting& setting) {
  const std::string title = "hybrid: online bursts over an offline batch of 2 to 100 ms kernels";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  BareRun bare(setting.node, offlineBatch());
  if (Status status = bare.measure(); !status) return status;
  ActResult act{"hybrid", "best-effort", {}};
  TenantGroup tenants(setting.node, {offlineBatch(), onlineBursts()});
  const Result<HybridPlay> play = playHybrid(setting, tenants);
  if (!play) return play.error();
  if (Status status = bare.measure(); !status) return status;
  const Result<double> rate = bare.finish();
  if (!rate) return rate.error();

  const WorkReport& batch = play->reports.at("batch");
  const HybridStamps stamps{{batch.marks[0].atNs, batch.marks[1].atNs},
                            play->reports.at("serve").bursts,
                            batch.standstills};
  HybridFigures figures = figuresOf(play->card, stamps, batch, tenants.used("batch"), *rate);
  figures.offlineResumed = play->wentOn && batch.checksumOk();
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
  for (const TenantSpec& spec : tenants.specs()) {
    act.tasks.push_back(figureOf(tenants, spec, stamps.window));
  }
  setting.sheet.hybrid = figures;
  closeAct(setting, play->reports, std::move(act));
  return ok();
}

}  // namespace qgpu::demo
