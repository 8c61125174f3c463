#pragma once
// `qgpuctl prove`: makes a report of a card, or looks whether one is what was signed.

#include "services/ctl/options.h"

namespace qgpu::ctl {

// The exit status of qgpuctl: 1 where a promise is not proven.
int prove(const Options& options);

}  // namespace qgpu::ctl
