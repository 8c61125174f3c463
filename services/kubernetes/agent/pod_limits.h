#pragma once
// Pods under limits that NVIDIA's driver itself keeps (services/cards/memory_limiter.h): on
// each of its cards a pod's cgroup has the sum of what its tasks may have there. The driver is told
// before a container with such a task starts, again as further ones start and end, and by each
// manager anew for the pods that it finds.
//
// It is a net beneath the library, which counts each task by itself. So nothing waits for the
// driver longer than `patience`, a pod starts whatever it answers, and what went wrong is logged,
// once for each reason, and tried again. A task that has its cards to itself is not limited.

#include <cstdint>
#include <kj/async-io.h>
#include <kj/async.h>
#include <kj/timer.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "schema/types.capnp.h"
#include "services/cards/memory_limiter.h"

namespace qgpu {

struct PodLimitsConfig {
  std::vector<std::string> mounts;  // where cgroups of version 2 are mounted
  Nanos patience = seconds(5);      // more than the limiter takes for one order
  Nanos again = seconds(60);        // before what the driver refused is ordered again
};

class PodLimits final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr std::size_t kPodsMax = 4096;  // more than kubelet runs on any node

  // Where this process has them now; the driver looks below /sys/fs/cgroup, so that comes first.
  static std::vector<std::string> mountsNow();

  // All outlive it; `io` is its loop's.
  PodLimits(MemoryLimiter limiter, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, Log& log,
            PodLimitsConfig config);
  PodLimits(const PodLimits&) = delete;
  PodLimits& operator=(const PodLimits&) = delete;

  // The pod of this uid has this task from now on. Done when the driver answered, or did not in
  // time, or has nothing new to be told; never fails. Without a cgroup the pod waits for the next
  // call.
  kj::Promise<void> hold(const std::string& uid, schema::TaskInfo::Reader task);
  // These are all tasks of the node: no pod has another one any more.
  void keep(const std::set<std::uint64_t>& tasks);

 private:
  using Cards = std::map<std::string, Bytes>;  // by UUID
  struct Pod {
    std::map<std::uint64_t, Cards> tasks;
    std::set<std::string> limited;  // cards that had a limit at any time
    Cards told;
    bool failed = false;  // what was told last, at
    kj::TimePoint toldAt = kj::origin<kj::TimePoint>();
    Cards wanted() const;
  };
  struct Waiting {
    std::string uid;
    kj::Own<kj::PromiseFulfiller<void>> done;
  };

  kj::Promise<void> tell(const std::string& uid, Pod& pod);
  std::string cgroupOf(const std::string& uid) const;
  void makeRoom();
  kj::Promise<void> read();
  void onAnswer(const LimitAnswer& answer);
  void say(const std::string& uid, const std::string& why);
  void taskFailed(kj::Exception&& failure) override;

  const MemoryLimiter limiter_;
  kj::Timer& timer_;
  Log& log_;
  const PodLimitsConfig config_;
  kj::Own<kj::AsyncInputStream> answers_;
  std::vector<char> packet_ = std::vector<char>(MemoryLimiter::kPacketMax);
  bool over_ = false;  // the limiter is gone
  std::uint64_t lastOrder_ = 0;
  std::map<std::string, Pod> pods_;           // by uid
  std::map<std::uint64_t, Waiting> waiting_;  // by order
  std::set<std::string> said_;                // reasons
  kj::TaskSet tasks_{*this};                  // last
};

}  // namespace qgpu
