// Online bursts over an offline batch: how soon online has the card, when offline has it back, and
// how much of the rest offline gets. Start and end of each burst are the online program's own
// stamps; standstill and progress are the offline program's; preempt and release are the card's.

#include <algorithm>
#include <utility>

#include "runtime/units.h"
#include "services/demo/act_common.h"
#include "services/demo/acts.h"
#include "services/demo/tenants/hybrid_stamps.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kBurstsWanted = 5;  // for each second: 200 in the 40 s of the default
constexpr std::int64_t kHybridRoundNs = 5 * kSecond;
constexpr std::int64_t kDrainNs = kSecond / 2;  // three kernels of 100 ms, and online's last
constexpr std::int64_t kTenthOfMsNs = 100'000;  // most figures are in tenths of a ms

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

// Bursts that lie in a window wholly; one that began before it still counts as busy time.
std::vector<Burst> within(const std::vector<Burst>& bursts, const std::vector<Interval>& windows) {
  std::vector<Burst> inside;
  for (const Burst& burst : bursts) {
    const bool wholly = std::any_of(windows.begin(), windows.end(), [&](const Interval& window) {
      return burst.submitNs >= window.begin && burst.endNs <= window.end;
    });
    if (wholly) inside.push_back(burst);
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

void addFigures(ResultSheet& sheet, const HybridFigures& h, std::int64_t onlineIdleNs,
                std::int64_t burstsWanted) {
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
  sheet.measure("hybrid", "online bursts measured", {Wanted::Kind::AtLeast, burstsWanted},
                static_cast<std::int64_t>(h.startUs.n), countText);
  const std::int64_t idleTenths = onlineIdleNs / kTenthOfMsNs;
  const Wanted release{Wanted::Kind::Near, idleTenths, idleTenths / 20};
  measure("online's last retired work to release, p50", release, h.releaseMs.p50, h.releaseMs.n,
          millisText);
  measure("online's last retired work to release, p99", release, h.releaseMs.p99, h.releaseMs.n,
          millisText);
  sheet.measure("hybrid", "offline: work done, of a card in the rest", {Wanted::Kind::AtLeast, 950},
                h.offlineShareOfRestPermille, percentText);
  sheet.tell("hybrid", "offline: time counted, of the rest", percentText(h.accountOfRestPermille));
  sheet.add("hybrid", "offline: resumed and right", "yes", h.offlineResumed ? "yes" : "no",
            h.offlineResumed);
}

// What the batch did of the time that online left it, in permille of what the same program does
// without qgpu just before and after each round. A round is a phase of the batch: it begins and
// ends with nothing in flight, so each kernel of up to 100 ms counts where it ran.
std::int64_t workOfRest(const WorkReport& batch, const HybridStamps& stamps,
                        const std::vector<double>& bareRates) {
  double done = 0;
  double possible = 0;
  for (std::size_t i = 0; i < bareRates.size(); i++) {
    const std::int64_t rest = restOf({stamps.onlineIdleNs, {stamps.windows[i]}, stamps.bursts, {}});
    done += static_cast<double>(batch.phases[i].loops);
    possible += bareRates[i] * static_cast<double>(rest) / 1e9;
  }
  return possible <= 0 ? 0 : static_cast<std::int64_t>(done / possible * 1000 + 0.5);
}

HybridFigures figuresOf(const CardCounters& card, HybridStamps stamps, const WorkReport& batch,
                        const Series& counted, const std::vector<double>& bareRates) {
  HybridFigures figures;
  const std::int64_t rest = restOf(stamps);
  figures.preemptUs = {card.preemptUs.p50, card.preemptUs.p99,
                       static_cast<std::size_t>(card.preemptUs.n)};
  figures.releaseMs = {card.releaseUs.p50 / 100, card.releaseUs.p99 / 100,
                       static_cast<std::size_t>(card.releaseUs.n)};
  if (rest > 0) {
    figures.offlineShareOfRestPermille = workOfRest(batch, stamps, bareRates);
    figures.accountOfRestPermille = mulDiv(usedIn(counted, stamps.windows), 1000, rest);
  }
  stamps.bursts = within(stamps.bursts, stamps.windows);
  std::vector<std::int64_t> starts;
  for (const Burst& burst : stamps.bursts) starts.push_back(burst.startNs - burst.submitNs);
  figures.startUs = scaled(starts, 1000);
  return figures;
}

// Rounds of online bursts and the batch, between rounds of the bare program; then a moment of the
// batch without online: it must go on.
struct HybridPlay {
  Reports reports;
  CardCounters card;
  bool wentOn = false;
};
Result<HybridPlay> playHybrid(const ActSetting& setting, TenantGroup& tenants, BareRun& bare,
                              std::int64_t rounds) {
  HybridPlay play;
  if (Status status = tenants.warmUp(); !status) return status.error();
  tenants.say("pause");
  if (Status status = bare.measure(); !status) return status.error();
  for (std::int64_t i = 0; i < rounds; i++) {
    tenants.say("go");
    if (Status status = tenants.watch(setting.ns * 4 / rounds); !status) return status.error();
    tenants.say("pause");
    if (Status status = tenants.watch(kDrainNs); !status) return status.error();
    if (Status status = bare.measure(); !status) return status.error();
  }
  const Result<CardCounters> card = setting.node.client().firstCard();
  if (!card) return card.error();
  play.card = *card;
  tenants.child("serve").say("end");
  const std::int64_t before = tenants.used("batch").back().usedNs;
  tenants.child("batch").say("go");
  pauseFor(kSecond / 2);
  const Result<TaskSnapshot> after = setting.node.client().tasks();
  if (!after) return after.error();
  const TaskCounters* offline = after->find("batch");
  play.wentOn = offline != nullptr && offline->usedNs > before;
  auto reports = tenants.finish();
  if (!reports) return reports.error();
  play.reports = std::move(*reports);
  // Before the rounds it warmed up, after them it went on.
  std::vector<Phase>& phases = play.reports.at("batch").phases;
  if (phases.size() != static_cast<std::size_t>(rounds) + 2) {
    return fail(ErrorCode::Unavailable, "the batch did not run in each of the rounds");
  }
  phases.erase(phases.begin());
  phases.pop_back();
  return play;
}

}  // namespace

Status hybridAct(const ActSetting& setting) {
  const std::string title = "hybrid: online bursts over an offline batch of 2 to 100 ms kernels";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  const Result<NodeSettings> settings = setting.node.client().settings();
  if (!settings) return settings.error();
  BareRun bare(setting.node, offlineBatch());
  ActResult act{"hybrid", "best-effort", {}};
  TenantGroup tenants(setting.node, title, {offlineBatch(), onlineBursts()});
  const Result<HybridPlay> play =
      playHybrid(setting, tenants, bare, roundsOf(setting.ns * 4, kHybridRoundNs));
  if (!play) return play.error();
  const Result<BareRates> rates = bare.finish();
  if (!rates) return rates.error();

  const WorkReport& batch = play->reports.at("batch");
  HybridStamps stamps{
      settings->onlineIdleNs, {}, play->reports.at("serve").bursts, batch.standstills};
  for (const Phase& phase : batch.phases) stamps.windows.push_back({phase.startNs, phase.endNs});
  HybridFigures figures =
      figuresOf(play->card, stamps, batch, tenants.used("batch"), rates->around);
  figures.offlineResumed = play->wentOn && batch.checksumOk();
  addFigures(setting.sheet, figures, settings->onlineIdleNs,
             setting.ns * 4 / kSecond * kBurstsWanted);
  const Percentiles stops = scaled(stopsOf(stamps), kTenthOfMsNs);
  setting.sheet.tell("hybrid",
                     "offline's last progress after online's submit, p99 (looked for "
                     "every 0.5 ms)",
                     stops.n > 0 ? tenthsText(stops.p99, "ms") : "not seen");
  const Percentiles seen = scaled(releasesOf(stamps), kTenthOfMsNs);
  if (seen.n > 0) {
    setting.sheet.tell("hybrid", "online's last kernel to offline's next progress, p50, p99",
                       tenthsText(seen.p50, "ms") + ", " + tenthsText(seen.p99, "ms"));
  }
  for (const TenantSpec& spec : tenants.specs()) {
    act.tasks.push_back(figureOf(tenants, spec, stamps.windows));
  }
  setting.sheet.hybrid = figures;
  setting.sheet.tellSpeed(act.act, rates->apartPermille);
  closeAct(setting, play->reports, std::move(act));
  return ok();
}

}  // namespace qgpu::demo
