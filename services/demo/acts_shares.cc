// The acts that are about shares of ordinary tasks: best-effort, fixed-share, burst-share.

#include "services/demo/act_common.h"
#include "services/demo/acts.h"
#include "services/demo/clock.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTolerancePermille = 20;   // of a share over the whole act
constexpr std::int64_t kSliceMaxNs = 30'000'000;  // the manager's default

bool within(std::int64_t got, std::int64_t wanted, std::int64_t tolerance) {
  return got >= wanted - tolerance && got <= wanted + tolerance;
}

std::string wantedText(std::int64_t permille, std::int64_t tolerance) {
  return percentText(permille) + " +- " + std::to_string(tolerance / 10);
}

// Watches for the act's length and puts each task's share beside the one wanted.
Result<Interval> measureShares(const ActSetting& setting, Cast& cast,
                               const std::vector<std::int64_t>& wanted, ActResult& act) {
  if (Status status = cast.warmUp(); !status) return status.error();
  if (Status status = cast.watch(setting.ns); !status) return status.error();
  const Series& first = cast.used(cast.specs().front().name);
  const Interval window{first.front().atNs, first.back().atNs};
  for (std::size_t i = 0; i < wanted.size(); i++) {
    const TenantSpec& spec = cast.specs()[i];
    TaskFigure figure = figureOf(cast, spec, window);
    figure.wantedPermille = wanted[i];
    setting.sheet.add(act.act, spec.name + ": share of the card",
                      wantedText(wanted[i], kTolerancePermille), percentText(figure.gotPermille),
                      within(figure.gotPermille, wanted[i], kTolerancePermille));
    act.tasks.push_back(std::move(figure));
  }
  return window;
}

}  // namespace

Status bestEffortAct(const ActSetting& setting) {
  const std::string title = "best-effort: three busy tasks, a third of the card each";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  ActResult act{"be", "best-effort", {}};
  Cast cast(setting.stage, {busyTenant("anna", 10, "2..8"), busyTenant("berta", 10, "2..8"),
                            busyTenant("clara", 10, "2..8")});
  const Result<Interval> window = measureShares(setting, cast, {333, 333, 333}, act);
  if (!window) return window.error();
  const auto reports = closeAct(setting, cast, std::move(act));
  return reports ? ok() : Status(reports.error());
}

Status fixedShareAct(const ActSetting& setting) {
  const std::string title = "fixed-share: 30 % and 60 %, the rest stays idle";
  if (Status status = setScene(setting, title, "fixed-share"); !status) return status;
  ActResult act{"fs", "fixed-share", {}};
  const std::vector<std::int64_t> wanted = {300, 600};
  Cast cast(setting.stage, {busyTenant("thirty", 30, "2..8"), busyTenant("sixty", 60, "2..8")});
  const Result<Interval> window = measureShares(setting, cast, wanted, act);
  if (!window) return window.error();
  const Result<CardCounters> card = setting.stage.node().firstCard();
  if (!card) return card.error();
  // A4: one slice and one settling time. The settling is the card's own p99.
  const std::int64_t allowed = kSliceMaxNs + card->settleUsP99 * 1000;
  for (std::size_t i = 0; i < wanted.size(); i++) {
    const std::string& name = cast.specs()[i].name;
    const std::int64_t excess = excessOver(cast.used(name), wanted[i]);
    setting.sheet.add(act.act, name + ": most above its share, any window",
                      "<= " + tenthsText(allowed / 100'000, "ms"),
                      tenthsText(excess / 100'000, "ms"), excess <= allowed);
  }
  const auto reports = closeAct(setting, cast, std::move(act));
  return reports ? ok() : Status(reports.error());
}

Status burstShareAct(const ActSetting& setting) {
  constexpr std::int64_t kFallBackNs = kSecond / 10;  // after the return, before windows count
  constexpr std::int64_t kWindowNs = kSecond;
  const std::string title = "burst-share: 50 % each; the owner leaves, and returns";
  if (Status status = setScene(setting, title, "burst-share"); !status) return status;
  ActResult act{"bs", "burst-share", {}};
  Cast cast(setting.stage, {busyTenant("borrower", 50, "2..8"), busyTenant("owner", 50, "2..8")});
  if (Status status = cast.warmUp(); !status) return status;
  if (Status status = cast.watch(kSecond); !status) return status;
  cast.child("owner").say("pause");
  if (Status status = cast.watch(kSecond / 2); !status) return status;  // its last kernels end
  const std::int64_t alone = cast.lastSampleNs();
  if (Status status = cast.watch(setting.ns * 4 / 10); !status) return status;
  const Interval aloneWindow{alone, cast.lastSampleNs()};
  cast.child("owner").say("go");
  const std::int64_t returned = monotonicNs();
  if (Status status = cast.watch(setting.ns * 6 / 10); !status) return status;
  const Interval sharedWindow{returned + kFallBackNs, cast.lastSampleNs()};

  const std::int64_t aloneShare = shareOver(cast.used("borrower"), aloneWindow);
  setting.sheet.add("bs", "borrower: share while the owner is away", ">= 95.0 %",
                    percentText(aloneShare), aloneShare >= 950);
  for (const TenantSpec& spec : cast.specs()) {
    TaskFigure figure = figureOf(cast, spec, sharedWindow);
    figure.wantedPermille = 500;
    act.tasks.push_back(figure);
    const auto shares = slidingShares(cast.used(spec.name), sharedWindow.begin, kWindowNs);
    if (!shares) {
      setting.sheet.tell("bs", spec.name + ": share in each second", "too short to tell");
      continue;
    }
    constexpr std::int64_t kTolerance = 30;
    setting.sheet.add(
        "bs", spec.name + ": share in each 1 s after the return", wantedText(500, kTolerance),
        percentText(shares->low) + " .. " + percentText(shares->high),
        within(shares->low, 500, kTolerance) && within(shares->high, 500, kTolerance));
  }
  const auto reports = closeAct(setting, cast, std::move(act));
  return reports ? ok() : Status(reports.error());
}

}  // namespace qgpu::demo
