#include "services/rpc/node_service.h"

#include <optional>

#include "services/admin/words.h"
#include "services/attach/process.h"

namespace qgpu {
namespace {

constexpr std::size_t kTextMax = 256;  // bytes of a name or id

kj::Exception refusal(ErrorCode code, std::string message) {
  return toException(fail(code, std::move(message)));
}

// A peer's text, copied before any message of the actors is begun: reading it may throw.
std::string checkedText(capnp::Text::Reader text, const char* what) {
  if (text.size() > kTextMax) {
    kj::throwFatalException(refusal(ErrorCode::InvalidArgument,
                                    std::string(what) + " has at most " +
                                        std::to_string(kTextMax) + " bytes"));
  }
  return std::string(view(text));
}

// A peer's TaskSpec as plain values.
struct CheckedSpec {
  CheckedSpec(schema::TaskSpec::Reader spec, const Peer& peer)
      : name(checkedText(spec.getName(), "name")),
        card(checkedText(spec.getCard(), "card")),
        requestId(checkedText(spec.getRequestId(), "requestId")),
        taskClass(spec.getClass()),
        memBytes(spec.getMemBytes()),
        sharePermille(spec.getSharePermille()),
        cards(spec.getCards()),
        ownerPid(spec.getOwnerPid()),
        ownerStart(spec.getOwnerStart()),
        ownerUid(peer.mayChange ? spec.getOwnerUid() : peer.uid) {
    if (className(taskClass) == "unknown") {
      kj::throwFatalException(
          refusal(ErrorCode::InvalidArgument, "class: this daemon does not know it"));
    }
    if (ownerPid != 0 && ownerStart == 0) ownerStart = startOf(ownerPid);
  }

  void fill(schema::TaskSpec::Builder out) const {
    out.setName(ptr(name));
    out.setClass(taskClass);
    out.setMemBytes(memBytes);
    out.setSharePermille(sharePermille);
    out.setCards(cards);
    out.setCard(ptr(card));
    out.setOwnerPid(ownerPid);
    out.setOwnerStart(ownerStart);
    out.setOwnerUid(ownerUid);
    out.setRequestId(ptr(requestId));
  }

  static std::uint64_t startOf(std::uint32_t pid) {
    const auto start = processStart(pid);
    if (!start) {
      kj::throwFatalException(refusal(ErrorCode::InvalidArgument,
                                      "ownerPid " + std::to_string(pid) + " does not run here"));
    }
    return *start;
  }

  std::string name;
  std::string card;
  std::string requestId;
  schema::TaskClass taskClass;
  std::uint64_t memBytes;
  std::uint32_t sharePermille;
  std::uint32_t cards;
  std::uint32_t ownerPid;
  std::uint64_t ownerStart;
  std::uint32_t ownerUid;
};

class SubscriptionServer final : public schema::Subscription::Server {
 public:
  // Events flow while this lives.
  explicit SubscriptionServer(kj::Promise<void> told) : told_(kj::mv(told)) {}

 private:
  kj::Promise<void> told_;
};

kj::Promise<void> deliver(RpcSession& session, schema::EventWatcher::Client watcher,
                          schema::Event::Reader event) {
  auto request = watcher.eventRequest(capnp::MessageSize{event.totalSize().wordCount + 4, 0});
  request.setEvent(event);
  return session.timer.timeoutAfter(session.limits.eventDeadline.value * kj::NANOSECONDS,
                                    request.send());
}

kj::Promise<void> tell(RpcSession& session, schema::EventWatcher::Client watcher,
                       EventFeed& feed) {
  auto next = feed.next();
  return next.then([&session, watcher = kj::mv(watcher),
                    &feed](kj::Maybe<NodeDoor::EventCopy> event) mutable -> kj::Promise<void> {
    KJ_IF_MAYBE(copy, event) {
      return deliver(session, watcher, (*copy)->getRoot<schema::Event>().asReader())
          .then([&session, watcher = kj::mv(watcher), &feed]() mutable {
            return tell(session, kj::mv(watcher), feed);
          });
    }
    capnp::MallocMessageBuilder last;
    auto word = last.initRoot<schema::Event>();
    word.setKind("watch-dropped");
    word.setText("this watcher takes events too slowly; watch again and ask `events` for the rest");
    word.setActor("node");
    return deliver(session, watcher, word.asReader());
  });
}

class NodeService final : public schema::Node::Server {
 public:
  explicit NodeService(kj::Own<RpcSession> session) : session_(kj::mv(session)) {}

  kj::Promise<void> info(InfoContext context) override {
    return call(context, [](schema::Request::Builder request) { request.setInfo(); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setInfo(reply.getInfo());
                });
  }

  kj::Promise<void> cards(CardsContext context) override {
    return call(context, [](schema::Request::Builder request) { request.setCards(); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setCards(reply.getCards());
                });
  }

  kj::Promise<void> tasks(TasksContext context) override {
    return call(context, [](schema::Request::Builder request) { request.setTasks(); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setTasks(reply.getTasks());
                });
  }

  kj::Promise<void> events(EventsContext context) override {
    const std::uint64_t since = context.getParams().getSince();
    return call(context, [since](schema::Request::Builder request) { request.setEvents(since); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setEvents(reply.getEvents());
                });
  }

  kj::Promise<void> bind(BindContext context) override {
    requireKnownPeer();
    const CheckedSpec spec(context.getParams().getSpec(), session_->peer);
    context.releaseParams();
    return call(context, [&spec](schema::Request::Builder r) { spec.fill(r.initBind()); },
                [context](schema::Reply::Reader reply) mutable {
                  const auto bound = reply.getBound();
                  auto results = context.getResults();
                  results.setTask(bound.getTask());
                  results.setToken(bound.getToken());
                  results.setCards(bound.getCards());
                  results.setAttachSocket(bound.getAttachSocket());
                });
  }

  kj::Promise<void> unbind(UnbindContext context) override {
    requireKnownPeer();
    const std::uint64_t task = context.getParams().getTask();
    return call(context, [task](schema::Request::Builder request) { request.setUnbind(task); },
                [](schema::Reply::Reader) {});
  }

  kj::Promise<void> setPolicy(SetPolicyContext context) override {
    requireChange();
    const auto params = context.getParams();
    const std::string card = checkedText(params.getCard(), "card");
    const schema::Policy policy = params.getPolicy();
    if (policyName(policy) == "unknown") {
      return refusal(ErrorCode::InvalidArgument, "policy: this daemon does not know it");
    }
    return call(
        context, [&](schema::Request::Builder request) {
          auto wanted = request.initPolicy();
          wanted.setCard(ptr(card));
          wanted.setPolicy(policy);
        },
        [](schema::Reply::Reader) {});
  }

  kj::Promise<void> cordon(CordonContext context) override {
    requireChange();
    const std::string card = checkedText(context.getParams().getCard(), "card");
    return call(context, [&](schema::Request::Builder request) { request.setCordon(ptr(card)); },
                [](schema::Reply::Reader) {});
  }

  kj::Promise<void> uncordon(UncordonContext context) override {
    requireChange();
    const std::string card = checkedText(context.getParams().getCard(), "card");
    return call(context, [&](schema::Request::Builder request) { request.setUncordon(ptr(card)); },
                [](schema::Reply::Reader) {});
  }

  kj::Promise<void> watch(WatchContext context) override {
    if (session_->watches >= session_->limits.watchesMax) {
      return refusal(ErrorCode::Overloaded,
                     std::to_string(session_->watches) + " watches of this connection live");
    }
    auto watcher = context.getParams().getWatcher();
    context.releaseParams();
    ++session_->watches;
    auto counted = kj::defer([held = kj::addRef(*session_)]() mutable { --held->watches; });
    return EventFeed::open(session_->door, session_->peer, 0)
        .then([session = kj::addRef(*session_), watcher = kj::mv(watcher),
               counted = kj::mv(counted), context](Result<kj::Own<EventFeed>> opened) mutable {
          if (!opened) kj::throwFatalException(toException(opened.error()));
          kj::Own<EventFeed> feed = kj::mv(opened.value());
          auto told = tell(*session, watcher, *feed)
                          .attach(kj::mv(feed), kj::mv(session), kj::mv(counted))
                          .eagerlyEvaluate([](kj::Exception&&) {});
          context.getResults().setSubscription(kj::heap<SubscriptionServer>(kj::mv(told)));
        });
  }

 private:
  // One request, one reply; `fill` runs before this returns and reads no message of the peer.
  template <typename Context, typename Fill, typename Done>
  kj::Promise<void> call(Context& context, Fill&& fill, Done done) {
    context.allowCancellation();  // a peer that is gone waits for nothing
    RpcSession& session = *session_;
    if (session.calls >= session.limits.callsMax) {
      return refusal(ErrorCode::Overloaded,
                     std::to_string(session.calls) + " calls of this connection are under way");
    }
    ++session.calls;
    auto counted = kj::defer([held = kj::addRef(session)]() mutable { --held->calls; });
    return session.door.ask(session.peer, fill)
        .then([done = kj::mv(done)](Result<Answer> answer) mutable {
          if (!answer) kj::throwFatalException(toException(answer.error()));
          done(answer->reply());
        })
        .attach(kj::mv(counted));
  }

  void requireKnownPeer() const {
    if (session_->peerKnown) return;
    kj::throwFatalException(
        refusal(ErrorCode::Denied, "nothing says who asks over TCP: use the node's unix socket"));
  }

  void requireChange() const {
    requireKnownPeer();
    if (session_->peer.mayChange) return;
    kj::throwFatalException(refusal(
        ErrorCode::Denied, "uid " + std::to_string(session_->peer.uid) +
                               " may read only: root, the daemon's own user and group qgpu may "
                               "change a node"));
  }

  kj::Own<RpcSession> session_;
};

}  // namespace

schema::Node::Client makeNodeService(kj::Own<RpcSession> session) {
  return kj::heap<NodeService>(kj::mv(session));
}

}  // namespace qgpu
