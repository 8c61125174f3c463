#pragma once
// What the demo found: figures with what was wanted and what was got, printed as a table and
// written as demo.json (docs/get-started.md). Shares are permille, as everywhere.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/demo/tenants/statistics.h"
#include "services/demo/tenants/timeline.h"

namespace qgpu::demo {

struct TaskFigure {
  std::string name;
  TenantClass tenantClass = TenantClass::Ordinary;
  std::optional<std::int64_t> wantedPermille;  // none: the task has no share to get
  std::int64_t gotPermille = 0;                // work done, of what the program does without qgpu
  std::int64_t accountPermille = 0;            // time that the manager counted, of all
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
  Percentiles releaseMs;                        // in tenths of a millisecond
  std::int64_t offlineShareOfRestPermille = 0;  // of the work that it does without qgpu
  std::int64_t accountOfRestPermille = 0;       // of the time, as the manager counted it
  bool offlineResumed = false;
};

enum class Verdict { Ok, Miss, Told };  // Told: nothing was wanted, it is only said

struct Figure {
  std::string act;
  std::string what;
  std::string wanted;
  std::string got;
  Verdict verdict = Verdict::Told;
  bool beyondRoom = false;  // missed by more than the sheet's room for noise
};

// What was wanted of a number, in the unit of that number.
struct Wanted {
  enum class Kind : std::uint8_t { AtLeast, AtMost, Near };
  Kind kind = Kind::AtLeast;
  std::int64_t value = 0;
  std::int64_t tolerance = 0;  // of Near, both ways

  // Each bound moved out by `roomPercent` of the value.
  bool met(std::int64_t got, std::int64_t roomPercent) const;
};

struct ResultSheet {
  std::string cardJson;  // the manager's own words
  std::string realtime;
  std::vector<ActResult> acts;
  std::vector<Figure> figures;
  std::vector<std::string> failures;  // acts that did not run, wrong checksums
  std::optional<HybridFigures> hybrid;
  std::optional<std::int64_t> alonePermille;
  std::int64_t apartPermille = 0;  // the most of tellSpeed()
  std::int64_t roomPercent = 0;    // by which a figure may miss what is wanted on a noisy machine

  // Something that is so or not: noise is no excuse.
  void add(const std::string& act, const std::string& what, const std::string& wanted,
           const std::string& got, bool met) {
    figures.push_back({act, what, wanted, got, met ? Verdict::Ok : Verdict::Miss, !met});
  }
  // A number, written by `text` as what is wanted of it is.
  void measure(const std::string& act, const std::string& what, Wanted wanted, std::int64_t got,
               std::string (*text)(std::int64_t));
  // It was wanted and could not be had.
  void miss(const std::string& act, const std::string& what, const std::string& got) {
    figures.push_back({act, what, "", got, Verdict::Miss, true});
  }
  void tell(const std::string& act, const std::string& what, const std::string& got) {
    figures.push_back({act, what, "", got, Verdict::Told});
  }
  // By how much this machine's own speed moved within an act, seen by the program without qgpu.
  void tellSpeed(const std::string& act, std::int64_t apartPermille);
  std::size_t missed() const;      // of all figures
  std::size_t beyondRoom() const;  // of these, by more than the room

  std::string table() const;
  std::string json() const;
};

std::string percentText(std::int64_t permille);                 // 335 -> "33.5 %"
std::string millisText(std::int64_t tenths);                    // 1003 -> "100.3 ms"
std::string countText(std::int64_t n);                          // 12 -> "12"
std::string tenthsText(std::int64_t tenths, const char* unit);  // 1003, "ms" -> "100.3 ms"

}  // namespace qgpu::demo
