// The acts that are about shares of ordinary tasks: best-effort, fixed-share, burst-share. A share
// is judged by the work that was done, checked item by item, beside what the same program does
// without qgpu in the same minutes; the manager's account of the time stands beside it.

#include "services/demo/act_common.h"
#include "services/demo/acts.h"
#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

// Within 3 % of the share that is wanted.
Wanted nearly(std::int64_t permille) {
  return {Wanted::Kind::Near, permille, permille * 3 / 100};
}

void addShare(const ActSetting& setting, const std::string& act, const TaskFigure& figure) {
  setting.sheet.measure(act, figure.name + ": work done, of a card", nearly(*figure.wantedPermille),
                        figure.gotPermille, percentText);
  setting.sheet.tell(act, figure.name + ": time counted by the manager",
                     percentText(figure.accountPermille));
}

// Rounds of the tenants between rounds of the bare program, for the act's length. Ends them all and
// puts each tenant's share beside the one wanted.
Result<Reports> measureShares(const ActSetting& setting, TenantGroup& tenants, BareRun& bare,
                              const std::vector<std::int64_t>& wanted, ActResult& act) {
  constexpr std::int64_t kShareRoundNs = 5 * kSecond / 2;
  const std::int64_t rounds = roundsOf(setting.ns, kShareRoundNs);
  Result<RoundsPlayed> played = playRounds(tenants, bare, rounds, setting.ns / rounds);
  if (!played) return played.error();
  for (std::size_t i = 0; i < wanted.size(); i++) {
    const TenantSpec& spec = tenants.specs()[i];
    TaskFigure figure = figureOf(tenants, spec, played->windows);
    figure.wantedPermille = wanted[i];
    figure.gotPermille = workPermille(played->reports.at(spec.name), played->rates.around);
    addShare(setting, act.act, figure);
    act.tasks.push_back(std::move(figure));
  }
  setting.sheet.tellSpeed(act.act, played->rates.apartPermille);
  return std::move(played->reports);
}

}  // namespace

Status bestEffortAct(const ActSetting& setting) {
  const std::string title = "best-effort: three busy tasks, a third of the card each";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  BareRun bare(setting.node, busyTenant("bare", 10, "2..8"));
  ActResult act{"be", "best-effort", {}};
  TenantGroup tenants(setting.node, title,
                      {busyTenant("anna", 10, "2..8"), busyTenant("berta", 10, "2..8"),
                       busyTenant("clara", 10, "2..8")});
  const auto reports = measureShares(setting, tenants, bare, {333, 333, 333}, act);
  if (!reports) return reports.error();
  closeAct(setting, *reports, std::move(act));
  return ok();
}

Status fixedShareAct(const ActSetting& setting) {
  const std::string title = "fixed-share: 30 % and 60 %, the rest stays idle";
  if (Status status = setScene(setting, title, "fixed-share"); !status) return status;
  BareRun bare(setting.node, busyTenant("bare", 10, "2..8"));
  ActResult act{"fs", "fixed-share", {}};
  const std::vector<std::int64_t> wanted = {300, 600};
  TenantGroup tenants(setting.node, title,
                      {busyTenant("thirty", 30, "2..8"), busyTenant("sixty", 60, "2..8")});
  const auto reports = measureShares(setting, tenants, bare, wanted, act);
  if (!reports) return reports.error();
  const Result<CardCounters> card = setting.node.client().firstCard();
  if (!card) return card.error();
  const Result<NodeSettings> settings = setting.node.client().settings();
  if (!settings) return settings.error();
  // A4: one slice and one settling time. The settling is the card's own p99.
  const std::int64_t allowed = settings->sliceMaxNs + card->settleUsP99 * 1000;
  for (std::size_t i = 0; i < wanted.size(); i++) {
    const std::string& name = tenants.specs()[i].name;
    const std::int64_t excess = excessOver(tenants.used(name), wanted[i]);
    setting.sheet.measure(act.act, name + ": most above its share, any window",
                          {Wanted::Kind::AtMost, allowed / 100'000}, excess / 100'000, millisText);
  }
  closeAct(setting, *reports, std::move(act));
  return ok();
}

Status burstShareAct(const ActSetting& setting) {
  constexpr std::int64_t kFallBackNs = kSecond / 10;  // after the return, before windows count
  constexpr std::int64_t kWindowNs = kSecond;
  const std::string title = "burst-share: 50 % each; the owner leaves, and returns";
  if (Status status = setScene(setting, title, "burst-share"); !status) return status;
  BareRun bare(setting.node, busyTenant("bare", 10, "2..8"));
  ActResult act{"bs", "burst-share", {}};
  TenantGroup tenants(setting.node, title,
                      {busyTenant("borrower", 50, "2..8"), busyTenant("owner", 50, "2..8")});
  if (Status status = tenants.warmUp(); !status) return status;
  if (Status status = tenants.watch(kSecond); !status) return status;
  tenants.say("pause");
  if (Status status = bare.measure(); !status) return status;
  tenants.child("borrower").say("go");
  if (Status status = tenants.watch(BareRun::kSettleNs); !status) return status;
  tenants.say("mark");
  if (Status status = tenants.watch(setting.ns * 4 / 10); !status) return status;
  tenants.say("mark");
  tenants.say("pause");
  if (Status status = bare.measure(); !status) return status;
  tenants.child("borrower").say("go");
  if (Status status = tenants.watch(BareRun::kSettleNs); !status) return status;
  tenants.child("owner").say("go");
  const std::int64_t returned = monotonicNs();
  if (Status status = tenants.watch(kFallBackNs); !status) return status;
  tenants.say("mark");
  if (Status status = tenants.watch(setting.ns * 6 / 10); !status) return status;
  tenants.say("mark");
  const Interval sharedWindow{returned + kFallBackNs, tenants.lastSampleNs()};
  const auto reports = tenants.finish();
  if (!reports) return reports.error();
  if (Status status = bare.measure(); !status) return status;
  const Result<BareRates> rates = bare.finish();
  if (!rates) return rates.error();

  setting.sheet.measure("bs", "borrower: work done while the owner is away",
                        {Wanted::Kind::AtLeast, 950},
                        workPermille(reports->at("borrower"), rates->around, 0, 1), percentText);
  for (const TenantSpec& spec : tenants.specs()) {
    TaskFigure figure = figureOf(tenants, spec, {sharedWindow});
    figure.wantedPermille = 500;
    figure.gotPermille = workPermille(reports->at(spec.name), rates->around, 1);
    addShare(setting, "bs", figure);
    act.tasks.push_back(figure);
    const auto shares = slidingShares(tenants.used(spec.name), sharedWindow.begin, kWindowNs);
    const std::string what = spec.name + ": time counted in each second after the return";
    setting.sheet.tell("bs", what,
                       shares ? percentText(shares->low) + " .. " + percentText(shares->high)
                              : "too short to tell");
  }
  setting.sheet.tellSpeed("bs", rates->apartPermille);
  closeAct(setting, *reports, std::move(act));
  return ok();
}

}  // namespace qgpu::demo
