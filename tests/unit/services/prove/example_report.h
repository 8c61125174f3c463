#pragma once
// A report for tests, with each verdict once.

#include "services/prove/judge.h"

namespace qgpu::prove {

inline Report exampleReport() {
  Report report;
  report.head = {"opencl-0",      "CPU",     "opencl", "3.1",
                 "6.1.0",         "0.1.0",   "host",   "2026-01-02T03:04:05Z",
                 "freeze",        "library", "fifo",   "monotonic",
                 "qgpuctl prove", 12,        3};
  report.promises = {
      judgeShare(300, ShareFigures{300, 304, 300, 20, 0}),
      judgeEscape(EscapeFigures{"library", 40, 1 << 20, 0}),
      judgeQuota(fail(ErrorCode::Unavailable, "no memory was left")),
  };
  for (Promise& promise : report.promises) promise.again = "qgpuctl prove --only x --card opencl-0";
  OnlineFigures online{"freeze", 10, {}};
  for (std::int64_t us = 1; us <= 200; us++) online.startUs.push_back(us);
  report.curves = curvesOf({online});
  return report;
}

}  // namespace qgpu::prove
