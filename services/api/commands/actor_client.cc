#include "services/api/commands/actor_client.h"

#include <algorithm>

#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/node_actor_client.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

using EventCopy = kj::Own<capnp::MallocMessageBuilder>;

// Room for the copy of a struct: its own words and the root pointer.
template <typename Reader>
capnp::uint copyWords(Reader reader) {
  return static_cast<capnp::uint>(reader.totalSize().wordCount + 2);
}

EventCopy copyOf(schema::Event::Reader event) {
  auto copy = kj::heap<capnp::MallocMessageBuilder>(copyWords(event));
  copy->setRoot(event);
  return copy;
}

std::uint64_t sequenceOf(capnp::MallocMessageBuilder& event) {
  return event.getRoot<schema::Event>().getSeq();
}

Error failureOf(schema::Failure::Reader failure) {
  return fail(errorFromName(view(failure.getCode())), std::string(view(failure.getMessage())));
}

}  // namespace

template <typename Api>
ActorClient<Api>::Answer::Answer(typename Api::Reply::Reader reply)
    : message_(std::make_unique<capnp::MallocMessageBuilder>(copyWords(reply))) {
  message_->setRoot(reply);
}

template <typename Api>
typename Api::Reply::Reader ActorClient<Api>::Answer::reply() const {
  return message_->getRoot<typename Api::Reply>().asReader();
}

template <typename Api>
ActorClient<Api>::ActorClient(RequestSink& sink, kj::Timer& timer, Limits limits)
    : sink_(sink), timer_(timer), limits_(limits), state_(kj::refcounted<State>(*this)) {}

template <typename Api>
ActorClient<Api>::~ActorClient() noexcept {
  state_->actor = nullptr;
}

template <typename Api>
SendResult ActorClient<Api>::sendRequest(const Peer& peer, std::uint64_t corr, Fill fill) {
  return sink_.send([&](schema::Envelope::Builder envelope) {
    auto request = Api::init(envelope);
    request.setCorr(corr);
    request.setPeerUid(peer.uid);
    request.setPeerPid(peer.pid);
    request.setMayChange(peer.mayChange);
    if (!peer.name.empty()) request.setPeerName(ptr(peer.name));
    fill(request);
  });
}

template <typename Api>
auto ActorClient<Api>::ask(const Peer& peer, Fill fill) -> kj::Promise<Result<Answer>> {
  if (state_->waiting.size() >= limits_.outstandingMax - reservedAgainst(peer)) {
    ++refused_;
    return Result<Answer>(fail(ErrorCode::Overloaded, std::to_string(state_->waiting.size()) +
                                                          " requests wait for " + Api::kWho +
                                                          " already: try again in a moment"));
  }
  const std::uint64_t corr = ++lastCorr_;
  if (sendRequest(peer, corr, kj::mv(fill)) == SendResult::Refused) {
    ++refused_;
    return Result<Answer>(fail(ErrorCode::Overloaded, std::string("the mailbox of ") + Api::kWho +
                                                          " is full: try again in a moment"));
  }
  auto paf = kj::newPromiseAndFulfiller<Result<Answer>>();
  state_->waiting.emplace(corr, kj::mv(paf.fulfiller));
  auto deadline =
      timer_.afterDelay(limits_.deadline.value * kj::NANOSECONDS)
          .then([limit = limits_.deadline]() -> Result<Answer> {
            return fail(ErrorCode::Unavailable, std::string(Api::kWho) + " did not answer within " +
                                                    std::to_string(limit.value / millis(1).value) +
                                                    " ms; what was asked may still happen");
          });
  return paf.promise.exclusiveJoin(kj::mv(deadline))
      .attach(
          kj::defer([state = kj::addRef(*state_), corr]() mutable { state->waiting.erase(corr); }));
}

template <typename Api>
auto ActorClient<Api>::watch(const Peer& peer) -> kj::Promise<Result<kj::Own<Watcher>>> {
  using Watched = Result<kj::Own<Watcher>>;
  if (watchers_.size() >= limits_.watchersMax - reservedAgainst(peer)) {
    ++refused_;
    return Watched(fail(ErrorCode::Overloaded,
                        std::to_string(watchers_.size()) + " watchers are connected already"));
  }
  auto watcher = kj::heap<Watcher>(*this, limits_.watcherQueueMax);
  watchers_.push_back(watcher.get());
  // Asked again for every watcher: it is idempotent, and heals an actor that forgot.
  return ask(peer, [](typename Api::Request::Builder request) { request.setWatch(true); })
      .then([watcher = kj::mv(watcher)](Result<Answer> answer) mutable -> Watched {
        if (!answer) return answer.error();
        return kj::mv(watcher);
      });
}

template <typename Api>
void ActorClient<Api>::forget(Watcher& watcher) {
  watchers_.erase(std::remove(watchers_.begin(), watchers_.end(), &watcher), watchers_.end());
  if (!watchers_.empty()) return;
  // Nobody listens: the actor may stop telling. A refusal is harmless, events without watchers
  // are dropped here; the reply finds nobody waiting and is dropped too.
  const SendResult sent = sendRequest(
      Peer(), ++lastCorr_, [](typename Api::Request::Builder request) { request.setWatch(false); });
  if (sent == SendResult::Refused) ++refused_;
}

template <typename Api>
void ActorClient<Api>::handle(schema::Envelope::Reader message, Turn&) {
  // Every other message concerns actors, not clients.
  if (Api::isReply(message)) return onReply(Api::reply(message));
  if (message.isEventTold()) return onEvent(message.getEventTold());
}

template <typename Api>
void ActorClient<Api>::onReply(typename Api::Reply::Reader reply) {
  const auto found = state_->waiting.find(reply.getCorr());
  if (found == state_->waiting.end()) {
    ++late_;
    return;
  }
  kj::Own<Fulfiller> fulfiller = kj::mv(found->second);
  state_->waiting.erase(found);
  if (reply.isFailed()) {
    fulfiller->fulfill(failureOf(reply.getFailed()));
  } else {
    fulfiller->fulfill(Answer(reply));
  }
}

template <typename Api>
void ActorClient<Api>::onEvent(schema::Event::Reader event) {
  for (Watcher* watcher : watchers_) watcher->push(event);
}

template <typename Api>
void ActorClient<Api>::Watcher::push(schema::Event::Reader event) {
  if (lagged_) return;
  if (queue_.size() >= queueMax_) {
    lagged_ = true;
    return;
  }
  EventCopy copy = copyOf(event);
  KJ_IF_MAYBE (reader, reader_) {
    auto fulfiller = kj::mv(*reader);
    reader_ = nullptr;
    if (fulfiller->isWaiting()) {
      fulfiller->fulfill(kj::mv(copy));
      return;
    }
  }
  queue_.push_back(kj::mv(copy));
}

template <typename Api>
auto ActorClient<Api>::Watcher::next() -> kj::Promise<kj::Maybe<EventCopy>> {
  if (!queue_.empty()) {
    EventCopy event = kj::mv(queue_.front());
    queue_.pop_front();
    return kj::Maybe<EventCopy>(kj::mv(event));
  }
  if (lagged_) return kj::Maybe<EventCopy>(nullptr);
  auto paf = kj::newPromiseAndFulfiller<kj::Maybe<EventCopy>>();
  reader_ = kj::mv(paf.fulfiller);
  return kj::mv(paf.promise);
}

template <typename Api>
auto Feed<Api>::open(ActorClient<Api>& actor, const Peer& peer, std::uint64_t since)
    -> kj::Promise<Result<kj::Own<Feed>>> {
  using Opened = Result<kj::Own<Feed>>;
  using Watched = Result<kj::Own<typename ActorClient<Api>::Watcher>>;
  return actor.watch(peer).then([&actor, peer, since](Watched watcher) -> kj::Promise<Opened> {
    if (!watcher) return Opened(watcher.error());
    auto feed = kj::heap<Feed>(actor, peer, kj::mv(watcher.value()));
    if (since == 0) return Opened(kj::mv(feed));
    auto recalled = feed->recall(since);
    return recalled.then([feed = kj::mv(feed)](Status status) mutable -> Opened {
      if (!status) return status.error();
      return kj::mv(feed);
    });
  });
}

// A reply holds the oldest events and only so many: we ask on until one holds no newer.
template <typename Api>
kj::Promise<Status> Feed<Api>::recall(std::uint64_t since) {
  using Told = typename ActorClient<Api>::Answer;
  return actor_
      .ask(peer_, [since](typename Api::Request::Builder request) { request.setEvents(since); })
      .then([this, since](Result<Told> answer) -> kj::Promise<Status> {
        if (!answer) return Status(answer.error());
        const auto reply = answer->reply();
        if (!reply.isEvents()) {
          return Status(fail(ErrorCode::Internal, std::string(Api::kWho) + " told no events"));
        }
        std::uint64_t newest = since;
        for (const auto event : reply.getEvents()) {
          newest = std::max(newest, event.getSeq());
          recalled_.push_back(copyOf(event));
        }
        if (newest == since) return Status(ok());
        return recall(newest);
      });
}

template <typename Api>
auto Feed<Api>::next() -> kj::Promise<kj::Maybe<EventCopy>> {
  while (!recalled_.empty()) {
    EventCopy event = kj::mv(recalled_.front());
    recalled_.pop_front();
    if (sequenceOf(*event) <= last_) continue;
    last_ = sequenceOf(*event);
    return kj::Maybe<EventCopy>(kj::mv(event));
  }
  return watcher_->next().then(
      [this](kj::Maybe<EventCopy> event) { return onEvent(kj::mv(event)); });
}

template <typename Api>
auto Feed<Api>::onEvent(kj::Maybe<EventCopy> event) -> kj::Promise<kj::Maybe<EventCopy>> {
  KJ_IF_MAYBE (copy, event) {
    const std::uint64_t seq = sequenceOf(**copy);
    if (seq <= last_) return next();  // recalled already
    if (last_ == 0 || seq == last_ + 1) {
      last_ = seq;
      return kj::mv(event);
    }
    // A gap: ask for what lies in it. The event in hand comes last, in case it was forgotten.
    return recall(last_).then([this, held = kj::mv(*copy)](Status) mutable {
      recalled_.push_back(kj::mv(held));
      return next();
    });
  }
  return kj::Maybe<EventCopy>(nullptr);
}

template class ActorClient<NodeApi>;
template class Feed<NodeApi>;
template class ActorClient<ClusterApi>;
template class Feed<ClusterApi>;

}  // namespace qgpu
