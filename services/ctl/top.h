#pragma once
// `qgpuctl top`: who has the cards, now. On a terminal a screen that is renewed in place and has
// keys, over restarts of its daemon; into a pipe, one plain picture after the other, until the
// daemon is gone.

#include "services/ctl/options.h"

namespace qgpu::ctl {

// The exit status.
int top(const Options& options);

}  // namespace qgpu::ctl
