#include "services/admin/node_door.h"

#include <algorithm>

#include "services/admin/words.h"

namespace qgpu {
namespace {

// Room for the copy of a struct: its own words and the root pointer.
template <typename Reader>
capnp::uint copyWords(Reader reader) {
  return static_cast<capnp::uint>(reader.totalSize().wordCount + 2);
}

NodeDoor::EventCopy copyOf(schema::Event::Reader event) {
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

Answer::Answer(schema::Reply::Reader reply)
    : message_(std::make_unique<capnp::MallocMessageBuilder>(copyWords(reply))) {
  message_->setRoot(reply);
}

schema::Reply::Reader Answer::reply() const {
  return message_->getRoot<schema::Reply>().asReader();
}

NodeDoor::NodeDoor(RequestSink& sink, kj::Timer& timer) : NodeDoor(sink, timer, Limits()) {}

NodeDoor::NodeDoor(RequestSink& sink, kj::Timer& timer, Limits limits)
    : sink_(sink), timer_(timer), limits_(limits) {}

NodeDoor::~NodeDoor() {
  QGPU_CHECK(watchers_.empty(), "the servers that watch are destroyed before the door");
}

SendResult NodeDoor::sendRequest(const Peer& peer, std::uint64_t corr, Fill fill) {
  return sink_.send([&](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(corr);
    request.setPeerUid(peer.uid);
    request.setPeerPid(peer.pid);
    request.setMayChange(peer.mayChange);
    fill(request);
  });
}

kj::Promise<Result<Answer>> NodeDoor::ask(const Peer& peer, Fill fill) {
  if (waiting_.size() >= limits_.outstandingMax - reservedAgainst(peer)) {
    ++refused_;
    return Result<Answer>(fail(
        ErrorCode::Overloaded, std::to_string(waiting_.size()) +
                                   " requests wait for the node already: try again in a moment"));
  }
  const std::uint64_t corr = ++lastCorr_;
  if (sendRequest(peer, corr, kj::mv(fill)) == SendResult::Refused) {
    ++refused_;
    return Result<Answer>(
        fail(ErrorCode::Overloaded, "the node's mailbox is full: try again in a moment"));
  }
  auto paf = kj::newPromiseAndFulfiller<Result<Answer>>();
  waiting_.emplace(corr, kj::mv(paf.fulfiller));
  auto deadline = timer_.afterDelay(limits_.deadline.value * kj::NANOSECONDS)
                      .then([limit = limits_.deadline]() -> Result<Answer> {
                        return fail(ErrorCode::Unavailable,
                                    "the node did not answer within " +
                                        std::to_string(limit.value / millis(1).value) +
                                        " ms; what was asked may still happen");
                      });
  return paf.promise.exclusiveJoin(kj::mv(deadline)).attach(kj::defer([this, corr]() {
    waiting_.erase(corr);
  }));
}

kj::Promise<Result<kj::Own<NodeDoor::Watcher>>> NodeDoor::watch(const Peer& peer) {
  using Watched = Result<kj::Own<Watcher>>;
  if (watchers_.size() >= limits_.watchersMax - reservedAgainst(peer)) {
    ++refused_;
    return Watched(fail(ErrorCode::Overloaded, std::to_string(watchers_.size()) +
                                                   " watchers are connected already"));
  }
  auto watcher = kj::heap<Watcher>(*this, limits_.watcherQueueMax);
  watchers_.push_back(watcher.get());
  // Asked again for every watcher: it is idempotent, and heals a node that forgot.
  return ask(peer, [](schema::Request::Builder request) { request.setWatch(true); })
      .then([watcher = kj::mv(watcher)](Result<Answer> answer) mutable -> Watched {
        if (!answer) return answer.error();
        return kj::mv(watcher);
      });
}

void NodeDoor::forget(Watcher& watcher) {
  watchers_.erase(std::remove(watchers_.begin(), watchers_.end(), &watcher), watchers_.end());
  if (!watchers_.empty()) return;
  // Nobody listens: the node may stop telling. A refusal is harmless, events without watchers
  // are dropped here; the reply finds nobody waiting and is dropped too.
  const SendResult sent = sendRequest(
      Peer(), ++lastCorr_, [](schema::Request::Builder request) { request.setWatch(false); });
  if (sent == SendResult::Refused) ++refused_;
}

void NodeDoor::handle(schema::Envelope::Reader message, Turn&) {
  switch (message.which()) {
    case schema::Envelope::REPLY: return onReply(message.getReply());
    case schema::Envelope::EVENT_TOLD: return onEvent(message.getEventTold());
    default: return;  // stop and the like concern actors, not doors
  }
}

void NodeDoor::onReply(schema::Reply::Reader reply) {
  const auto found = waiting_.find(reply.getCorr());
  if (found == waiting_.end()) {
    ++late_;
    return;
  }
  kj::Own<Fulfiller> fulfiller = kj::mv(found->second);
  waiting_.erase(found);
  if (reply.isFailed()) {
    fulfiller->fulfill(failureOf(reply.getFailed()));
  } else {
    fulfiller->fulfill(Answer(reply));
  }
}

void NodeDoor::onEvent(schema::Event::Reader event) {
  for (Watcher* watcher : watchers_) watcher->push(event);
}

void NodeDoor::Watcher::push(schema::Event::Reader event) {
  if (lagged_) return;
  if (queue_.size() >= queueMax_) {
    lagged_ = true;
    return;
  }
  EventCopy copy = copyOf(event);
  KJ_IF_MAYBE(reader, reader_) {
    auto fulfiller = kj::mv(*reader);
    reader_ = nullptr;
    if (fulfiller->isWaiting()) {
      fulfiller->fulfill(kj::mv(copy));
      return;
    }
  }
  queue_.push_back(kj::mv(copy));
}

kj::Promise<kj::Maybe<NodeDoor::EventCopy>> NodeDoor::Watcher::next() {
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

kj::Promise<Result<kj::Own<EventFeed>>> EventFeed::open(NodeDoor& door, const Peer& peer,
                                                        std::uint64_t since) {
  using Opened = Result<kj::Own<EventFeed>>;
  return door.watch(peer).then(
      [&door, peer, since](Result<kj::Own<NodeDoor::Watcher>> watcher) -> kj::Promise<Opened> {
        if (!watcher) return Opened(watcher.error());
        auto feed = kj::heap<EventFeed>(door, peer, kj::mv(watcher.value()));
        if (since == 0) return Opened(kj::mv(feed));
        auto recalled = feed->recall(since);
        return recalled.then([feed = kj::mv(feed)](Status status) mutable -> Opened {
          if (!status) return status.error();
          return kj::mv(feed);
        });
      });
}

// A reply holds the oldest events and only so many: we ask on until one holds no newer.
kj::Promise<Status> EventFeed::recall(std::uint64_t since) {
  return door_
      .ask(peer_, [since](schema::Request::Builder request) { request.setEvents(since); })
      .then([this, since](Result<Answer> answer) -> kj::Promise<Status> {
        if (!answer) return Status(answer.error());
        const auto reply = answer->reply();
        if (!reply.isEvents()) {
          return Status(fail(ErrorCode::Internal, "the node told no events"));
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

kj::Promise<kj::Maybe<NodeDoor::EventCopy>> EventFeed::next() {
  while (!recalled_.empty()) {
    NodeDoor::EventCopy event = kj::mv(recalled_.front());
    recalled_.pop_front();
    if (sequenceOf(*event) <= last_) continue;
    last_ = sequenceOf(*event);
    return kj::Maybe<NodeDoor::EventCopy>(kj::mv(event));
  }
  return watcher_->next().then(
      [this](kj::Maybe<NodeDoor::EventCopy> event) { return onEvent(kj::mv(event)); });
}

kj::Promise<kj::Maybe<NodeDoor::EventCopy>> EventFeed::onEvent(
    kj::Maybe<NodeDoor::EventCopy> event) {
  KJ_IF_MAYBE(copy, event) {
    const std::uint64_t seq = sequenceOf(**copy);
    if (seq <= last_) return next();  // recalled already
    if (last_ == 0 || seq == last_ + 1) {
      last_ = seq;
      return kj::mv(event);
    }
    // A gap: ask for what lies in it. The event in hand comes last, in case the node forgot it.
    return recall(last_).then([this, held = kj::mv(*copy)](Status) mutable {
      recalled_.push_back(kj::mv(held));
      return next();
    });
  }
  return kj::Maybe<NodeDoor::EventCopy>(nullptr);
}

}  // namespace qgpu
