#include "tests/gpu/isolation_report.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace qgpu::gpu {
namespace {

constexpr double kRatioMost = 10;  // what has no unit and is less is a part of something

// "added_ns", and a part of a distribution: "added_ns_p25".
bool hasUnit(const std::string& name) {
  constexpr std::string_view kUnits[] = {"_ns_", "_us_", "_ms_", "_bytes_", "_seconds_"};
  return std::any_of(std::begin(kUnits), std::end(kUnits), [&](std::string_view unit) {
    return ("_" + name + "_").find(unit) != std::string::npos;
  });
}

void addFigure(std::vector<prove::Figure>& to, const std::string& name, const Json& value) {
  if (value.is_boolean()) {
    to.push_back({name, value.get<bool>() ? 1 : 0});
  } else if (value.is_number_integer()) {
    to.push_back({name, value.get<std::int64_t>()});
  } else if (value.is_number() && std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    const bool ratio = !hasUnit(name) && std::abs(number) < kRatioMost;
    to.push_back(ratio ? prove::Figure{name + "_permille", std::llround(number * 1'000)}
                       : prove::Figure{name, std::llround(number)});
  } else if (value.is_object()) {  // a distribution: n, p50, p99 of what `name` names
    for (const auto& [part, each] : value.items()) {
      if (hasUnit(name) && part != "n") {
        const std::size_t unit = name.rfind('_');
        addFigure(to, name.substr(0, unit) + "_" + part + name.substr(unit), each);
      } else {
        addFigure(to, name + "_" + part, each);
      }
    }
  }
}

prove::Verdict verdictOf(const Finding& finding) {
  if (finding.verdict == Verdict::kMet) return prove::Verdict::Proven;
  return finding.verdict == Verdict::kWeaker ? prove::Verdict::Weaker : prove::Verdict::NotProven;
}

Verdict verdictOf(const prove::Promise& promise) {
  if (promise.verdict == prove::Verdict::Proven) return Verdict::kMet;
  return promise.verdict == prove::Verdict::Weaker ? Verdict::kWeaker : Verdict::kMissed;
}

std::string whyOf(const Finding& finding) {
  if (finding.verdict == Verdict::kMet || !finding.why.empty()) return finding.why;
  if (finding.verdict == Verdict::kMissed) return "it was measured, and is not so";
  return "a run too short or noisy: its figures decide nothing";
}

}  // namespace

Finding findingOf(const prove::Promise& promise) {
  Finding finding{promise.id, promise.says, Json::object(), verdictOf(promise), promise.why};
  for (const prove::Figure& figure : promise.figures) finding.figures[figure.name] = figure.value;
  return finding;
}

prove::Report isolationReport(const Record& record) {
  prove::Report report;
  report.curves = prove::curvesOf(record.starts());
  for (const Finding& finding : record.findings()) {
    // Of those it is not said here what would have been promised.
    const bool unmeasured =
        finding.verdict == Verdict::kFailed || finding.verdict == Verdict::kSkipped;
    if (finding.wanted.empty() && !unmeasured) continue;
    prove::Promise& promise = report.promises.emplace_back();
    promise.id = inOneWord(finding.check);
    promise.says = finding.check + (finding.wanted.empty() ? "" : ": " + finding.wanted);
    promise.verdict = verdictOf(finding);
    promise.why = whyOf(finding);
    for (const auto& [name, value] : finding.figures.items()) {
      addFigure(promise.figures, name, value);
    }
    promise.again = "./dev test-gpu " + finding.of;
  }
  return report;
}

}  // namespace qgpu::gpu
