#pragma once
// The manager is gone, or hangs, or dies soon after each start, for longer than the orphan grace.
// Running tenants wait that long at most and go on, within their quotas; once it is back, slices,
// tokens and holds are as before (C9, HAZARDS 20).

#include <cstdint>
#include <string>

namespace qgpu::crash {

struct AbsenceOptions {
  std::uint64_t rounds = 3;  // dead, hanging, dying again and again: by turns
  std::string cards = "opencl";
};

// Returns the verdict as one JSON line; throws a Violation.
std::string runAbsence(const AbsenceOptions& options);

}  // namespace qgpu::crash
