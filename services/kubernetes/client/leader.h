#pragma once
// Which of several schedulers of a cluster acts: the one that holds a Lease
// (coordination.k8s.io/v1) and keeps renewing it. The rules are those of client-go, so that other
// tools read it.
//
// A holder that could not renew for `renewMost` stops acting (holds()) before anybody else may
// begin, which is `duration` after its last renewal as others saw it, by their own clocks: wall
// clocks of two machines are never compared. It goes on once it has renewed, since then nobody else
// began. Whoever sees another holder has lost, and does not act again in this life: a restart is
// the tested way back.

#include <kj/async.h>
#include <string>

#include "runtime/log.h"
#include "services/kubernetes/client/api_client.h"

namespace qgpu {

struct LeaseOptions {
  std::string nameSpace = "kube-system";
  std::string name = "qgpu-scheduler";
  std::string identity;  // of this process, unlike any other's
  Nanos duration = seconds(15);
  Nanos renewMost = seconds(10);
  Nanos retryEvery = seconds(2);
};

class LeaderElection {
 public:
  enum class State : std::uint8_t { Waiting, Leading, Over };

  struct Calls {
    std::function<void()> led;      // once, when it leads
    std::function<void()> lost;     // once, when another does after it
    std::function<void()> follows;  // at each look while another leads and it waits
  };

  // `api` and `log` outlive it.
  LeaderElection(ApiClient& api, LeaseOptions options, Log& log, Calls calls);
  LeaderElection(const LeaderElection&) = delete;
  LeaderElection& operator=(const LeaderElection&) = delete;

  void start();
  State state() const { return state_; }
  // It leads, and nobody else can: to be asked before each decision that others would see.
  bool holds() const;
  const std::string& holder() const { return seen_.holder; }  // as last seen

  // Gives the lease back, so that another may act at once: for a clean stop. Also one that an
  // earlier life of this identity holds, which this one has not taken over yet. The caller bounds
  // the time.
  kj::Promise<void> release();

 private:
  struct Lease {
    std::string holder;
    std::string renewed;  // as its holder wrote it; only compared for equality
    std::string acquired;
    std::string version;
    std::uint64_t transitions = 0;
  };

  kj::Promise<void> run();
  kj::Promise<void> tryOnce();
  kj::Promise<void> write(Lease lease, bool create);
  kj::Promise<void> giveBack();
  void renewed();
  void failed(const ApiAnswer& answer);
  std::string path() const;
  std::string body(const Lease& lease) const;
  static bool read(const std::string& body, Lease& to);

  ApiClient& api_;
  const LeaseOptions options_;
  Log& log_;
  const Calls calls_;
  State state_ = State::Waiting;
  Lease seen_;
  kj::TimePoint seenAt_ = kj::origin<kj::TimePoint>();     // when it last changed
  kj::TimePoint renewedAt_ = kj::origin<kj::TimePoint>();  // before the call that renewed it
  kj::TimePoint askedAt_ = kj::origin<kj::TimePoint>();
  bool warned_ = false;
  kj::Promise<void> running_ = nullptr;  // last
};

}  // namespace qgpu
