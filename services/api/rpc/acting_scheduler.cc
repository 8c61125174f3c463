#include "services/api/rpc/acting_scheduler.h"

#include <capnp/rpc-twoparty.h>

#include "services/api/commands/commands.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/rpc_session.h"
#include "services/api/rpc/standing_by.h"
#include "services/base/kj_time.h"
#include "services/base/net/dial.h"
#include "services/base/net/listener_end.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kAnswerWords = 16 << 20;  // a list of 100,000 tasks has half as many
constexpr int kAnswerNestingMax = 32;

}  // namespace

// One connection: the RPC system before the stream that it reads from.
struct ActingScheduler::Link {
  kj::Own<kj::AsyncIoStream> stream;
  kj::Own<capnp::TwoPartyVatNetwork> network;
  kj::Own<capnp::RpcSystem<capnp::rpc::twoparty::VatId>> system;
  kj::Maybe<schema::Scheduler::Client> calls;

  schema::Scheduler::Client open(kj::Own<kj::AsyncIoStream> connected) {
    stream = kj::mv(connected);
    network =
        kj::heap<capnp::TwoPartyVatNetwork>(*stream, capnp::rpc::twoparty::Side::CLIENT,
                                            capnp::ReaderOptions{kAnswerWords, kAnswerNestingMax});
    system =
        kj::heap<capnp::RpcSystem<capnp::rpc::twoparty::VatId>>(capnp::makeRpcClient(*network));
    capnp::MallocMessageBuilder message;
    auto id = message.initRoot<capnp::rpc::twoparty::VatId>();
    id.setSide(capnp::rpc::twoparty::Side::SERVER);
    return system->bootstrap(id).castAs<schema::Scheduler>();
  }
};

ActingScheduler::ActingScheduler(kj::Network& network, kj::Timer& timer,
                                 ActingSchedulerLimits limits)
    : network_(network), timer_(timer), limits_(limits) {}
ActingScheduler::~ActingScheduler() noexcept(false) {}

void ActingScheduler::start(ClusterActorClient& client, kj::Maybe<kj::TlsContext&> tls) {
  client_ = client;
  tls_ = tls;
  kj::TaskSet::ErrorHandler& errors = *this;
  questions_ = kj::heap<kj::TaskSet>(errors);
}

void ActingScheduler::stop() {
  questions_ = nullptr;
  leave();
}

void ActingScheduler::leave() {
  end_ = kj::NEVER_DONE;
  link_ = nullptr;
}

void ActingScheduler::setActing(const std::string& address, kj::Function<void()> ended) {
  leave();
  acting_ = address;
  if (address.empty()) return;
  settle();
  end_ = listenerEnd(network_, timer_, address, tls_)
             .then([ended = kj::mv(ended)]() mutable { ended(); })
             .eagerlyEvaluate([](kj::Exception&&) {});
}

void ActingScheduler::setOwn(RequestSink& own) {
  own_ = own;
  acting_.clear();
  leave();
  settle();
}

kj::Promise<void> ActingScheduler::settled() {
  if (own_ != nullptr || !acting_.empty()) return kj::READY_NOW;
  if (settling_ == nullptr) {
    auto paf = kj::newPromiseAndFulfiller<void>();
    settling_ = Settling{kj::mv(paf.fulfiller), paf.promise.fork()};
  }
  return KJ_ASSERT_NONNULL(settling_).promise.addBranch().exclusiveJoin(
      timer_.afterDelay(toKj(limits_.settles)));
}

void ActingScheduler::settle() {
  KJ_IF_MAYBE (settling, settling_) settling->done->fulfill();
  settling_ = nullptr;
}

SendResult ActingScheduler::send(Build build) {
  KJ_IF_MAYBE (own, own_) return own->send(kj::mv(build));
  auto message = kj::heap<capnp::MallocMessageBuilder>();
  auto built = message->initRoot<schema::Envelope>();
  build(built);
  if (questions_.get() == nullptr || open_ >= limits_.askedMax) return SendResult::Refused;
  ++open_;
  auto counted = kj::defer([this]() { --open_; });
  const std::uint64_t corr = built.asReader().getClusterRequest().getCorr();
  // Later, since who asks waits for the answer once this has returned.
  auto asked = kj::evalLater(
      [this, message = kj::mv(message)]() mutable { return question(kj::mv(message)); });
  questions_->add(asked
                      .catch_([this, corr](kj::Exception&& exception) {
                        refuse(corr, fromException(exception));
                      })
                      .attach(kj::mv(counted)));
  return SendResult::Sent;
}

schema::Scheduler::Client ActingScheduler::calls() {
  if (link_.get() == nullptr) {
    link_ = kj::heap<Link>();
    Link* const link = link_.get();
    link->calls = schema::Scheduler::Client(
        dial(network_, acting_, tls_).then([link](kj::Own<kj::AsyncIoStream> stream) {
          return link->open(kj::mv(stream));
        }));
  }
  return KJ_ASSERT_NONNULL(link_->calls);
}

kj::Promise<void> ActingScheduler::question(kj::Own<capnp::MallocMessageBuilder> message) {
  const auto request = message->getRoot<schema::Envelope>().asReader().getClusterRequest();
  const std::uint64_t corr = request.getCorr();
  const CommandRow* row = rowOf(request.which());
  if (row == nullptr || row->right != Right::Read || acting_.empty()) {
    refuse(corr, standsBy(acting_));
    return kj::READY_NOW;
  }
  auto call = calls().askRequest();
  call.setRequest(request);
  using Answered = capnp::Response<schema::Scheduler::AskResults>;
  kj::Promise<Answered> told = call.send();
  Link* const link = link_.get();
  return timer_.timeoutAfter(toKj(limits_.within), kj::mv(told))
      .then(
          [this, corr](Answered&& answer) {
            capnp::MallocMessageBuilder copy;
            copy.setRoot(answer.getReply());
            auto reply = copy.getRoot<schema::ClusterReply>();
            reply.setCorr(corr);
            KJ_IF_MAYBE (client, client_) client->onReply(reply.asReader());
          },
          [this, corr, link](kj::Exception&& exception) {
            const bool refused = exception.getType() == kj::Exception::Type::FAILED;
            if (!refused && link_.get() == link) link_ = nullptr;
            Error why = fromException(exception);
            if (!refused) why.message = acting_ + ", which acts, does not answer: " + why.message;
            refuse(corr, why);
          });
}

void ActingScheduler::refuse(std::uint64_t corr, const Error& why) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<schema::ClusterReply>();
  reply.setCorr(corr);
  auto failed = reply.initFailed();
  failed.setCode(errorName(why.code));
  failed.setMessage(ptr(why.message));
  KJ_IF_MAYBE (client, client_) client->onReply(reply.asReader());
}

void ActingScheduler::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every question handles its own failures");
}

}  // namespace qgpu
