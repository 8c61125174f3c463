#include "services/api/rpc/scheduler_link.h"

#include <algorithm>
#include <kj/vector.h>
#include <utility>

#include "services/api/commands/schema_names.h"
#include "services/api/rpc/gathered.h"
#include "services/api/rpc/member_codec.h"
#include "services/api/rpc/rpc_session.h"
#include "services/base/kj_time.h"
#include "services/base/net/dial.h"

namespace qgpu {
namespace {

constexpr auto kRetry = 1 * kj::MILLISECONDS;  // of a full mailbox
constexpr int kNestingMax = 16;
constexpr std::uint32_t kNobody = 65534;  // the uid of who asks
constexpr std::size_t kReasonMax = 200;   // bytes of why a connection is over

// One line for a person.
std::string reasonOf(const kj::Exception& exception) {
  constexpr std::string_view kRemote = "remote exception: ";
  std::string text(view(exception.getDescription()));
  if (text.starts_with(kRemote)) text.erase(0, kRemote.size());
  text = tlsExplained(std::move(text));
  text = text.substr(0, std::min(text.find('\n'), kReasonMax));
  return text.empty() ? "the connection failed" : text;
}

kj::Own<capnp::MallocMessageBuilder> newEnvelope(std::size_t words = 16) {
  return kj::heap<capnp::MallocMessageBuilder>(static_cast<kj::uint>(words));
}

}  // namespace

struct SchedulerLink::Connection {
  Connection(kj::Own<kj::AsyncIoStream> s, const SchedulerLinkConfig& config, kj::TimePoint now)
      : stream(kj::mv(s)),
        network(*stream, capnp::rpc::twoparty::Side::CLIENT,
                capnp::ReaderOptions{config.messageWordsMax, kNestingMax}),
        system(capnp::makeRpcClient(network)),
        since(now),
        heard(now),
        served(now),
        dropped(kj::newPromiseAndFulfiller<void>()) {
    system.setFlowLimit(2 * config.messageWordsMax);
  }
  schema::Scheduler::Client bootstrap() {
    capnp::MallocMessageBuilder message(8);
    auto id = message.initRoot<capnp::rpc::twoparty::VatId>();
    id.setSide(capnp::rpc::twoparty::Side::SERVER);
    return system.bootstrap(id).castAs<schema::Scheduler>();
  }

  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> system;
  kj::Maybe<schema::SchedulerEnd::Client> scheduler;  // once joined
  bool gathers = false;                               // it hears many messages in one call
  bool beats = false;                                 // it answers beats that are called
  Gathered<schema::FromMember> gathered;              // leaves in this turn of the loop
  kj::TimePoint since;
  kj::TimePoint heard;
  kj::TimePoint served;  // heard, and not turned away
  std::size_t unsentWords = 0;
  std::string why = "the scheduler closed the connection";
  kj::PromiseFulfillerPair<void> dropped;
};

// What the scheduler calls, on one connection.
class SchedulerLink::End final : public schema::MemberEnd::Server {
 public:
  End(SchedulerLink& link, std::uint64_t serial)
      : link_(link), alive_(kj::addRef(*link.alive_)), serial_(serial) {}
  kj::Promise<void> tell(TellContext context) override {
    if (!alive_->here) return kj::READY_NOW;
    return link_.hear(serial_, context.getParams().getWords());
  }
  kj::Promise<void> tellAll(TellAllContext context) override {
    const auto all = context.getParams().getAll();
    if (all.size() > kGatheredMax) {
      return toException(fail(ErrorCode::InvalidArgument, "so many messages are no one call"));
    }
    kj::Vector<kj::Promise<void>> heard(all.size());
    for (const auto message : all) {
      if (!alive_->here) break;
      heard.add(link_.hear(serial_, message));
    }
    return kj::joinPromises(heard.releaseAsArray());
  }
  kj::Promise<void> trace(TraceContext context) override {
    if (!alive_->here || serial_ != link_.serial_) {
      return toException(fail(ErrorCode::Conflict, "this link is over"));
    }
    return link_.answerTrace(context);
  }

 private:
  SchedulerLink& link_;
  kj::Own<Alive> alive_;
  const std::uint64_t serial_;
};

SchedulerLink::SchedulerLink(RequestSink& member, kj::Network& network, kj::Timer& timer,
                             SchedulerLinkConfig config)
    : member_(member),
      network_(network),
      timer_(timer),
      config_(std::move(config)),
      prng_(config_.seed),
      round_(config_.addresses, config_),
      tasks_(*this) {}

SchedulerLink::~SchedulerLink() noexcept {
  alive_->here = false;
}

void SchedulerLink::start() {
  tasks_.add(live());
}

void SchedulerLink::setState(std::string state) {
  if (state == state_) return;
  state_ = std::move(state);
  if (config_.onState) config_.onState(state_);
}

// --- connecting ---

kj::Promise<void> SchedulerLink::live() {
  return attempt().then([this]() { return pause(); }).then([this]() { return live(); });
}

// One connection, from the first byte to the last. Never fails.
kj::Promise<void> SchedulerLink::attempt() {
  address_ = round_.address();
  auto joined = kj::evalNow([this]() {
                  return dial(network_, address_, config_.tls, {timer_, round_.rounds()});
                }).then([this](kj::Own<kj::AsyncIoStream> stream) { return join(kj::mv(stream)); });
  return timer_.timeoutAfter(toKj(config_.connectDeadline), kj::mv(joined))
      .then([this]() { return talk(); })
      .catch_([this](kj::Exception&& exception) {
        connection_ = nullptr;
        const std::string why = reasonOf(exception);
        setState(address_ + ": " + why);
        round_.failed(why);
      });
}

kj::Promise<void> SchedulerLink::join(kj::Own<kj::AsyncIoStream> stream) {
  connection_ = kj::heap<Connection>(kj::mv(stream), config_, timer_.now());
  auto registry = connection_->bootstrap().registryRequest().send().getRegistry();
  auto request = registry.joinRequest();
  request.setNode(kj::heap<End>(*this, ++serial_));
  request.setGathers(true);
  return request.send().then([this](capnp::Response<schema::Registry::JoinResults> joined) {
    connection_->scheduler = joined.getScheduler();
    connection_->gathers = joined.getGathers();
    connection_->beats = joined.getBeats();
  });
}

// From up to down.
kj::Promise<void> SchedulerLink::talk() {
  up_ = true;
  setState("connected to " + address_);
  auto up = newEnvelope();
  up->initRoot<schema::Envelope>().setLinkUp();
  tasks_.add(deliver(kj::mv(up)));
  return connection_->network.onDisconnect()
      .exclusiveJoin(kj::mv(connection_->dropped.promise))
      .exclusiveJoin(watchSilence())
      .then([this]() {
        up_ = false;
        const std::string why = connection_->why;
        setState(address_ + ": " + why);
        round_.ended(Nanos((connection_->served - connection_->since) / kj::NANOSECONDS), why);
        connection_ = nullptr;
        auto down = newEnvelope(16 + why.size() / sizeof(capnp::word));
        down->initRoot<schema::Envelope>().setLinkDown(ptr(why));
        return deliver(kj::mv(down));
      });
}

kj::Promise<void> SchedulerLink::watchSilence() {
  return timer_.afterDelay(toKj(config_.silence / 4)).then([this]() -> kj::Promise<void> {
    if (timer_.now() - connection_->heard < toKj(config_.silence)) return watchSilence();
    connection_->why = "nothing was heard of the scheduler";
    return kj::READY_NOW;
  });
}

kj::Promise<void> SchedulerLink::pause() {
  const Nanos most = round_.pause();
  const auto half = static_cast<std::uint64_t>(most.value / 2);
  const std::uint64_t time = half == 0 ? 0 : half + prng_.next() % half;
  return timer_.afterDelay(toKj(Nanos(static_cast<std::int64_t>(time))));
}

// --- scheduler to member ---

kj::Promise<void> SchedulerLink::hear(std::uint64_t serial, schema::ToMember::Reader message) {
  if (serial != serial_ || connection_.get() == nullptr) {
    return toException(fail(ErrorCode::Conflict, "this link is over"));
  }
  connection_->heard = timer_.now();
  auto copy = newEnvelope(message.totalSize().wordCount + 8);
  copy->initRoot<schema::Envelope>().setToMember(message);  // throws where it can't be read
  const auto mine = copy->getRoot<schema::Envelope>().asReader().getToMember();
  if (const Status good = checkSchedulerMessage(mine); !good) {
    drop(good.error().message);
    return toException(good.error());
  }
  if (mine.isTurnedAway()) {
    connection_->why = "turned away: " + std::string(view(mine.getTurnedAway().getMessage()));
  } else {
    connection_->served = timer_.now();
  }
  return deliver(kj::mv(copy));
}

// As `trace` of the admin socket, for a peer that may read.
kj::Promise<void> SchedulerLink::answerTrace(TraceContext context) {
  const auto params = context.getParams();
  context.allowCancellation();
  KJ_IF_MAYBE (node, config_.node) {
    auto asked = node->ask(Peer{kNobody, 0, false, "scheduler"}, [&](schema::Request::Builder ask) {
      auto query = ask.initTrace();
      query.setCard(params.getCard());
      query.setSince(params.getSince());
    });
    context.releaseParams();
    return asked.then([context](Result<Answer> got) mutable -> kj::Promise<void> {
      if (!got) return toException(got.error());
      context.getResults().setTrace(got->reply().getTrace());
      return kj::READY_NOW;
    });
  }
  return toException(fail(ErrorCode::Unsupported, "this manager tells no trace"));
}

bool SchedulerLink::pass(capnp::MallocMessageBuilder& envelope) {
  const auto from = envelope.getRoot<schema::Envelope>().asReader();
  return member_.send([&](schema::Envelope::Builder message) {
    switch (from.which()) {
      case schema::Envelope::LINK_UP:
        return message.setLinkUp();
      case schema::Envelope::LINK_DOWN:
        return message.setLinkDown(from.getLinkDown());
      default:
        return message.setToMember(from.getToMember());
    }
  }) == SendResult::Sent;
}

// In order; done when the member's mailbox has it.
kj::Promise<void> SchedulerLink::deliver(kj::Own<capnp::MallocMessageBuilder> envelope) {
  if (held_.empty() && pass(*envelope)) return kj::READY_NOW;
  auto paf = kj::newPromiseAndFulfiller<void>();
  held_.push_back(QueuedMessage{kj::mv(envelope), kj::mv(paf.fulfiller)});
  if (held_.size() == 1) tasks_.add(retryHeld());
  return kj::mv(paf.promise);
}

kj::Promise<void> SchedulerLink::retryHeld() {
  return timer_.afterDelay(kRetry).then([this]() -> kj::Promise<void> {
    while (!held_.empty() && pass(*held_.front().envelope)) {
      held_.front().taken->fulfill();
      held_.pop_front();
    }
    if (held_.empty()) return kj::READY_NOW;
    return retryHeld();
  });
}

// --- member to scheduler ---

void SchedulerLink::handle(schema::Envelope::Reader message, Turn&) {
  if (message.isFromMember()) return tell(message.getFromMember());
  if (message.isLinkDown()) drop(std::string(view(message.getLinkDown())));
}

void SchedulerLink::tell(schema::FromMember::Reader message) {
  if (!up_) return;
  Connection& connection = *connection_;
  const std::size_t size = message.totalSize().wordCount + 4;
  if (connection.unsentWords + size > config_.unsentWordsMax) {
    return drop("the scheduler does not read");
  }
  connection.unsentWords += size;
  if (connection.beats && message.isBeat()) return beat(message, size);
  if (!connection.gathered.fits(size)) flush();
  if (!connection.gathers || size > kGatheredWordsMax) {
    auto request =
        KJ_ASSERT_NONNULL(connection.scheduler).tellRequest(capnp::MessageSize{size + 4, 0});
    request.setWords(message);
    return leave(size, request.send());
  }
  if (connection.gathered.empty()) {
    tasks_.add(kj::evalLater([this, serial = serial_]() {
      if (serial == serial_) flush();
    }));
  }
  connection.gathered.add(message, size);
}

// Behind all that was said before it; the answer is what comes back.
void SchedulerLink::beat(schema::FromMember::Reader message, std::size_t size) {
  flush();
  auto request =
      KJ_ASSERT_NONNULL(connection_->scheduler).beatRequest(capnp::MessageSize{size + 4, 0});
  request.setWords(message);
  auto heard = request.send().then(
      [this, serial = serial_](
          capnp::Response<schema::SchedulerEnd::BeatResults> answer) -> kj::Promise<void> {
        if (serial != serial_ || !answer.hasSeen()) return kj::READY_NOW;
        return hear(serial, answer.getSeen());
      });
  leave(size, kj::mv(heard));
}

void SchedulerLink::flush() {
  if (!up_ || connection_->gathered.empty()) return;
  const std::size_t size = connection_->gathered.size();
  leave(size, connection_->gathered.tell(KJ_ASSERT_NONNULL(connection_->scheduler)));
}

// Told once the scheduler's window has room; what it holds back is what counts as unsent.
void SchedulerLink::leave(std::size_t size, kj::Promise<void> told) {
  tasks_.add(told.then(
      [this, size, serial = serial_]() {
        if (up_ && serial == serial_) connection_->unsentWords -= size;
      },
      [this, serial = serial_](kj::Exception&& exception) {
        if (serial == serial_) drop(reasonOf(exception));
      }));
}

void SchedulerLink::drop(std::string why) {
  if (!up_) return;
  // The first reason is the one that counts.
  if (!connection_->dropped.fulfiller->isWaiting()) return;
  connection_->why = std::move(why).substr(0, kReasonMax);
  connection_->dropped.fulfiller->fulfill();
}

void SchedulerLink::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the link handles its own failures");
}

}  // namespace qgpu
