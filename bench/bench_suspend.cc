// Claim: of the millisecond in which an online task gets a card that suspends by rm, the manager's
// own way from a hold to "stopped" takes a small part; the rest is the driver's. A loop asks the
// suspender's thread to hold a task and hears the answer on itself; the driver answers at once.
// Beside it, in the same run, the limit: two threads that wake each other by eventfd. Prints one
// JSON line.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "services/cards/suspend/suspender.h"

namespace qgpu {
namespace {

constexpr int kRounds = 20'000;
constexpr std::uint32_t kChannels = 24;  // of a task, as a program with some streams has

class InstantCalls final : public suspend::Calls {
 public:
  void process(std::uint32_t, int) override {}
  void forget(std::uint32_t) override {}
  suspend::Outcome carryOut(const suspend::Order&, suspend::SuspendMethod) override {
    return {suspend::Answer::kDone, {}, ""};
  }
};

struct Times {
  double p50, p99;
};

Times timesOf(std::vector<Nanos> took) {
  std::sort(took.begin(), took.end());
  const auto us = [&](std::size_t permille) {
    return static_cast<double>(took[took.size() * permille / 1'000].value) / 1'000;
  };
  return {us(500), us(990)};
}

// From hold() to the news of it on this loop.
Times holds(suspend::SuspendMethod method) {
  Loop loop;
  std::vector<Nanos> took;
  Nanos from{0};
  std::uint32_t number = 0;
  suspend::Suspender* card = nullptr;
  const auto ask = [&] {
    from = loop.now();
    card->hold(1, ++number);
  };
  suspend::Suspender suspender(std::make_unique<InstantCalls>(), method, [&](suspend::News) {
    loop.post([&] {
      took.push_back(loop.now() - from);
      if (took.size() == kRounds) return loop.stop();
      card->release(1);
      ask();
    });
  });
  card = &suspender;
  for (std::uint32_t i = 0; i < kChannels; i++) card->made(1, {1, i, 1 + i / 8, 1, 1, 3}, false);
  ask();
  loop.run();
  return timesOf(std::move(took));
}

void ring(int fd) {
  const std::uint64_t one = 1;
  if (::write(fd, &one, sizeof one) != sizeof one) std::abort();
}

void await(int fd) {
  std::uint64_t count = 0;
  if (::read(fd, &count, sizeof count) != sizeof count) std::abort();
}

// There and back, and nothing else.
Times wakes() {
  const int there = ::eventfd(0, EFD_CLOEXEC), back = ::eventfd(0, EFD_CLOEXEC);
  std::thread other([&] {
    for (int i = 0; i < kRounds; i++) {
      await(there);
      ring(back);
    }
  });
  std::vector<Nanos> took;
  for (int i = 0; i < kRounds; i++) {
    const Nanos from = monotonicNow();
    ring(there);
    await(back);
    took.push_back(monotonicNow() - from);
  }
  other.join();
  ::close(there);
  ::close(back);
  return timesOf(std::move(took));
}

int run() {
  const Times limit = wakes();
  const Times one = holds(suspend::SuspendMethod::kDisable);
  const Times committed = holds(suspend::SuspendMethod::kDisablePreempt);
  std::printf(
      "{\"bench\":\"suspend\",\"rounds\":%d,\"channels\":%u,\"hold_p50_us\":%.1f,"
      "\"hold_p99_us\":%.1f,\"committed_p50_us\":%.1f,\"committed_p99_us\":%.1f,"
      "\"two_wakes_p50_us\":%.1f,\"two_wakes_p99_us\":%.1f,\"of_the_millisecond\":%.4f}\n",
      kRounds, kChannels, one.p50, one.p99, committed.p50, committed.p99, limit.p50, limit.p99,
      committed.p50 / 1'000);
  return 0;
}

}  // namespace
}  // namespace qgpu

int main() {
  return qgpu::run();
}
