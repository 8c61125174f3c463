#pragma once
// What the dispatcher's bench measures, once for qgpu and once for CAF: the same traffic between
// actors that do nothing else. Each function is one run; the caller takes medians.

#include <cstdint>
#include <vector>

namespace qgpu::bench {

// Windows of the cross-thread runs: a sender has at most this many messages unacknowledged.
inline constexpr std::uint64_t kWindow = 256;
inline constexpr int kFanInSenders = 4;
inline constexpr std::int64_t kLatencyGapNs = 200'000;

enum class Placement : std::uint8_t {
  Together,  // qgpu: one loop; CAF: its pool, of one thread for answers, of two for a fan-in
  Apart,     // qgpu: two loops; CAF: detached, a thread for each actor
};

struct CafBench {
  // Messages a second of two actors that answer each other.
  static double pingPong(Placement placement, std::uint64_t roundTrips);
  // Messages a second from `senders` actors to one, each with a window of kWindow.
  static double fanIn(Placement placement, int senders, std::uint64_t messages);
  // Nanoseconds from send to handler, of messages that are far apart.
  static std::vector<std::int64_t> oneWay(int messages);
};

struct QgpuBench {
  static double pingPong(Placement placement, std::uint64_t roundTrips);
  static double fanIn(int senders, std::uint64_t messages);
  static std::vector<std::int64_t> oneWay(int messages);
};

std::int64_t nowNs();

// Which CPU a thread (and those that it starts) may use. Waking a thread on another CPU costs ten
// times as much as on the same one, so both systems get the same placement: receivers of messages
// from another thread on the first CPU, their senders on the second.
enum class Cpu : std::uint8_t { Any, First, Second };
void useCpu(Cpu cpu);

}  // namespace qgpu::bench
