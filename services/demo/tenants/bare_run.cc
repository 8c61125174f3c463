#include "services/demo/tenants/bare_run.h"

#include <algorithm>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {

BareRun::BareRun(TenantHost& node, const TenantSpec& spec)
    : node_(node), child_(node.startBare(spec)) {}

Status BareRun::measure(std::int64_t everyNs) {
  constexpr std::int64_t kQuietNs = 300'000'000;  // it begins, and ends what it has in flight
  constexpr std::int64_t kReadyNsMax = 60'000'000'000;
  constexpr std::int64_t kLookNs = 20'000'000;
  child_->say("go");
  const std::int64_t until = monotonicNs() + kReadyNsMax;
  while (child_->errors().find("ready") == std::string::npos && child_->running()) {
    if (monotonicNs() > until || !pauseFor(kLookNs)) break;
  }
  pauseFor(kQuietNs);
  child_->say("mark");
  for (std::int64_t rest = kMeasureNs; rest > 0; rest -= everyNs) {
    if (const Result<TaskSnapshot> none = node_.client().tasks(); !none) return none.error();
    pauseFor(std::min(rest, everyNs));
  }
  child_->say("mark");
  child_->say("pause");
  measured_++;
  if (pauseFor(kQuietNs) && child_->running()) return ok();
  return fail(ErrorCode::Unavailable, "the program without qgpu ended: " + child_->errors());
}

Result<BareRates> BareRun::finish() {
  const Result<WorkReport> report = finishWork(*child_, "bare");
  if (!report) return report.error();
  std::vector<double> rates;
  for (std::size_t i = 0; i < measured_; i++) {
    rates.push_back(rateBetween(report->marks, 2 * i, 2 * i + 1));
    if (rates.back() <= 0) {
      return fail(ErrorCode::Unavailable, "the program did nothing without qgpu");
    }
  }
  return bareRatesOf(rates);
}

BareRates bareRatesOf(const std::vector<double>& measured) {
  BareRates rates;
  if (measured.empty()) return rates;
  for (std::size_t i = 1; i < measured.size(); i++) {
    rates.around.push_back((measured[i - 1] + measured[i]) / 2);
  }
  const auto [low, high] = std::minmax_element(measured.begin(), measured.end());
  rates.apartPermille = static_cast<std::int64_t>((*high / *low - 1) * 1000 + 0.5);
  return rates;
}

Result<RoundsPlayed> playRounds(TenantGroup& tenants, BareRun& bare, std::int64_t rounds,
                                std::int64_t roundNs) {
  RoundsPlayed played;
  if (Status status = tenants.warmUp(); !status) return status.error();
  for (std::int64_t i = 0; i < rounds; i++) {
    tenants.say("pause");
    if (Status status = bare.measure(); !status) return status.error();
    tenants.say("go");
    if (Status status = tenants.watch(BareRun::kSettleNs); !status) return status.error();
    const std::int64_t begin = tenants.lastSampleNs();
    tenants.say("mark");
    if (Status status = tenants.watch(roundNs); !status) return status.error();
    tenants.say("mark");
    played.windows.push_back({begin, tenants.lastSampleNs()});
  }
  Result<std::map<std::string, WorkReport>> reports = tenants.finish();
  if (!reports) return reports.error();
  played.reports = std::move(*reports);
  if (Status status = bare.measure(); !status) return status.error();
  const Result<BareRates> rates = bare.finish();
  if (!rates) return rates.error();
  played.rates = *rates;
  return played;
}

std::int64_t workPermille(const WorkReport& report, const std::vector<double>& bareRates,
                          std::size_t first, std::size_t end) {
  double done = 0;
  double possible = 0;
  for (std::size_t i = first; i < std::min(end, bareRates.size()); i++) {
    if (report.marks.size() < 2 * i + 2) break;
    const Mark& from = report.marks[2 * i];
    const Mark& to = report.marks[2 * i + 1];
    done += static_cast<double>(to.loops - from.loops);
    possible += bareRates[i] * static_cast<double>(to.atNs - from.atNs) / 1e9;
  }
  return possible <= 0 ? 0 : static_cast<std::int64_t>(done / possible * 1000 + 0.5);
}

}  // namespace qgpu::demo
