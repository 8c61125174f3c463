#pragma once
// The scheduler's end of all links to nodes: an adapter beside the scheduler actor. It numbers the
// connections that joined, passes what their members say to the scheduler, sends what the
// scheduler says to a member, and tells `lost` when a connection is over.
//
// Who may join: over the unix socket whoever may change things, as any node; over TLS the owner of
// a certificate with the role of a node, as the node that it names; over TCP without TLS, where
// nothing says who it is, nobody, unless the daemon was told to trust its network (--insecure).
//
//   fromMember  member -> scheduler: copied, checked, `link` set; for each link in order, `lost`
//               once and last
//   toMember    scheduler -> member: by `link`; for a link that is over it is dropped, because
//               `lost` is on its way. What was said in one turn of the loop leaves together, and a
//               beat that was called is answered by the return of that call. After turnedAway the
//               connection is ended here.
//
// Kept here: C5 (a full mailbox of the scheduler holds the member's stream up, and ends the
// connection visibly where it lasts; a member that does not read is cut off), C7 (as above). A
// link costs a connection and some hundred bytes; nothing runs while nobody speaks, but one sweep.

#include <cstdint>
#include <deque>
#include <functional>
#include <kj/async.h>
#include <kj/timer.h>
#include <map>
#include <string>
#include <string_view>

#include "runtime/actor.h"
#include "schema/scheduler.capnp.h"
#include "services/api/rpc/gathered.h"
#include "services/api/rpc/link_limits.h"
#include "services/api/rpc/rpc_session.h"

namespace qgpu {

// Members of this process have links from here on, which they number themselves.
inline constexpr std::uint32_t kLocalLinks = std::uint32_t{1} << 31;

class Links final : public Actor, private kj::TaskSet::ErrorHandler {
 public:
  // Whether a TCP peer without TLS may join.
  enum class PlainJoins : std::uint8_t { Refused, Taken };

  // `scheduler` and `timer` outlive this; the RpcServer ends before it.
  Links(RequestSink& scheduler, kj::Timer& timer, PlainJoins plain = PlainJoins::Refused,
        LinksLimits limits = {});
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links() noexcept;

  // A connection joins as a node, once. Fails with denied, conflict, overloaded, stands-by.
  enum class Takes : std::uint8_t { Words, Gathered };  // what the member's end can hear
  kj::Promise<schema::SchedulerEnd::Client> join(kj::Own<RpcSession> session,
                                                 schema::MemberEnd::Client member, Takes takes);

  // Hears toMember of links from kLocalLinks on; it outlives this. Without one they are dropped.
  class LocalMembers {
   public:
    virtual void onToMember(schema::ToMember::Reader message) = 0;

   protected:
    ~LocalMembers() = default;
  };
  void setLocal(LocalMembers* local) { local_ = local; }

  // Asked before anybody joins, whoever it is; a refusal where another scheduler acts. It may take
  // a while to know; who waits for it is one of `linksMax`. The connection of who is refused ends.
  void setMayJoin(std::function<kj::Promise<Status>()> mayJoin) {
    mayJoinNow_ = std::move(mayJoin);
  }

  // What that node can be asked for. The newest link of that name, as its hello says; nothing where
  // none is here: a member of this process has no link.
  kj::Maybe<schema::MemberEnd::Client> memberOf(std::string_view node);

  // toMember of the scheduler.
  void handle(schema::Envelope::Reader envelope, Turn& turn) override;

  std::size_t size() const { return links_.size(); }
  std::uint64_t messagesIn() const { return messagesIn_; }
  std::uint64_t messagesOut() const { return messagesOut_; }
  std::uint64_t callsOut() const { return callsOut_; }  // in which they left
  std::uint64_t cutOff() const { return cutOff_; }      // links ended by this side
  // All of these as Prometheus text, for the page of the scheduler.
  std::string metrics() const;

 private:
  class End;
  using BeatContext =
      capnp::CallContext<schema::SchedulerEnd::BeatParams, schema::SchedulerEnd::BeatResults>;
  struct Beat {  // a call that is not answered yet
    BeatContext context;
    kj::Own<kj::PromiseFulfiller<void>> answered;
  };
  struct Link {
    Link(kj::Own<RpcSession> s, schema::MemberEnd::Client m, Takes t, kj::TimePoint now)
        : session(kj::mv(s)), member(kj::mv(m)), takes(t), heard(now) {}
    kj::Own<RpcSession> session;
    schema::MemberEnd::Client member;
    Takes takes;
    std::string node;  // as it said hello; empty: not yet
    kj::TimePoint heard;
    Gathered<schema::ToMember> gathered;  // leaves in this turn of the loop
    kj::Maybe<Beat> beat;                 // the last; the one before is over
    std::size_t unsentWords = 0;
  };
  struct QueuedMessage {  // waits for the scheduler's mailbox
    kj::Own<capnp::MallocMessageBuilder> message;
    kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> told;  // none: `lost`, which nobody waits for
    std::uint32_t link;
    kj::TimePoint since;
    std::size_t size;
  };

  Status mayJoin(const RpcSession& session) const;
  schema::SchedulerEnd::Client link(RpcSession& session, schema::MemberEnd::Client member,
                                    Takes takes);
  kj::Promise<void> take(std::uint32_t number, schema::FromMember::Reader message);
  kj::Promise<void> beat(std::uint32_t number, BeatContext context);
  static bool answerBeat(Link& link, schema::ToMember::Reader message);
  bool pass(capnp::MallocMessageBuilder& message);
  void hold(QueuedMessage held);
  kj::Promise<void> retryHeld();
  void passHeld();
  void send(std::uint32_t number, schema::ToMember::Reader message);
  void flush(std::uint32_t number);
  void leave(std::uint32_t number, std::size_t size, kj::Promise<void> told);
  void sent(std::uint32_t number, std::size_t size);
  void turnAway(std::uint32_t number, const Error& why);
  void end(std::uint32_t number);
  kj::Promise<void> sweep();
  void taskFailed(kj::Exception&& exception) override;

  RequestSink& scheduler_;
  kj::Timer& timer_;
  const PlainJoins plain_;
  const LinksLimits limits_;
  std::function<kj::Promise<Status>()> mayJoinNow_;  // empty: yes
  std::size_t joining_ = 0;                          // wait for its answer
  LocalMembers* local_ = nullptr;
  std::uint32_t lastNumber_ = 0;
  std::uint64_t messagesIn_ = 0;
  std::uint64_t messagesOut_ = 0;
  std::uint64_t callsOut_ = 0;
  std::uint64_t cutOff_ = 0;
  // The ends that members call share it: the RPC system may let go of one only after this is gone.
  struct Alive : public kj::Refcounted {
    bool here = true;
  };
  kj::Own<Alive> alive_ = kj::refcounted<Alive>();
  std::map<std::uint32_t, kj::Own<Link>> links_;
  std::deque<QueuedMessage> held_;
  std::size_t heldWords_ = 0;
  bool retrying_ = false;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
