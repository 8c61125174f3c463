#include "services/api/rpc/links.h"

#include <kj/vector.h>

#include "actors/base/codec.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/member_codec.h"
#include "services/base/kj_time.h"
#include "services/base/metrics_text.h"

namespace qgpu {
namespace {

template <typename Reader>
std::size_t wordsOf(Reader reader) {
  return reader.totalSize().wordCount + 4;
}

constexpr std::size_t kNamedMax = 256;  // bytes of a refusal that name a certificate's owner

// Reading what a peer sent may throw; a copy of ours does not.
Result<kj::Own<capnp::MallocMessageBuilder>> copyOf(schema::FromMember::Reader message,
                                                    std::uint32_t link) {
  kj::Own<capnp::MallocMessageBuilder> copy;
  const auto broken = kj::runCatchingExceptions([&]() {
    copy = kj::heap<capnp::MallocMessageBuilder>(static_cast<kj::uint>(wordsOf(message)));
    copy->setRoot(message);
    copy->getRoot<schema::FromMember>().setLink(link);
  });
  if (broken != nullptr) {
    return fail(ErrorCode::InvalidArgument, "this message of a member can't be read");
  }
  const Status good = checkMemberMessage(copy->getRoot<schema::FromMember>().asReader());
  if (!good) return good.error();
  return kj::mv(copy);
}

// A node names itself in its facts, and its certificate names it too: both must agree.
Status checkName(const RpcSession& session, schema::FromMember::Reader message) {
  if (session.face != Face::Tls || !(message.isHello() || message.isFacts())) return ok();
  const auto facts = message.isHello() ? message.getHello().getFacts() : message.getFacts();
  const std::string name(view(facts.getName()));
  if (session.owner.mayJoinAs(name)) return ok();
  std::string named;
  for (const std::string& one : session.owner.names) {
    if (named.size() < kNamedMax) named += (named.empty() ? "" : ", ") + one;
  }
  return fail(ErrorCode::Denied, "node " + name + " has a certificate of " + named +
                                     ": start its manager with such a --nodename, or sign a "
                                     "certificate with CN=" +
                                     name + " or that DNS entry");
}

}  // namespace

// What the member's side calls; the link lives as long as it.
class Links::End final : public schema::SchedulerEnd::Server {
 public:
  End(Links& links, std::uint32_t number)
      : links_(links), alive_(kj::addRef(*links.alive_)), number_(number) {}
  ~End() noexcept(false) {
    if (alive_->here) links_.end(number_);
  }

  kj::Promise<void> tell(TellContext context) override {
    if (!alive_->here) return kj::READY_NOW;
    return links_.take(number_, context.getParams().getWords());
  }
  kj::Promise<void> beat(BeatContext context) override {
    if (!alive_->here) return kj::READY_NOW;
    return links_.beat(number_, context);
  }
  kj::Promise<void> tellAll(TellAllContext context) override {
    const auto all = context.getParams().getAll();
    if (all.size() > kGatheredMax) {
      return toException(fail(ErrorCode::InvalidArgument, "so many messages are no one call"));
    }
    kj::Vector<kj::Promise<void>> taken(all.size());
    for (const auto message : all) {
      if (!alive_->here) break;
      taken.add(links_.take(number_, message));
    }
    return kj::joinPromises(taken.releaseAsArray());
  }

 private:
  Links& links_;
  kj::Own<Alive> alive_;
  const std::uint32_t number_;
};

Links::Links(RequestSink& scheduler, kj::Timer& timer, PlainJoins plain, LinksLimits limits)
    : scheduler_(scheduler), timer_(timer), plain_(plain), limits_(limits), tasks_(*this) {
  tasks_.add(sweep());
}

Links::~Links() noexcept {
  alive_->here = false;
}

Status Links::mayJoin(const RpcSession& session) const {
  switch (session.face) {
    case Face::Unix:
      if (session.peer.mayChange) return ok();
      return fail(ErrorCode::Denied, "uid " + std::to_string(session.peer.uid) +
                                         " may not join as a node: root, the daemon's own user "
                                         "and group qgpu may");
    case Face::Tls:
      if (session.owner.mayJoin()) return ok();
      return fail(ErrorCode::Denied,
                  "certificate " + session.owner.name +
                      " may not join as a node: sign one whose subject has OU=" + kNodeUnit);
    case Face::Plain:
      break;
  }
  if (plain_ == PlainJoins::Taken) return ok();
  return fail(ErrorCode::Denied,
              "nothing says who joins over TCP without TLS: use the scheduler's unix socket "
              "(--scheduler=unix:PATH) or certificates; one with --insecure takes anybody");
}

kj::Promise<schema::SchedulerEnd::Client> Links::join(kj::Own<RpcSession> session,
                                                      schema::MemberEnd::Client member,
                                                      Takes takes) {
  if (const Status may = mayJoin(*session); !may) return toException(may.error());
  if (session->joined) {
    return toException(fail(ErrorCode::Conflict, "this connection has joined already"));
  }
  if (links_.size() + joining_ >= limits_.linksMax) {
    return toException(fail(ErrorCode::Overloaded, std::to_string(links_.size() + joining_) +
                                                       " nodes are linked already"));
  }
  session->joined = true;
  session->countElsewhere();
  if (!mayJoinNow_) return link(*session, kj::mv(member), takes);
  ++joining_;
  return mayJoinNow_()
      .attach(kj::defer([this, alive = kj::addRef(*alive_)]() {
        if (alive->here) --joining_;
      }))
      .then([this, session = kj::mv(session), member = kj::mv(member),
             takes](Status now) mutable -> kj::Promise<schema::SchedulerEnd::Client> {
        if (now) return link(*session, kj::mv(member), takes);
        session->close();  // nobody counts it any more
        return toException(now.error());
      });
}

schema::SchedulerEnd::Client Links::link(RpcSession& session, schema::MemberEnd::Client member,
                                         Takes takes) {
  do {
    lastNumber_ = (lastNumber_ + 1) % kLocalLinks;
  } while (lastNumber_ == 0 || links_.count(lastNumber_) != 0);
  links_.emplace(lastNumber_,
                 kj::heap<Link>(kj::addRef(session), kj::mv(member), takes, timer_.now()));
  return kj::heap<End>(*this, lastNumber_);
}

// Numbers almost always grow, and who looks at a card asks some times a second.
kj::Maybe<schema::MemberEnd::Client> Links::memberOf(std::string_view node) {
  for (auto at = links_.rbegin(); at != links_.rend(); ++at) {
    if (at->second->node == node) return at->second->member;
  }
  return nullptr;
}

// --- member to scheduler ---

kj::Promise<void> Links::take(std::uint32_t number, schema::FromMember::Reader message) {
  const auto found = links_.find(number);
  if (found == links_.end()) {
    return toException(fail(ErrorCode::Conflict, "this link is over: connect anew"));
  }
  auto copy = copyOf(message, number);
  Status good = copy ? ok() : Status(copy.error());
  if (good) {
    good = checkName(*found->second->session, (*copy)->getRoot<schema::FromMember>().asReader());
  }
  if (!good) {
    turnAway(number, good.error());
    return toException(good.error());
  }
  const auto mine = (*copy)->getRoot<schema::FromMember>().asReader();
  if (mine.isHello()) found->second->node = std::string(view(mine.getHello().getFacts().getName()));
  found->second->heard = timer_.now();
  ++messagesIn_;
  if (held_.empty() && pass(**copy)) return kj::READY_NOW;
  const std::size_t size = (*copy)->sizeInWords();
  if (heldWords_ + size > limits_.heldWordsMax) {
    const Error full = fail(ErrorCode::Overloaded, "the scheduler is behind with its nodes");
    turnAway(number, full);
    return toException(full);
  }
  auto paf = kj::newPromiseAndFulfiller<void>();
  hold(QueuedMessage{kj::mv(*copy), kj::mv(paf.fulfiller), number, timer_.now(), size});
  return kj::mv(paf.promise);
}

// What thousands of members say all the time, so nothing is copied but its numbers. Where the
// scheduler does not answer it, because it is of no session, the next one ends the call.
kj::Promise<void> Links::beat(std::uint32_t number, BeatContext context) {
  const auto found = links_.find(number);
  if (found == links_.end()) {
    return toException(fail(ErrorCode::Conflict, "this link is over: connect anew"));
  }
  Link& link = *found->second;
  const auto message = context.getParams().getWords();
  if (!message.isBeat()) {
    return toException(fail(ErrorCode::InvalidArgument, "a message that is no beat"));
  }
  context.allowCancellation();  // so that it ends with its connection
  auto paf = kj::newPromiseAndFulfiller<void>();
  KJ_IF_MAYBE (before, link.beat) before->answered->fulfill();
  link.beat = Beat{context, kj::mv(paf.fulfiller)};
  const bool passed = held_.empty() && scheduler_.send([&](schema::Envelope::Builder envelope) {
    auto from = envelope.initFromMember();
    from.setLink(number);
    from.setSession(message.getSession());
    from.setSeq(message.getSeq());
    from.setBeat(message.getBeat());
  }) == SendResult::Sent;
  if (!passed) {
    return take(number, message).then([promise = kj::mv(paf.promise)]() mutable {
      return kj::mv(promise);
    });
  }
  context.releaseParams();
  link.heard = timer_.now();
  ++messagesIn_;
  return kj::mv(paf.promise);
}

// Answers the beat that waits for it. False: none does, and it has to be told.
bool Links::answerBeat(Link& link, schema::ToMember::Reader message) {
  KJ_IF_MAYBE (beat, link.beat) {
    beat->context.getResults(capnp::MessageSize{wordsOf(message) + 4, 0}).setSeen(message);
    beat->answered->fulfill();
    link.beat = nullptr;
    return true;
  }
  return false;
}

bool Links::pass(capnp::MallocMessageBuilder& message) {
  return scheduler_.send([&](schema::Envelope::Builder envelope) {
    envelope.setFromMember(message.getRoot<schema::FromMember>().asReader());
  }) == SendResult::Sent;
}

void Links::hold(QueuedMessage held) {
  heldWords_ += held.size;
  held_.push_back(kj::mv(held));
  if (!retrying_) tasks_.add(retryHeld());
}

kj::Promise<void> Links::retryHeld() {
  retrying_ = true;
  return timer_.afterDelay(toKj(limits_.retry)).then([this]() -> kj::Promise<void> {
    passHeld();
    retrying_ = !held_.empty();
    if (!retrying_) return kj::READY_NOW;
    return retryHeld();
  });
}

void Links::passHeld() {
  while (!held_.empty() && pass(*held_.front().message)) {
    QueuedMessage done = kj::mv(held_.front());
    held_.pop_front();
    heldWords_ -= done.size;
    KJ_IF_MAYBE (told, done.told) (*told)->fulfill();
  }
  // Oldest first, so that only the front can have waited for too long.
  while (!held_.empty() && timer_.now() - held_.front().since > toKj(limits_.patience)) {
    QueuedMessage late = kj::mv(held_.front());
    held_.pop_front();
    heldWords_ -= late.size;
    KJ_IF_MAYBE (told, late.told) {
      const Error full = fail(ErrorCode::Overloaded, "the scheduler takes no messages of nodes");
      (*told)->reject(toException(full));
      turnAway(late.link, full);
    } else {
      late.since = timer_.now();  // `lost` is told, however long it takes
      hold(kj::mv(late));
      return;
    }
  }
}

// --- scheduler to member ---

void Links::handle(schema::Envelope::Reader envelope, Turn&) {
  if (!envelope.isToMember()) return;
  const auto message = envelope.getToMember();
  if (message.getLink() >= kLocalLinks) {
    if (local_ != nullptr) local_->onToMember(message);
    return;
  }
  send(message.getLink(), message);
  if (!message.isTurnedAway()) return;
  flush(message.getLink());
  end(message.getLink());
}

void Links::send(std::uint32_t number, schema::ToMember::Reader message) {
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  Link& link = *found->second;
  if (message.isBeatSeen() && answerBeat(link, message)) {
    ++messagesOut_;
    return;
  }
  const std::size_t size = wordsOf(message);
  if (link.unsentWords + size > limits_.unsentWordsMax) {
    ++cutOff_;
    return end(number);  // it does not read
  }
  link.unsentWords += size;
  ++messagesOut_;
  if (!link.gathered.fits(size)) flush(number);
  if (link.takes == Takes::Words || size > kGatheredWordsMax) {
    auto request = link.member.tellRequest(capnp::MessageSize{size + 4, 0});
    request.setWords(message);
    return leave(number, size, request.send());
  }
  if (link.gathered.empty()) tasks_.add(kj::evalLater([this, number]() { flush(number); }));
  link.gathered.add(message, size);
}

void Links::flush(std::uint32_t number) {
  const auto found = links_.find(number);
  if (found == links_.end() || found->second->gathered.empty()) return;
  Link& link = *found->second;
  const std::size_t size = link.gathered.size();
  leave(number, size, link.gathered.tell(link.member));
}

// Told once the peer's window has room; what it holds back is what counts as unsent.
void Links::leave(std::uint32_t number, std::size_t size, kj::Promise<void> told) {
  ++callsOut_;
  tasks_.add(told.then([this, number, size]() { sent(number, size); },
                       [this, number](kj::Exception&&) { end(number); }));
}

void Links::sent(std::uint32_t number, std::size_t size) {
  const auto found = links_.find(number);
  if (found != links_.end()) found->second->unsentWords -= size;
}

// The reason goes to the member, before the connection ends.
void Links::turnAway(std::uint32_t number, const Error& why) {
  capnp::MallocMessageBuilder builder;
  auto message = builder.initRoot<schema::ToMember>();
  writeFailure(why, message.initTurnedAway());
  ++cutOff_;
  send(number, message.asReader());
  flush(number);
  end(number);
}

// From here on nothing of this link passes, either way.
void Links::end(std::uint32_t number) {
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  found->second->session->close();
  links_.erase(found);
  auto lost = kj::heap<capnp::MallocMessageBuilder>(16);
  auto message = lost->initRoot<schema::FromMember>();
  message.setLink(number);
  message.setLost();
  if (held_.empty() && pass(*lost)) return;
  const std::size_t size = lost->sizeInWords();
  hold(QueuedMessage{kj::mv(lost), nullptr, number, timer_.now(), size});
}

std::string Links::metrics() const {
  MetricsText page;
  page.one("qgpu_links", "gauge", "Connections of nodes that joined.", countText(size()));
  page.family("qgpu_link_messages_total", "counter",
              "Messages of nodes to the scheduler (in) and to nodes (out).");
  page.sample({{"direction", "in"}}, countText(messagesIn()));
  page.sample({{"direction", "out"}}, countText(messagesOut()));
  page.one("qgpu_link_calls_total", "counter",
           "RPC calls that carried messages to nodes, several in one where they leave together.",
           countText(callsOut()));
  page.one("qgpu_link_cut_off_total", "counter",
           "Links that the scheduler ended: the node was silent, did not read, or was refused.",
           countText(cutOff()));
  return page.take();
}

kj::Promise<void> Links::sweep() {
  return timer_.afterDelay(toKj(limits_.sweep)).then([this]() {
    const kj::TimePoint now = timer_.now();
    std::deque<std::uint32_t> silent;
    for (const auto& [number, link] : links_) {
      if (now - link->heard > toKj(limits_.silence)) silent.push_back(number);
    }
    for (const std::uint32_t number : silent) {
      turnAway(number, fail(ErrorCode::Unavailable, "nothing was heard of this node"));
    }
    return sweep();
  });
}

void Links::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the links handles its own failures");
}

}  // namespace qgpu
