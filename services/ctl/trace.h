#pragma once
// `qgpuctl trace` and `qgpuctl timeline`: reads the traces of this node's cards from its manager's
// admin socket, and shows them as they are, as a file for Perfetto, in the terminal, or as SVG.

#include "services/ctl/options.h"

namespace qgpu::ctl {

// The exit status.
int recordTrace(const Options& options);
int followTrace(const Options& options);  // until a signal, or the manager is gone
int timeline(const Options& options);

}  // namespace qgpu::ctl
