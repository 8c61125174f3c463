#pragma once
// What the demo found: figures with what was wanted and what was got, printed as a table and
// written as demo.json (CONTRACT.md, "Build"). Shares are permille, as everywhere.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/demo/statistics.h"
#include "services/demo/timeline.h"

namespace qgpu::demo {

struct TaskFigure {
  std::string name;
  TenantClass tenantClass = TenantClass::Ordinary;
  std::optional<std::int64_t> wantedPermille;  // none: the task has no share to get
  std::int64_t gotPermille = 0;
  std::int64_t gpuMs = 0;
  bool checksumOk = false;
};

struct ActResult {
  std::string act;     // be, fs, bs, hybrid, clpeak, alone
  std::string policy;  // full name
  std::vector<TaskFigure> tasks;
};

struct HybridFigures {
  Percentiles preemptUs;
  Percentiles startUs;
  Percentiles releaseMs;  // in tenths of a millisecond
  std::int64_t offlineShareOfRestPermille = 0;
  bool offlineResumed = false;
};

enum class Verdict { Ok, Miss, Told };  // Told: nothing was wanted, it is only said

struct Figure {
  std::string act;
  std::string what;
  std::string wanted;
  std::string got;
  Verdict verdict = Verdict::Told;
};

struct ResultSheet {
  std::string cardJson;  // the manager's own words
  std::string realtime;
  std::vector<ActResult> acts;
  std::vector<Figure> figures;
  std::vector<std::string> failures;  // acts that did not run, wrong checksums
  std::optional<HybridFigures> hybrid;
  std::optional<std::int64_t> alonePermille;

  void add(const std::string& act, const std::string& what, const std::string& wanted,
           const std::string& got, bool met) {
    figures.push_back({act, what, wanted, got, met ? Verdict::Ok : Verdict::Miss});
  }
  void tell(const std::string& act, const std::string& what, const std::string& got) {
    figures.push_back({act, what, "", got, Verdict::Told});
  }

  std::string table() const;
  std::string json() const;
};

std::string percentText(std::int64_t permille);                 // 335 -> "33.5 %"
std::string tenthsText(std::int64_t tenths, const char* unit);  // 1003, "ms" -> "100.3 ms"

}  // namespace qgpu::demo
