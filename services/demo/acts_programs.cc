// The acts about programs: an unmodified one from Debian that shares the card, and one tenant that
// has the card alone, with and without qgpu.

#include <cstdio>
#include <sstream>

#include "services/demo/act_common.h"
#include "services/demo/acts.h"
#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

void printIndented(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) std::printf("    %s\n", line.c_str());
  }
}

double rateOf(const Phase& phase) {
  const std::int64_t ns = phase.endNs - phase.startNs;
  return ns <= 0 ? 0 : static_cast<double>(phase.loops) * 1e9 / static_cast<double>(ns);
}

// The newest `rounds` phases of both, pair by pair: what the first is of the second, in permille of
// permille, because a percent is what matters here.
std::vector<std::int64_t> ratios(const WorkReport& shared, const WorkReport& bare,
                                 std::size_t rounds) {
  std::vector<std::int64_t> found;
  for (std::size_t i = 1; i <= rounds; i++) {
    if (shared.phases.size() < i || bare.phases.size() < i) break;
    const double below = rateOf(bare.phases[bare.phases.size() - i]);
    if (below <= 0) continue;
    const double ratio = rateOf(shared.phases[shared.phases.size() - i]) / below;
    found.push_back(static_cast<std::int64_t>(ratio * 1e6 + 0.5));
  }
  return found;
}

}  // namespace

Status clpeakAct(const ActSetting& setting) {
  constexpr std::int64_t kNsMax = 120 * kSecond;
  const std::string title = "clpeak: Debian's program, not changed, beside a busy task";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  TenantSpec clpeak{
      "clpeak", TenantClass::Ordinary, 10, {"clpeak", "--compute-integer", "--kernel-latency"}, {}};
  ActResult act{"clpeak", "best-effort", {}};
  TenantGroup tenants(setting.node, title, {busyTenant("busy", 10, "2..8"), clpeak});
  const std::int64_t start = monotonicNs();
  const Result<int> status = tenants.watchUntilEnd("clpeak", kNsMax);
  if (!status) return status.error();
  const std::string output = tenants.child("clpeak").output();
  const bool complete = output.find("Kernel launch latency") != std::string::npos;
  if (*status != 0 || !complete) {
    return fail(ErrorCode::Unavailable, "clpeak ended with " + std::to_string(*status) + ": " +
                                            output + tenants.child("clpeak").errors());
  }
  printIndented(output);
  setting.sheet.add("clpeak", "ran to its end beside a busy task", "exit 0",
                    "exit " + std::to_string(*status) + " after " +
                        tenthsText((monotonicNs() - start) / 100'000'000, "s"),
                    true);
  if (!tenants.used("busy").empty()) {
    act.tasks.push_back(
        figureOf(tenants, tenants.specs().front(), {{start, tenants.lastSampleNs()}}));
  }
  const auto reports = tenants.finish();
  if (!reports) return reports.error();
  closeAct(setting, *reports, std::move(act));
  return ok();
}

Status aloneAct(const ActSetting& setting) {
  constexpr std::int64_t kPhaseNs = kSecond / 2;
  constexpr std::int64_t kQuietNs = kSecond / 5;  // the one before finishes what it has in flight
  const std::string title = "alone: the same program with and without qgpu, by turns";
  if (Status status = setScene(setting, title, "best-effort"); !status) return status;
  const TenantSpec spec = busyTenant("alone", 50, "2");
  ActResult act{"alone", "best-effort", {}};
  TenantGroup tenants(setting.node, title, {spec});
  const std::unique_ptr<Child> bare = setting.node.startBare(spec);
  if (Status status = tenants.warmUp(); !status) return status;
  tenants.child("alone").say("pause");
  bare->say("pause");
  const auto rounds = static_cast<std::size_t>(std::max<std::int64_t>(2, setting.ns / kPhaseNs));
  for (std::size_t round = 0; round < rounds; round++) {
    // Which of the two goes first changes, so that a drift of the machine favours neither.
    Child* order[2] = {&tenants.child("alone"), bare.get()};
    if (round % 2 == 1) std::swap(order[0], order[1]);
    for (Child* child : order) {
      if (Status status = tenants.watch(kQuietNs); !status) return status;
      child->say("go");
      if (Status status = tenants.watch(kPhaseNs); !status) return status;
      child->say("pause");
    }
  }
  const Result<WorkReport> bareReport = finishWork(*bare, "bare");
  if (!bareReport) return bareReport.error();
  act.tasks.push_back(
      figureOf(tenants, spec, {{tenants.used("alone").front().atNs, tenants.lastSampleNs()}}));
  const auto reports = tenants.finish();
  if (!reports) return reports.error();
  closeAct(setting, *reports, std::move(act));
  const std::vector<std::int64_t> found = ratios(reports->at("alone"), *bareReport, rounds);
  const std::int64_t median = percentile(found, 500);
  setting.sheet.alonePermille = median / 1000;
  setting.sheet.measure("alone", "of its bare rate, median of " + std::to_string(found.size()),
                        {Wanted::Kind::AtLeast, 990}, (median + 500) / 1000, percentText);
  setting.sheet.tell("alone", "of its bare rate, lowest and highest",
                     percentText(percentile(found, 0) / 1000) + " .. " +
                         percentText(percentile(found, 1000) / 1000));
  return ok();
}

}  // namespace qgpu::demo
