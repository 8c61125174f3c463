#pragma once
// A client of several schedulers that share an etcd: it submits tasks at a steady rate and ends
// the oldest ones again, at whichever of them acts, and asks anew with the same request id where
// one is gone before it answered. It remembers what was acknowledged, to be compared in the end
// with what the cluster has.

#include <capnp/rpc-twoparty.h>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/units.h"
#include "schema/scheduler.capnp.h"

namespace qgpu::bench {

class FollowingClient {
 public:
  // `addresses` as dial() takes them; beyond `standing` tasks each submit ends the oldest two.
  FollowingClient(std::vector<std::string> addresses, std::size_t standing);
  ~FollowingClient();
  FollowingClient(const FollowingClient&) = delete;
  FollowingClient& operator=(const FollowingClient&) = delete;

  // Submits `perSecond` until `over` says so, which is asked each 5 ms.
  void run(std::uint32_t perSecond, const std::function<bool()>& over);
  // Until every call has its answer.
  void rest();

  // Which scheduler answered last, by its place in `addresses`, and how many answers it gave since
  // another one had.
  std::size_t acting() const { return answering_; }
  std::uint64_t answersInRow() const { return inRow_; }

  std::size_t underWay() const { return underWay_; }      // calls without an answer
  std::uint64_t submitted() const { return submitted_; }  // acknowledged
  std::uint64_t erased() const { return erased_.size(); }
  std::vector<Nanos>& latencies() { return latencies_; }  // of submits, from when they were due
  // A refusal that asking again does not mend; empty: none.
  const std::string& refused() const { return refused_; }
  // What of the tasks that the cluster has now was not acknowledged, or was acknowledged and is not
  // there; empty: nothing. After rest().
  std::string differences();

 private:
  struct Line;
  struct Call {
    std::uint64_t erase = 0;  // a task; 0: a submit
    std::uint64_t request = 0;
    Nanos due{0};
    bool again = false;  // it was asked before, and what it did then is not known
  };

  // A connection: its scheduler may be asked before it stands.
  struct Way {
    std::size_t at;
    kj::Own<Line> line;
    kj::Maybe<schema::Scheduler::Client> scheduler;
  };
  using WayPtr = std::shared_ptr<Way>;

  WayPtr way(std::size_t at);
  void start(Call call);
  // Whether it was answered, for good or ill; otherwise it has to be asked again.
  kj::Promise<bool> attempt(Call call, std::size_t at);
  kj::Promise<bool> submit(Call call, const WayPtr& by);
  kj::Promise<bool> erase(Call call, const WayPtr& by);
  bool failed(const WayPtr& by, const kj::Exception& why);
  void answered(std::size_t at);
  void later(Call call);  // again, once one acts
  void waits(Call call);  // not asked yet, or again
  void look();            // for one that acts, with the oldest call that waits

  struct Errors final : kj::TaskSet::ErrorHandler {
    void taskFailed(kj::Exception&& exception) override;
  };

  const std::vector<std::string> addresses_;
  const std::size_t standing_;
  std::optional<std::size_t> acting_ = 0;  // whom calls go to; nothing: they wait
  std::size_t answering_ = 0, looksAt_ = 0;
  std::uint64_t inRow_ = 0;
  std::deque<Call> waiting_;
  bool looks_ = false;
  std::size_t underWay_ = 0;
  std::uint64_t lastRequest_ = 0, submitted_ = 0;
  std::deque<std::uint64_t> live_;  // acknowledged, oldest first
  std::set<std::uint64_t> erased_;
  std::vector<Nanos> latencies_;
  std::string refused_;
  kj::AsyncIoContext io_;
  Errors errors_;
  std::vector<WayPtr> ways_, gone_;  // gone: closed where nothing runs that came by them
  kj::TaskSet calls_{errors_};
};

}  // namespace qgpu::bench
