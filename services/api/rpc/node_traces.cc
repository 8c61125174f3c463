#include "services/api/rpc/node_traces.h"

#include <capnp/message.h>

#include "services/api/commands/schema_names.h"
#include "services/api/rpc/rpc_session.h"
#include "services/base/kj_time.h"

namespace qgpu {
namespace {

constexpr std::size_t kTraceWordsMax = 64 * 1024;  // a manager's own parts have some thousands

// What went wrong between here and the node, to who asked for its trace.
Error traceFailure(const std::string& node, const kj::Exception& exception) {
  if (exception.getType() == kj::Exception::Type::UNIMPLEMENTED) {
    return fail(ErrorCode::Unsupported,
                "the manager of node " + node + " is older than this: it tells no trace");
  }
  Error error = fromException(exception);
  error.message = "node " + node + ": " + error.message;
  return error;
}

}  // namespace

void NodeTraces::start(Links& links, ClusterActorClient& client) {
  kj::TaskSet::ErrorHandler& errors = *this;
  asking_ = kj::heap<Asking>(links, client, errors);
}

SendResult NodeTraces::send(Build build) {
  capnp::MallocMessageBuilder message;  // what it asks for shows only when it is built
  auto built = message.initRoot<schema::Envelope>();
  build(built);
  const auto request = built.asReader().getClusterRequest();
  if (request.isTrace()) return ask(request);
  return scheduler_.send(
      [&](schema::Envelope::Builder envelope) { envelope.setClusterRequest(request); });
}

SendResult NodeTraces::ask(schema::ClusterRequest::Reader request) {
  if (asking_.get() == nullptr || asking_->open >= limits_.askedMax) return SendResult::Refused;
  const auto target = request.getTrace().getTarget();
  ++asking_->open;
  auto counted = kj::defer([asking = asking_.get()]() { --asking->open; });
  // Later, since who asks waits for the answer once this has returned.
  auto asked = kj::evalLater([this, corr = request.getCorr(),
                              node = std::string(view(target.getNode())),
                              card = kj::heapString(target.getCard()),
                              since = request.getTrace().getSince()]() {
    return question(corr, node, card, since).catch_([this, corr, node](kj::Exception&& exception) {
      refuse(corr, traceFailure(node, exception));
    });
  });
  asking_->questions.add(asked.attach(kj::mv(counted)));
  return SendResult::Sent;
}

kj::Promise<void> NodeTraces::question(std::uint64_t corr, const std::string& node,
                                       kj::StringPtr card, std::uint64_t since) {
  KJ_IF_MAYBE (member, asking_->links.memberOf(node)) {
    auto call = member->traceRequest();
    call.setCard(card);
    call.setSince(since);
    auto late = timer_.afterDelay(toKj(limits_.within))
                    .then([within = limits_.within]()
                              -> kj::Promise<capnp::Response<schema::MemberEnd::TraceResults>> {
                      return toException(
                          fail(ErrorCode::Unavailable,
                               "no answer within " + std::to_string(within / millis(1)) + " ms"));
                    });
    using Trace = capnp::Response<schema::MemberEnd::TraceResults>;
    kj::Promise<Trace> told = call.send();
    return told.exclusiveJoin(kj::mv(late)).then([this, corr](Trace answer) {
      const auto trace = answer.getTrace();
      if (trace.totalSize().wordCount > kTraceWordsMax) {
        kj::throwFatalException(
            toException(fail(ErrorCode::Corrupt, "its answer is longer than any trace")));
      }
      capnp::MallocMessageBuilder message;
      auto reply = message.initRoot<schema::ClusterReply>();
      reply.setCorr(corr);
      reply.setTrace(trace);
      asking_->client.onReply(reply.asReader());
    });
  }
  return toException(fail(ErrorCode::NotFound, "it has no link to this scheduler"));
}

void NodeTraces::refuse(std::uint64_t corr, const Error& why) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<schema::ClusterReply>();
  reply.setCorr(corr);
  auto failed = reply.initFailed();
  failed.setCode(errorName(why.code));
  failed.setMessage(ptr(why.message));
  asking_->client.onReply(reply.asReader());
}

void NodeTraces::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every question handles its own failures");
}

}  // namespace qgpu
