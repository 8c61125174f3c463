#pragma once
// What was found on a card as the report that `qgpuctl prove` writes (services/prove/report.h): one
// promise for each finding that something was promised of, of the checks that were run. Met is
// proven; a promise that was not measured, in a quick run as well, is not proven and says why.
// Where a check has the figures that `prove` judges, they are judged as there, and drawn.

#include "services/prove/report.h"
#include "tests/gpu/record.h"

namespace qgpu::gpu {

// A promise as `prove` judged it, to be found in this run.
Finding findingOf(const prove::Promise& promise);

// Without its head. Times and bytes keep their unit, rounded; what is a ratio becomes permille.
prove::Report isolationReport(const Record& record);

}  // namespace qgpu::gpu
