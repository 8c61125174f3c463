#pragma once
// `qgpuctl trace record` and `qgpuctl timeline`: reads the traces of this node's cards from its
// manager's admin socket, and shows them as a file for Perfetto, in the terminal, or as SVG.

#include "services/ctl/options.h"

namespace qgpu::ctl {

// The exit status.
int recordTrace(const Options& options);
int timeline(const Options& options);

}  // namespace qgpu::ctl
