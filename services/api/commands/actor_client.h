#pragma once
// The one way from the outside to the actor that a daemon is about: the node actor of a manager,
// the scheduler actor of a scheduler. A call becomes a request message with a correlation id; the
// reply that carries the same id comes back as a promise. Admin socket, RPC and metrics share one
// client, which lives on the loop beside that actor and is registered there as an adapter, so that
// replies and events reach handle(). What differs between the two is in `Api`: NodeApi in
// node_actor_client.h, ClusterApi in cluster_actor_client.h.
//
// Kept here: C2 (each request ends in one answer: the actor's, a refusal, or a deadline), C5 (a
// bounded number of calls is outstanding, every watcher's queue is bounded, refusal is visible).

#include <capnp/message.h>
#include <cstdint>
#include <deque>
#include <kj/async.h>
#include <kj/function.h>
#include <kj/timer.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "runtime/result.h"
#include "schema/envelope.capnp.h"

namespace qgpu {

// Who is asking, as the kernel told it or, over TLS, a certificate.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  bool mayChange = false;  // root, the daemon's own user, group qgpu, or whom the CA vouches for
  std::string name{};      // common name of its certificate; empty where it showed none
};

// How a request leaves: an outlet of the loop in the daemon, a scripted actor in tests.
class RequestSink {
 public:
  using Build = kj::FunctionParam<void(schema::Envelope::Builder)>;
  // Puts one message into the actor's ordinary lane, or refuses where that is full.
  virtual SendResult send(Build build) = 0;

 protected:
  ~RequestSink() = default;
};

// Beyond outstandingMax and watchersMax a call is refused as Overloaded.
struct ActorClientLimits {
  std::size_t outstandingMax = 256;  // calls that wait for the actor
  std::size_t reserved = 16;         // of these and of watchersMax, for who may change
  Nanos deadline = seconds(5);       // then a call fails as unavailable
  std::size_t watchersMax = 64;
  std::size_t watcherQueueMax = 1024;  // events that a watcher may lag behind
};

template <typename Api>
class Feed;

// Each daemon has one, on the loop of its actor; all methods are called there.
template <typename Api>
class ActorClient final : public Actor {
  struct State;

 public:
  using Limits = ActorClientLimits;
  using EventCopy = kj::Own<capnp::MallocMessageBuilder>;  // root: schema::Event

  // A copy of one reply, which the asker owns.
  class Answer {
   public:
    explicit Answer(typename Api::Reply::Reader reply);
    typename Api::Reply::Reader reply() const;

   private:
    std::unique_ptr<capnp::MallocMessageBuilder> message_;
  };

  // One watcher's bounded queue of events. Dropping it ends the watch.
  class Watcher {
   public:
    Watcher(ActorClient& actor, std::size_t queueMax)
        : state_(kj::addRef(*actor.state_)), queueMax_(queueMax) {}
    ~Watcher() {
      if (state_->actor != nullptr) state_->actor->forget(*this);
    }
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    // The next event; nothing once the watcher lagged behind by more than its queue and everything
    // queued has been read. One next() at a time.
    kj::Promise<kj::Maybe<EventCopy>> next();

   private:
    friend class ActorClient;
    void push(schema::Event::Reader event);

    kj::Own<State> state_;
    const std::size_t queueMax_;
    bool lagged_ = false;
    std::deque<EventCopy> queue_;
    kj::Maybe<kj::Own<kj::PromiseFulfiller<kj::Maybe<EventCopy>>>> reader_;
  };

  // `sink` and `timer` outlive the client. What it gave out may be destroyed after it: the RPC
  // system lets go of a cancelled call only in a later turn of the loop. It must not be used then.
  ActorClient(RequestSink& sink, kj::Timer& timer) : ActorClient(sink, timer, Api::limits()) {}
  ActorClient(RequestSink& sink, kj::Timer& timer, Limits limits);
  ~ActorClient() noexcept;
  ActorClient(const ActorClient&) = delete;
  ActorClient& operator=(const ActorClient&) = delete;

  // `fill` sets the request's union. The promise gives the reply, or the actor's own error, or
  // Overloaded (mailbox full, too many outstanding), or Unavailable (deadline). It never throws.
  using Fill = kj::FunctionParam<void(typename Api::Request::Builder)>;
  kj::Promise<Result<Answer>> ask(const Peer& peer, Fill fill);

  // Events from now on, in the actor's order. Overloaded where there are watchersMax already.
  kj::Promise<Result<kj::Own<Watcher>>> watch(const Peer& peer);

  // Replies and events of the actor. Late or unknown replies are counted and dropped.
  void handle(schema::Envelope::Reader message, Turn& turn) override;
  void onReply(typename Api::Reply::Reader reply);
  void onEvent(schema::Event::Reader event);

  // For /metrics.
  std::size_t outstanding() const { return state_->waiting.size(); }
  std::size_t watchers() const { return watchers_.size(); }
  std::uint64_t refused() const { return refused_; }
  std::uint64_t late() const { return late_; }

 private:
  using Fulfiller = kj::PromiseFulfiller<Result<Answer>>;
  struct State : public kj::Refcounted {
    explicit State(ActorClient& d) : actor(&d) {}
    ActorClient* actor;  // null once it is gone
    std::map<std::uint64_t, kj::Own<Fulfiller>> waiting;
  };

  std::size_t reservedAgainst(const Peer& peer) const {
    return peer.mayChange ? 0 : limits_.reserved;
  }
  SendResult sendRequest(const Peer& peer, std::uint64_t corr, Fill fill);
  void forget(Watcher& watcher);

  RequestSink& sink_;
  kj::Timer& timer_;
  const Limits limits_;
  std::uint64_t lastCorr_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t late_ = 0;
  kj::Own<State> state_;
  std::vector<Watcher*> watchers_;
};

// A watcher that starts after event `since` and heals gaps: what was told while this client could
// not take it is asked again, so that a reader sees each event once and in order.
template <typename Api>
class Feed {
 public:
  using EventCopy = typename ActorClient<Api>::EventCopy;

  // Opens the watch first and then asks for the past, so that nothing falls in between.
  // `since` 0: from now on only.
  static kj::Promise<Result<kj::Own<Feed>>> open(ActorClient<Api>& actor, const Peer& peer,
                                                 std::uint64_t since);

  Feed(ActorClient<Api>& actor, const Peer& peer,
       kj::Own<typename ActorClient<Api>::Watcher> watcher)
      : actor_(actor), peer_(peer), watcher_(kj::mv(watcher)) {}

  // As Watcher::next(): nothing once this reader was too slow.
  kj::Promise<kj::Maybe<EventCopy>> next();

 private:
  kj::Promise<Status> recall(std::uint64_t since);
  kj::Promise<kj::Maybe<EventCopy>> onEvent(kj::Maybe<EventCopy> event);

  ActorClient<Api>& actor_;
  Peer peer_;
  kj::Own<typename ActorClient<Api>::Watcher> watcher_;
  std::uint64_t last_ = 0;          // sequence number of the newest event handed out
  std::deque<EventCopy> recalled_;  // older than anything in the watcher's queue
};

}  // namespace qgpu
