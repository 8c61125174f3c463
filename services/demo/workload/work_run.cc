#include "services/demo/workload/work_run.h"

#include <algorithm>
#include <deque>

#include "services/demo/workload/work_progress.h"

namespace qgpu::demo {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr std::uint32_t kLoopsMax = 1U << 30;
constexpr std::size_t kDepth = 2;  // kernels in the queue of a steady run: it never runs dry

class Runner {
 public:
  Runner(WorkDevice& device, const WorkOptions& options, double loopsPerMs, WorkControl& control)
      : device_(device), options_(options), control_(control), draw_(options.seed) {
    report_.device = device.name();
    report_.loopsPerMs = loopsPerMs;
    report_.clock = device.clockName();
  }

  Result<WorkReport> run() {
    std::optional<ProgressWatch> watch;
    if (options_.watchProgress) watch.emplace(device_.progress());
    const std::int64_t start = monotonicNs();
    const Status status = options_.mode == WorkOptions::Mode::Steady ? steady() : bursts();
    if (!status) return status.error();
    report_.wallNs = monotonicNs() - start;
    report_.marks = control_.marks();
    if (watch) {
      watch->stop();
      report_.progressSeen = watch->seen();
      report_.standstills = watch->standstills();
    }
    const Result<std::size_t> wrong = device_.verifyAll();
    if (!wrong) return wrong.error();
    report_.wrong += *wrong;
    return std::move(report_);
  }

 private:
  Status steady() {
    while (control_.awaitGo()) {
      if (Status status = phase(); !status) return status;
    }
    return ok();
  }

  // From here to the next pause or the end.
  Status phase() {
    Phase phase;
    phase.startNs = monotonicNs();
    const std::size_t depth = options_.gapMs > 0 ? 1 : kDepth;
    const auto gapNs = static_cast<std::int64_t>(options_.gapMs * kNsPerMs);
    std::deque<InFlight> queue;
    for (;;) {
      while (queue.size() < depth && !control_.ended() && !control_.paused()) {
        queue.emplace_back();
        if (Status status = submit(queue.back()); !status) return status;
      }
      if (queue.empty()) break;
      if (Status status = await(queue.front()); !status) return status;
      phase.kernels++;
      phase.loops += queue.front().loops;
      phase.endNs = queue.front().endNs;
      queue.pop_front();
      if (gapNs > 0) control_.sleep(gapNs);
    }
    if (phase.kernels > 0) report_.phases.push_back(phase);
    return ok();
  }

  Status bursts() {
    while (control_.sleep(static_cast<std::int64_t>(draw_.from(options_.idleMs) * kNsPerMs)) &&
           control_.awaitGo()) {
      const Range half{options_.burstKernels.low, options_.burstKernels.high + 1};
      const auto count = std::clamp(static_cast<std::size_t>(draw_.from(half)), std::size_t{1},
                                    static_cast<std::size_t>(half.high));
      std::deque<InFlight> queue(count);
      for (InFlight& work : queue) {
        if (Status status = submit(work); !status) return status;
      }
      for (InFlight& work : queue) {
        if (Status status = await(work); !status) return status;
      }
      report_.bursts.push_back({queue.front().submitNs, queue.front().startNs, queue.back().endNs,
                                static_cast<std::uint32_t>(count)});
    }
    return ok();
  }

  Status submit(InFlight& work) {
    const double loops = draw_.from(options_.kernelMs) * report_.loopsPerMs;
    return device_.submit(static_cast<std::uint32_t>(std::clamp(loops, 1.0, double{kLoopsMax})),
                          work);
  }

  Status await(InFlight& work) {
    if (Status status = device_.await(work); !status) return status;
    report_.kernels++;
    report_.loops += work.loops;
    report_.kernelNs += work.endNs - work.startNs;
    report_.itemsChecked += work.items.size();
    report_.wrong += work.wrong;
    if (work.wrong == 0) control_.finished(work.loops);
    return ok();
  }

  WorkDevice& device_;
  const WorkOptions& options_;
  WorkControl& control_;
  Draw draw_;
  WorkReport report_;
};

}  // namespace

double Draw::from(Range range) {
  state_ += 0x9e3779b97f4a7c15;  // splitmix64
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  const double unit = static_cast<double>(z >> 11) / static_cast<double>(std::uint64_t{1} << 53);
  return range.low + unit * (range.high - range.low);
}

Result<double> calibrate(WorkDevice& device) {
  constexpr double kTargetMs = 20;
  constexpr int kRounds = 8;
  double loops = 256;
  double best = 0;
  for (int good = 0; good < kRounds;) {
    InFlight work;
    if (Status status = device.submit(static_cast<std::uint32_t>(loops), work); !status) {
      return status.error();
    }
    if (Status status = device.await(work); !status) return status.error();
    if (work.wrong != 0) {
      return fail(ErrorCode::Corrupt, "the device gave " + std::to_string(work.wrong) +
                                          " wrong results while it was measured");
    }
    const double ms = std::max(0.001, static_cast<double>(work.endNs - work.startNs) / kNsPerMs);
    if (ms < kTargetMs / 2 && loops < kLoopsMax / 64.0) {
      loops *= std::min(8.0, kTargetMs / ms);
      continue;
    }
    best = std::max(best, loops / ms);
    good++;
  }
  return best;
}

Result<WorkReport> runWork(WorkDevice& device, const WorkOptions& options, double loopsPerMs,
                           WorkControl& control) {
  return Runner(device, options, loopsPerMs, control).run();
}

}  // namespace qgpu::demo
