#include "tests/gpu/pairs.h"

#include <algorithm>

#include "tests/gpu/ranks.h"

namespace qgpu::gpu {

Pairs Pairs::run(int count, const std::function<double(bool under)>& figure) {
  Pairs all;
  for (int i = 0; i < count; ++i) {
    for (const bool under : {i % 2 == 1, i % 2 == 0}) {
      (under ? all.under : all.bare).push_back(figure(under));
    }
  }
  return all;
}

void judgePairs(Finding& finding, const std::string& name, std::vector<double> differences,
                double most) {
  std::sort(differences.begin(), differences.end());
  const double low = rank(differences, 250), middle = rank(differences, 500);
  finding.figures[name] = middle;
  finding.figures[name + "_p25"] = low;
  finding.figures[name + "_p75"] = rank(differences, 750);
  finding.figures["pairs"] = differences.size();
  finding.verdict = middle <= most ? Verdict::kMet : Verdict::kMissed;
  if (middle > most && low <= most) {
    finding.verdict = Verdict::kReported;
    finding.why = "pairs differ by more than what is promised, and so decide nothing";
  }
}

}  // namespace qgpu::gpu
