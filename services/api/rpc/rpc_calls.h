#pragma once
// What the services of node and scheduler have in common: a call becomes a question to the client,
// a watch a feed of events, each within the limits of its connection. Who may call it, and what the
// daemon does beside asking its actor, the table of commands says
// (services/api/commands/commands.h).

#include "actors/base/event_kinds.h"
#include "services/api/commands/command_handler.h"
#include "services/api/commands/commands.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/checked.h"
#include "services/api/rpc/rpc_session.h"

namespace qgpu {

// Events flow while this lives.
template <typename Interface>
class SubscriptionServer final : public Interface::Server {
 public:
  explicit SubscriptionServer(kj::Promise<void> told) : told_(kj::mv(told)) {}

 private:
  kj::Promise<void> told_;
};

// What the services of both daemons have in common (node_service.cc, scheduler_service.cc): one for
// each connection. Checks who may, counts calls and watches against the connection's limits, asks
// the actor, and turns its errors into exceptions, as toException() does.
template <typename Api>
class RpcCalls {
 public:
  using Request = typename Api::Request;

  // `actor` and `keeping` outlive this.
  RpcCalls(ActorClient<Api>& actor, kj::Own<RpcSession> session,
           kj::Maybe<Housekeeping&> keeping = nullptr)
      : actor_(actor), keeping_(keeping), session_(kj::mv(session)) {}

  RpcSession& session() { return *session_; }
  kj::Own<RpcSession> share() { return kj::addRef(*session_); }

  // Of an answer: a connection has few Large ones under way at once.
  enum class Size : std::uint8_t { Small, Large };

  // One request, one reply; `fill` runs before this returns and reads no message of the peer.
  // `done` is given the reply and sets the results. Large: the answer may be a long list.
  template <typename Context, typename Fill, typename Done>
  kj::Promise<void> call(Context& context, Fill&& fill, Done done, Size size = Size::Small);

  // A call that is a command: `build` makes its request, and may read what the peer sent. The
  // command's right is asked for, its texts and lists are bounded, and a task's owner is the peer.
  template <typename Context, typename Build, typename Done>
  kj::Promise<void> command(Context context, Build&& build, Done done);

  // Feeds `watcher` the events after `since`, 0: those from now on; the results get a subscription
  // of `Subscription`.
  template <typename Subscription, typename Context, typename Watcher>
  kj::Promise<void> watch(Context context, Watcher watcher, std::uint64_t since);

  // Throw a refusal (Denied) where the peer has not this right.
  void requireOwnTasks() const;
  void requireChange() const;

 private:
  void require(Right right) const;
  kj::Promise<void> keepHouse(Does does, const std::string& level);
  template <typename Watcher>
  static kj::Promise<void> deliver(RpcSession& session, Watcher& watcher,
                                   schema::Event::Reader event);
  template <typename Watcher>
  static kj::Promise<void> tell(RpcSession& session, Watcher watcher, Feed<Api>& feed);
  template <typename Watcher>
  static kj::Promise<void> tellDropped(Watcher watcher);

  ActorClient<Api>& actor_;
  kj::Maybe<Housekeeping&> keeping_;
  kj::Own<RpcSession> session_;
};

// --- how ---

inline kj::Exception refusal(ErrorCode code, std::string message) {
  return toException(fail(code, std::move(message)));
}

inline kj::Exception readsOnly(const CertificateOwner& owner) {
  return refusal(ErrorCode::Denied, "certificate " + owner.name +
                                        " may read only: sign one whose subject has OU=" +
                                        kAdminUnit + " for whoever may change things");
}

template <typename Api>
template <typename Context, typename Fill, typename Done>
kj::Promise<void> RpcCalls<Api>::call(Context& context, Fill&& fill, Done done, Size size) {
  using Answered = Result<typename ActorClient<Api>::Answer>;
  context.allowCancellation();  // a peer that is gone waits for nothing
  RpcSession& session = *session_;
  const std::size_t large = size == Size::Large ? 1 : 0;
  if (session.calls >= session.limits.callsMax ||
      (large > 0 && session.largeCalls >= session.limits.largeCallsMax)) {
    return refusal(ErrorCode::Overloaded,
                   std::to_string(large > 0 ? session.largeCalls : session.calls) +
                       (large > 0 ? " calls for lists" : " calls") +
                       " of this connection are under way");
  }
  ++session.calls;
  session.largeCalls += large;
  auto counted = kj::defer([held = share(), large]() mutable {
    --held->calls;
    held->largeCalls -= large;
  });
  return actor_.ask(session.peer, fill)
      .then([done = kj::mv(done)](Answered answer) mutable {
        if (!answer) kj::throwFatalException(toException(answer.error()));
        done(answer->reply());
      })
      .attach(kj::mv(counted));
}

template <typename Api>
template <typename Context, typename Build, typename Done>
kj::Promise<void> RpcCalls<Api>::command(Context context, Build&& build, Done done) {
  CheckedRequest<Request> request(
      session_->peer, session_->face == Face::Unix && kSideOf<Api> == Side::Node, build);
  context.releaseParams();
  const CommandRow* row = rowOf(request.read().which());
  if (row == nullptr) {
    return refusal(ErrorCode::Unsupported, "no command asks this: `help` lists them");
  }
  require(row->right);
  if (row->does == Does::Invite) {
    return refusal(ErrorCode::Unsupported,
                   "a token is made on the scheduler's own machine: `qgpuctl token create` there");
  }
  if (row->does == Does::Save) {
    return refusal(ErrorCode::Unsupported,
                   "a copy is taken on the daemon's own machine: `qgpuctl snapshot save` there");
  }
  // A node has no more tasks than one answer holds well.
  const bool small = kSideOf<Api> == Side::Node || row->shown == Shown::Done ||
                     row->shown == Shown::Info || row->shown == Shown::Assigned;
  std::string level;
  if (row->does == Does::LogLevel) level = std::string(view(request.read().getLogLevel()));
  return call(
             context, [&request](typename Request::Builder out) { request.fill(out); },
             kj::mv(done), small ? Size::Small : Size::Large)
      .then([this, row, level = std::move(level)]() { return keepHouse(row->does, level); });
}

// The actor has permitted and audited it.
template <typename Api>
kj::Promise<void> RpcCalls<Api>::keepHouse(Does does, const std::string& level) {
  if (does != Does::Snapshot && does != Does::LogLevel) return kj::READY_NOW;
  KJ_IF_MAYBE (keeping, keeping_) {
    if (does == Does::LogLevel) {
      const Status set = keeping->setLogLevel(level);
      return set ? kj::Promise<void>(kj::READY_NOW) : toException(set.error());
    }
    return snapshotOf(*keeping).then([](const Status& written) -> kj::Promise<void> {
      return written ? kj::Promise<void>(kj::READY_NOW) : toException(written.error());
    });
  }
  return refusal(ErrorCode::Unsupported, "this daemon keeps no house");
}

template <typename Api>
template <typename Watcher>
kj::Promise<void> RpcCalls<Api>::deliver(RpcSession& session, Watcher& watcher,
                                         schema::Event::Reader event) {
  auto request = watcher.eventRequest(capnp::MessageSize{event.totalSize().wordCount + 4, 0});
  request.setEvent(event);
  return session.timer.timeoutAfter(session.limits.eventDeadline.value * kj::NANOSECONDS,
                                    request.send());
}

template <typename Api>
template <typename Watcher>
kj::Promise<void> RpcCalls<Api>::tell(RpcSession& session, Watcher watcher, Feed<Api>& feed) {
  using EventCopy = typename Feed<Api>::EventCopy;
  auto next = feed.next();
  return next.then([&session, watcher = kj::mv(watcher),
                    &feed](kj::Maybe<EventCopy> event) mutable -> kj::Promise<void> {
    KJ_IF_MAYBE (copy, event) {
      return deliver(session, watcher, (*copy)->template getRoot<schema::Event>().asReader())
          .then([&session, watcher = kj::mv(watcher), &feed]() mutable {
            return tell(session, kj::mv(watcher), feed);
          });
    }
    return tellDropped(kj::mv(watcher));
  });
}

// The last event, which waits for as long as the connection lives and the subscription is held.
template <typename Api>
template <typename Watcher>
kj::Promise<void> RpcCalls<Api>::tellDropped(Watcher watcher) {
  auto request = watcher.eventRequest();
  auto event = request.initEvent();
  event.setKind(kWatchDropped.name());
  event.setText("this watcher takes events too slowly; watch again and ask `events` for the rest");
  event.setActor(Api::kActor);
  return request.send();
}

template <typename Api>
template <typename Subscription, typename Context, typename Watcher>
kj::Promise<void> RpcCalls<Api>::watch(Context context, Watcher watcher, std::uint64_t since) {
  using Opened = Result<kj::Own<Feed<Api>>>;
  if (session_->watches >= session_->limits.watchesMax) {
    return refusal(ErrorCode::Overloaded,
                   std::to_string(session_->watches) + " watches of this connection live");
  }
  context.releaseParams();
  ++session_->watches;
  auto counted = kj::defer([held = share()]() mutable { --held->watches; });
  return Feed<Api>::open(actor_, session_->peer, since)
      .then([session = share(), watcher = kj::mv(watcher), counted = kj::mv(counted),
             context](Opened opened) mutable {
        if (!opened) kj::throwFatalException(toException(opened.error()));
        kj::Own<Feed<Api>> feed = kj::mv(opened.value());
        auto told = tell(*session, watcher, *feed)
                        .catch_([watcher](kj::Exception&& late) mutable -> kj::Promise<void> {
                          if (late.getType() != kj::Exception::Type::OVERLOADED) {
                            return kj::mv(late);
                          }
                          return tellDropped(kj::mv(watcher));
                        })
                        .attach(kj::mv(feed), kj::mv(session), kj::mv(counted))
                        .eagerlyEvaluate([](kj::Exception&&) {});
        context.getResults().setSubscription(
            kj::heap<SubscriptionServer<Subscription>>(kj::mv(told)));
      });
}

template <typename Api>
void RpcCalls<Api>::require(Right right) const {
  if (right == Right::OwnTasks) requireOwnTasks();
  if (right == Right::Change) requireChange();
}

template <typename Api>
void RpcCalls<Api>::requireOwnTasks() const {
  if (session_->mayOwnTasks()) return;
  if (session_->face == Face::Tls) kj::throwFatalException(readsOnly(session_->owner));
  kj::throwFatalException(refusal(ErrorCode::Denied,
                                  "nothing says who asks over TCP without TLS: use the daemon's "
                                  "unix socket, or certificates"));
}

template <typename Api>
void RpcCalls<Api>::requireChange() const {
  requireOwnTasks();
  if (session_->peer.mayChange) return;
  kj::throwFatalException(
      refusal(ErrorCode::Denied, "uid " + std::to_string(session_->peer.uid) +
                                     " may read only: root, the daemon's own user and group qgpu "
                                     "may change " +
                                     Api::kChanged));
}

}  // namespace qgpu
