// Keeps the card busy, or asks it for a moment and says how long that took.

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <string>
#include <vector>

#include "tests/gpu/ranks.h"
#include "tests/gpu/work_late.h"

namespace qgpu::gpu {
namespace {

constexpr std::uint64_t kMatrix = 512;  // rows
constexpr std::uint64_t kTellNs = 50'000'000;
constexpr std::uint64_t kNeverNs =
    60'000'000'000;  // a kernel that has not begun by then never will

double us(std::uint64_t ns) {
  return static_cast<double>(ns) / 1'000;
}

// "p50", "p99", "p999" and "max" of times in microseconds, as JSON fields with a prefix.
std::string figures(const char* prefix, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](std::size_t permille) { return rank(times, permille); };
  char text[200];
  std::snprintf(text, sizeof text,
                "\"%s_p50_us\":%.1f,\"%s_p99_us\":%.1f,\"%s_p999_us\":%.1f,\"%s_max_us\":%.1f",
                prefix, at(500), prefix, at(990), prefix, at(999), prefix, times.back());
  return text;
}

// What a burning program keeps in its stream.
class Burner {
 public:
  Burner(Work& work, const Options& options);
  Result put();                                     // one batch
  std::uint64_t kernels() const { return batch_; }  // of a batch

 private:
  Result one(Str stream);

  Work& work_;
  const std::string how_;
  const std::uint64_t iterations_, batch_;
  volatile std::uint64_t* progress_;
  Ptr meeting_ = 0, matrices_ = 0;
  Exec graph_ = nullptr;
};

Burner::Burner(Work& work, const Options& options)
    : work_(work),
      how_(options.text("how", "plain")),
      iterations_(options.number("iterations", 1'000'000)),
      batch_(options.number("batch", 4)),
      progress_(work.hostWord()) {
  constexpr Size kBytes = kMatrix * kMatrix * 4;
  QGPU_MUST(work.driver.cuMemAlloc_v2(&meeting_, 64));
  QGPU_MUST(work.driver.cuMemAlloc_v2(&matrices_, 3 * kBytes));
  QGPU_MUST(work.driver.cuMemsetD8_v2(matrices_, 0, 3 * kBytes));
  if (how_ != "graph") return;
  Graph graph = nullptr;
  QGPU_MUST(work.driver.cuStreamBeginCapture_v2(work.stream, kCaptureThreadLocal));
  for (std::uint64_t i = 0; i < batch_; ++i) {
    QGPU_MUST(work.spin(iterations_, progress_, work.stream));
  }
  QGPU_MUST(work.driver.cuStreamEndCapture(work.stream, &graph));
  QGPU_MUST(work.driver.cuGraphInstantiateWithFlags(&graph_, graph, 0));
}

Result Burner::one(Str stream) {
  constexpr Size kBytes = kMatrix * kMatrix * 4;
  constexpr std::uint64_t kMeetings = 16;  // of a cooperative kernel
  if (how_ == "cooperative") {
    return work_.together(kMeetings, iterations_ / kMeetings, meeting_, stream);
  }
  if (how_ == "multiply") {
    return work_.multiply(matrices_, matrices_ + kBytes, matrices_ + 2 * kBytes, kMatrix, stream);
  }
  return work_.spin(iterations_, progress_, stream);
}

Result Burner::put() {
  if (graph_) return work_.driver.cuGraphLaunch(graph_, work_.stream);
  Result rc = kSuccess;
  for (std::uint64_t i = 0; i < batch_ && rc == kSuccess; ++i) rc = one(work_.stream);
  return rc;
}

}  // namespace

// --how plain|graph|cooperative|multiply --iterations N --batch N, for --seconds N or --until FILE,
// from when --from FILE exists. Two batches are in the stream at any time. Says how many kernels
// ended in its time, and the longest wait for a batch; with --tell 1 also every 50 ms.
int burnWork(const Options& options) {
  Work work;
  Burner burner(work, options);
  TwoInFlight two(work);
  const std::uint64_t limit = options.number("seconds", 3'600) * 1'000'000'000u;
  QGPU_MUST(burner.put());  // what compiles and warms up is over
  QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
  std::puts("burns");
  std::fflush(stdout);
  while (!exists(options.text("from", "/"))) ::poll(nullptr, 0, 1);
  const std::uint64_t from = nowNs();
  const bool tells = options.number("tell", 0) != 0;
  std::uint64_t kernels = 0, longest = 0, last = from, told = from;
  for (;;) {
    QGPU_MUST(burner.put());
    if (!two.put()) continue;
    const std::uint64_t now = nowNs();
    longest = std::max(longest, now - last);
    last = now;
    kernels += burner.kernels();
    if (tells && now - told >= kTellNs) {
      std::printf("made %llu\n", static_cast<unsigned long long>(kernels));
      std::fflush(stdout);
      told = now;
    }
    if (now - from >= limit || endAsked(options)) break;
  }
  QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
  std::printf("{\"kernels\":%llu,\"seconds\":%.6f,\"longest_us\":%.1f}\n",
              static_cast<unsigned long long>(kernels), static_cast<double>(last - from) / 1e9,
              us(longest));
  return 0;
}

// --iterations N --count N --every MS: a kernel now and then. `start` is from the launch to the
// kernel's first store, as a processor that looks all the time sees it; `end` to the kernel's end.
// One at least, also where --until FILE is there already. With --each 1 also every start.
int probeWork(const Options& options) {
  const std::uint64_t iterations = options.number("iterations", 20'000);
  const std::uint64_t count = options.number("count", 100);
  const auto pause = static_cast<int>(options.number("every", 20));
  Work work;
  volatile std::uint64_t* progress = work.hostWord();
  QGPU_MUST(work.spin(iterations, progress, work.stream));
  QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
  std::vector<double> starts, ends;
  while (starts.empty() || (starts.size() < count && !endAsked(options))) {
    ::poll(nullptr, 0, pause);
    const std::uint64_t before = *progress, from = nowNs();
    QGPU_MUST(work.spin(iterations, progress, work.stream));
    while (*progress == before) {
      if (nowNs() - from > kNeverNs) QGPU_MUST(kNotReady);
    }
    starts.push_back(us(nowNs() - from));
    QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
    ends.push_back(us(nowNs() - from));
  }
  std::string each;
  if (options.number("each", 0) != 0) {
    for (const double start : starts) each += (each.empty() ? "" : ",") + std::to_string(start);
    each = ",\"starts_us\":[" + each + "]";
  }
  std::printf("{\"count\":%zu,%s,%s%s}\n", starts.size(), figures("start", starts).c_str(),
              figures("end", ends).c_str(), each.c_str());
  return 0;
}

// --rounds N --launches N, two of them in the stream at any time, or until --until FILE: a sum of
// as many launches as it had, whatever happened in between. With --tell 1 each is told as it ends;
// with --late N there is a LateWork beside, from when --late-from FILE exists, and heard of once
// --late-heard FILE does.
int verifyWork(const Options& options) {
  const std::uint64_t rounds = options.number("rounds", 1'000'000);
  const std::uint64_t most = options.number("launches", 1);
  const bool tells = options.number("tell", 0) != 0;
  Work work;
  Ptr sum = 0;
  QGPU_MUST(work.driver.cuMemAlloc_v2(&sum, 8));
  QGPU_MUST(work.driver.cuMemsetD8_v2(sum, 0, 8));
  TwoInFlight two(work);
  LateWork late(work.driver, {options.number("late", 0), rounds, options.text("late-from", "/"),
                              options.text("late-heard", "/")});
  std::puts("verifies");
  std::fflush(stdout);
  const std::uint64_t from = nowNs();
  std::uint64_t launches = 0;
  for (; launches < most && !endAsked(options); ++launches) {
    // Another number of rounds each time: a launch that ran twice or never shows.
    QGPU_MUST(work.mix(rounds + launches, sum, work.stream));
    if (!two.put() || !tells) continue;
    std::printf("made %llu\n", static_cast<unsigned long long>(launches));
    std::fflush(stdout);
  }
  QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
  const std::uint64_t took = nowNs() - from;
  std::uint64_t value = 0;
  QGPU_MUST(work.driver.cuMemcpyDtoH_v2(&value, sum, sizeof value));
  std::printf("{\"sum\":\"%016llx\",\"launches\":%llu,\"seconds\":%.6f,%s}\n",
              static_cast<unsigned long long>(value), static_cast<unsigned long long>(launches),
              static_cast<double>(took) / 1e9, late.finish().c_str());
  return 0;
}

// --launches N: what an empty launch costs the thread that makes it, the median of ten parts.
int launchWork(const Options& options) {
  constexpr std::uint64_t kParts = 10, kDeep = 256;  // fewer than a stream holds
  const std::uint64_t each = options.number("launches", 1'000'000) / kParts;
  Work work;
  std::vector<double> costs;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    std::uint64_t spent = 0, made = 0;
    for (; made < each; made += kDeep) {
      const std::uint64_t from = nowNs();
      for (std::uint64_t i = 0; i < kDeep; ++i) {
        QGPU_MUST(work.driver.cuLaunchKernel(work.kernels.nothing, 1, 1, 1, 1, 1, 1, 0, work.stream,
                                             nullptr, nullptr));
      }
      spent += nowNs() - from;
      QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
    }
    costs.push_back(static_cast<double>(spent) / static_cast<double>(made));
  }
  std::sort(costs.begin(), costs.end());
  std::printf("{\"launch_ns\":%.2f}\n", costs[costs.size() / 2]);
  return 0;
}

// How many iterations of each kernel a millisecond of the bare card has.
int calibrateWork(const Options&) {
  Work work;
  volatile std::uint64_t* progress = work.hostWord();
  Ptr sum = 0;
  QGPU_MUST(work.driver.cuMemAlloc_v2(&sum, 64));
  const auto timed = [&](std::uint64_t n, auto put) {
    std::uint64_t best = ~std::uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t from = nowNs();
      QGPU_MUST(put(n));
      QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
      best = std::min(best, nowNs() - from);
    }
    return best;
  };
  // The difference of two lengths: what a launch costs is in both.
  const auto perMs = [&](auto put) {
    constexpr std::uint64_t kShort = 1'000'000, kLong = 8'000'000;
    const std::uint64_t shorter = timed(kShort, put), longer = timed(kLong, put);
    return (kLong - kShort) * 1'000'000 / std::max<std::uint64_t>(longer - shorter, 1);
  };
  const auto spin = perMs([&](std::uint64_t n) { return work.spin(n, progress, work.stream); });
  const auto mix = perMs([&](std::uint64_t n) { return work.mix(n, sum, work.stream); });
  std::printf("{\"spin_per_ms\":%llu,\"mix_per_ms\":%llu}\n", static_cast<unsigned long long>(spin),
              static_cast<unsigned long long>(mix));
  return 0;
}

}  // namespace qgpu::gpu
