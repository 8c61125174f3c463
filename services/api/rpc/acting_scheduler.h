#pragma once
// The RequestSink of a scheduler that stands by: what only reads is asked of the scheduler that
// acts, over its RPC, and what would change something is answered with whom to ask instead, since
// rights are a matter between that one and who asks. Once this scheduler acts itself, all goes to
// its own actor.
//
// Kept here: C2 (each question ends in one answer: the acting scheduler's, why there is none, or a
// deadline), C5 (a bounded number is under way, refusal is visible), C7 (answers are bounded).

#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/function.h>
#include <kj/timer.h>
#include <string>

#include "schema/scheduler.capnp.h"
#include "services/api/commands/cluster_actor_client.h"

namespace qgpu {

struct ActingSchedulerLimits {
  std::size_t askedMax = 256;  // questions under way
  Nanos within = seconds(10);  // for an answer
  Nanos settles = seconds(3);  // for one that acts; below what a node waits to be joined
};

class ActingScheduler final : public RequestSink, private kj::TaskSet::ErrorHandler {
 public:
  // `network` and `timer` outlive stop(), or this.
  ActingScheduler(kj::Network& network, kj::Timer& timer, ActingSchedulerLimits limits = {});
  ~ActingScheduler() noexcept(false);

  // `client` hears the answers and outlives stop(), or this. `tls` is for its connections.
  void start(ClusterActorClient& client, kj::Maybe<kj::TlsContext&> tls);
  void setTls(kj::TlsContext& tls) { tls_ = tls; }
  void stop();

  // HOST:PORT of the scheduler that acts; empty: none does. `ended` is called once its process has
  // ended (listener_end.h), if another one is not set before that.
  void setActing(const std::string& address, kj::Function<void()> ended);
  const std::string& acting() const { return acting_; }
  // Done once one acts, this or another one, or after `settles`: who waits here comes with the
  // first of it, and asks nobody again and again meanwhile.
  kj::Promise<void> settled();
  // From now on this scheduler acts: all goes to `own`, which outlives this.
  void setOwn(RequestSink& own);

  SendResult send(Build build) override;

 private:
  struct Link;
  struct Settling {
    kj::Own<kj::PromiseFulfiller<void>> done;
    kj::ForkedPromise<void> promise;
  };

  kj::Promise<void> question(kj::Own<capnp::MallocMessageBuilder> request);
  schema::Scheduler::Client calls();
  void refuse(std::uint64_t corr, const Error& why);
  void taskFailed(kj::Exception&& exception) override;
  void leave();
  void settle();

  kj::Network& network_;
  kj::Timer& timer_;
  const ActingSchedulerLimits limits_;
  kj::Maybe<kj::TlsContext&> tls_;
  kj::Maybe<ClusterActorClient&> client_;
  kj::Maybe<RequestSink&> own_;
  std::string acting_;
  std::size_t open_ = 0;
  kj::Own<Link> link_;  // none: nobody has asked, or the last one is over
  kj::Own<kj::TaskSet> questions_;
  kj::Maybe<Settling> settling_;            // somebody waits for that
  kj::Promise<void> end_ = kj::NEVER_DONE;  // of the process that acts
};

}  // namespace qgpu
