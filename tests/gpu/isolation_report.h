#pragma once
// What was found on a card as the report that `qgpuctl prove` writes (services/prove/report.h): one
// promise for each finding that something was promised of, of the checks that were run. Met is
// proven; a promise that was not measured, in a quick run as well, is not proven and says why.

#include "services/prove/report.h"
#include "tests/gpu/record.h"

namespace qgpu::gpu {

// Without its head. Times and bytes keep their unit, rounded; what is a ratio becomes permille.
prove::Report isolationReport(const Record& record);

}  // namespace qgpu::gpu
