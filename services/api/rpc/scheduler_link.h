#pragma once
// The manager's end of the link to the scheduler: an adapter beside the member actor. It connects
// to the addresses in turn, or to the one that acts where a scheduler that stands by names it,
// joins, and carries messages both ways; when a connection is over it says so and connects anew,
// with a pause that grows to a limit and differs between nodes.
//
//   ActorId memberId = dispatcher.reserve(), linkId = dispatcher.reserve();
//   NodeLink toMember(dispatcher, linkId, memberId);
//   SchedulerLink link(toMember, kj.io().getNetwork(), kj.timer(), config);
//   dispatcher.attach(linkId, link);
//   link.start();                       // once the loop's actors are all there
//
// To the member: linkUp (joined: say hello), toMember, linkDown{why}; always up, messages, down, in
// that order, then up again. From the member: fromMember, and linkDown{why}, which drops the
// connection and starts anew. What it says in one turn of the loop leaves together. Messages of
// the member while the link is down are dropped: linkDown is on its way to it, and the next hello
// heals that.
//
// Kept here: C5 (what waits for the network is bounded; beyond it the connection is dropped), C7
// (messages are bounded, what came is copied and checked before a message of the actors is begun),
// and that a silent or half-dead connection ends within `silence`.

#include <capnp/rpc-twoparty.h>
#include <deque>
#include <functional>
#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "runtime/result.h"
#include "schema/scheduler.capnp.h"
#include "services/api/commands/node_actor_client.h"
#include "services/api/rpc/address_round.h"
#include "services/api/rpc/link_limits.h"

namespace qgpu {

struct SchedulerLinkConfig : SchedulerLinkTimes {
  std::vector<std::string> addresses;        // as parseDialList() gives them; not empty
  kj::Maybe<kj::TlsContext&> tls;            // for HOST:PORT; outlives the link
  kj::Maybe<NodeActorClient&> node;          // answers what the scheduler asks; outlives the link
  std::uint64_t seed = 1;                    // of the jitter: another one for each node
  std::size_t unsentWordsMax = 512 * 1024;   // that wait for the network
  std::size_t messageWordsMax = 256 * 1024;  // of one message of the scheduler
  // For the log: called when the state changes, with what state() then says.
  std::function<void(const std::string& state)> onState;
};

class SchedulerLink final : public Actor, private kj::TaskSet::ErrorHandler {
 public:
  // `member`, `network` and `timer` outlive the link.
  SchedulerLink(RequestSink& member, kj::Network& network, kj::Timer& timer,
                SchedulerLinkConfig config);
  SchedulerLink(const SchedulerLink&) = delete;
  SchedulerLink& operator=(const SchedulerLink&) = delete;
  ~SchedulerLink() noexcept;

  // Connects from now on, until this is destroyed.
  void start();
  // Connections from now on begin with this one; it outlives the link, as those before it.
  void setTls(kj::TlsContext& tls) { config_.tls = tls; }

  // fromMember and linkDown of the member actor.
  void handle(schema::Envelope::Reader message, Turn& turn) override;

  bool up() const { return up_; }
  // For a person: "connected to HOST:PORT", or why not.
  const std::string& state() const { return state_; }

 private:
  struct Connection;
  class End;
  using TraceContext =
      capnp::CallContext<schema::MemberEnd::TraceParams, schema::MemberEnd::TraceResults>;
  struct QueuedMessage {  // a message that the member's mailbox did not take yet
    kj::Own<capnp::MallocMessageBuilder> envelope;
    kj::Own<kj::PromiseFulfiller<void>> taken;
  };

  kj::Promise<void> live();
  kj::Promise<void> attempt();
  kj::Promise<void> join(kj::Own<kj::AsyncIoStream> stream);
  kj::Promise<void> talk();
  kj::Promise<void> watchSilence();
  kj::Promise<void> pause();
  kj::Promise<void> hear(std::uint64_t serial, schema::ToMember::Reader message);
  kj::Promise<void> answerTrace(TraceContext context);
  kj::Promise<void> deliver(kj::Own<capnp::MallocMessageBuilder> envelope);
  bool pass(capnp::MallocMessageBuilder& envelope);
  kj::Promise<void> retryHeld();
  void tell(schema::FromMember::Reader message);
  void beat(schema::FromMember::Reader message, std::size_t size);
  void flush();
  void leave(std::size_t size, kj::Promise<void> told);
  void drop(std::string why);
  void setState(std::string state);
  void taskFailed(kj::Exception&& exception) override;

  RequestSink& member_;
  kj::Network& network_;
  kj::Timer& timer_;
  SchedulerLinkConfig config_;
  Prng prng_;
  AddressRound round_;
  std::string address_;       // that is tried or used
  std::uint64_t serial_ = 0;  // of the connection
  bool up_ = false;
  std::string state_ = "not connected yet";
  std::deque<QueuedMessage> held_;
  // Shared with what the scheduler calls: the RPC system may let go of that after this is gone.
  struct Alive : public kj::Refcounted {
    bool here = true;
  };
  kj::Own<Alive> alive_ = kj::refcounted<Alive>();
  kj::Own<Connection> connection_;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
