// qgpu-work: the demo's OpenCL program. A tenant like any other: it knows nothing of qgpu.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "services/demo/workload/json_text.h"
#include "services/demo/workload/ways_out.h"
#include "services/demo/workload/work_control.h"
#include "services/demo/workload/work_device.h"
#include "services/demo/workload/work_options.h"
#include "services/demo/workload/work_run.h"

namespace {

using namespace qgpu;
using namespace qgpu::demo;

enum Exit { kFine = 0, kFailed = 1, kUsage = 2, kNoMemory = 3, kNoDevice = 4 };

int complain(const Error& error, int code) {
  std::fprintf(stderr, "qgpu-work: %s\n", error.message.c_str());
  return code;
}

int exitOf(DeviceTrouble trouble) {
  switch (trouble) {
    case DeviceTrouble::NoDevice:
      return kNoDevice;
    case DeviceTrouble::OutOfMemory:
      return kNoMemory;
    default:
      return kFailed;
  }
}

int describe() {
  const Result<DeviceNames> names = WorkDevice::describe();
  if (!names) return complain(names.error(), kNoDevice);
  JsonText out;
  out.object().text("device", names->device).text("driver", names->driver).endObject();
  std::printf("%s\n", out.str().c_str());
  return kFine;
}

int leave(const std::string& node) {
  std::fputs(waysText(node).c_str(), stdout);
  return kFine;
}

int work(const WorkOptions& options) {
  WorkControl::takeSignals();
  DeviceTrouble trouble = DeviceTrouble::None;
  auto device = WorkDevice::open(options.memoryMib, options.seed, trouble);
  if (!device) return complain(device.error(), exitOf(trouble));
  if (options.fillMib != 0) {
    const std::uint64_t most = std::uint64_t{options.fillMib} << 20U;
    std::printf("%s\n", (*device)->takeMemory(most).json().c_str());
    return kFine;
  }
  double loopsPerMs = options.loopsPerMs;
  if (loopsPerMs == 0 || options.calibrate) {
    const Result<double> measured = calibrate(**device);
    if (!measured) return complain(measured.error(), kFailed);
    loopsPerMs = *measured;
  }
  if (options.calibrate) {
    std::printf("{\"loops_per_ms\":%.3f}\n", loopsPerMs);
    return kFine;
  }
  const std::int64_t until = options.seconds == 0
                                 ? INT64_MAX
                                 : monotonicNs() + static_cast<std::int64_t>(options.seconds * 1e9);
  WorkControl control(options.control, until);
  const Result<WorkReport> report = runWork(**device, options, loopsPerMs, control);
  if (!report) return complain(report.error(), kFailed);
  std::printf("%s\n", (options.json ? report->json() : report->text()).c_str());
  return report->wrong == 0 ? kFine : kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parseWorkOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (!options) return complain(options.error(), kUsage);
  if (options->help) {
    std::fputs(workUsage(), stdout);
    return kFine;
  }
  if (!options->waysOut.empty()) return leave(options->waysOut);
  return options->describe ? describe() : work(*options);
}
