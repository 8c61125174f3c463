#include "services/ctl/server.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <unistd.h>

#include "schema/scheduler.capnp.h"
#include "services/admin/cluster_commands.h"
#include "services/admin/cluster_render.h"
#include "services/admin/render.h"
#include "services/admin/words.h"
#include "services/rpc/dial.h"
#include "services/rpc/rpc_session.h"
#include "services/rpc/tls.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kConnectLimit = seconds(10);
constexpr std::uint64_t kAnswerWords = kAnswerMax / 8;
constexpr int kNestingMax = 32;

using Request = schema::ClusterRequest::Reader;
using Reply = schema::ClusterReply::Builder;
using Calls = schema::Scheduler::Client;

capnp::ReaderOptions readerOptions() { return {kAnswerWords, kNestingMax}; }

// Each question as a call of the interface; its results become the reply that the door would get.
template <typename Call, typename Take>
kj::Promise<void> send(Call call, Reply reply, Take take) {
  return call.send().then([reply, take](auto results) mutable { take(reply, results); });
}

template <typename Call>
kj::Promise<void> change(Call call, Reply reply, const char* done) {
  return call.send().then([reply, done](auto&&) mutable { reply.setDone(done); });
}

template <typename Call>
kj::Promise<void> changeTarget(Call call, schema::Target::Reader target, Reply reply,
                               const char* done) {
  call.setTarget(target);
  return change(kj::mv(call), reply, done);
}

kj::Promise<void> askTasks(Calls& calls, Request request, Reply reply) {
  if (request.getTasks().size() == 0) {
    return send(calls.listRequest(), reply,
                [](Reply r, auto& results) { r.setTasks(results.getTasks()); });
  }
  auto call = calls.getRequest();
  call.setTask(request.getTasks()[0]);
  return send(kj::mv(call), reply, [](Reply r, auto& results) {
    r.initTasks(1).setWithCaveats(0, results.getTask());
  });
}

kj::Promise<void> askPlans(Calls& calls, Request request, Reply reply) {
  switch (request.which()) {
    case schema::ClusterRequest::EXPLAIN: {
      auto call = calls.explainRequest();
      call.setTask(request.getExplain());
      return send(kj::mv(call), reply,
                  [](Reply r, auto& results) { r.setExplanation(results.getExplanation()); });
    }
    case schema::ClusterRequest::EXPLAIN_SPEC: {
      auto call = calls.explainSpecRequest();
      call.setSpec(request.getExplainSpec());
      return send(kj::mv(call), reply,
                  [](Reply r, auto& results) { r.setExplanation(results.getExplanation()); });
    }
    case schema::ClusterRequest::WHAT_IF: {
      auto call = calls.whatIfRequest();
      call.setQuestion(request.getWhatIf());
      return send(kj::mv(call), reply,
                  [](Reply r, auto& results) { r.setWhatIf(results.getAnswer()); });
    }
    default: {
      auto call = calls.preemptDryRunRequest();
      call.setTask(request.getPreempt());
      return send(kj::mv(call), reply,
                  [](Reply r, auto& results) { r.setWhatIf(results.getAnswer()); });
    }
  }
}

kj::Promise<void> askChange(Calls& calls, Request request, Reply reply) {
  switch (request.which()) {
    case schema::ClusterRequest::SUBMIT: {
      auto call = calls.submitRequest();
      call.setSpec(request.getSubmit());
      return send(kj::mv(call), reply,
                  [](Reply r, auto& results) { r.setAssigned(results.getAssigned()); });
    }
    case schema::ClusterRequest::DELETE: {
      auto call = calls.deleteRequest();
      call.setTask(request.getDelete());
      return change(kj::mv(call), reply, "deleted");
    }
    case schema::ClusterRequest::CORDON:
      return changeTarget(calls.cordonRequest(), request.getCordon(), reply, "cordoned");
    case schema::ClusterRequest::UNCORDON:
      return changeTarget(calls.uncordonRequest(), request.getUncordon(), reply, "uncordoned");
    case schema::ClusterRequest::DRAIN: {
      auto call = calls.drainRequest();
      call.setTimeoutNs(request.getDrain().getTimeoutNs());
      return changeTarget(kj::mv(call), request.getDrain().getTarget(), reply, "draining");
    }
    default: {
      auto call = calls.setPriorityRequest();
      call.setScore(request.getPriority());
      return change(kj::mv(call), reply, "priority set");
    }
  }
}

kj::Promise<void> askServer(Calls& calls, Request request, Reply reply) {
  switch (request.which()) {
    case schema::ClusterRequest::INFO:
      return send(calls.infoRequest(), reply,
                  [](Reply r, auto& results) { r.setInfo(results.getInfo()); });
    case schema::ClusterRequest::NODES:
      return send(calls.nodesRequest(), reply,
                  [](Reply r, auto& results) { r.setNodes(results.getNodes()); });
    case schema::ClusterRequest::CARDS:
      return send(calls.cardsRequest(), reply,
                  [](Reply r, auto& results) { r.setCards(results.getCards()); });
    case schema::ClusterRequest::TASKS: return askTasks(calls, request, reply);
    case schema::ClusterRequest::EVENTS: {
      auto call = calls.eventsRequest();
      call.setSince(request.getEvents());
      return send(kj::mv(call), reply,
                  [](Reply r, auto& results) { r.setEvents(results.getEvents()); });
    }
    case schema::ClusterRequest::EXPLAIN:
    case schema::ClusterRequest::EXPLAIN_SPEC:
    case schema::ClusterRequest::WHAT_IF:
    case schema::ClusterRequest::PREEMPT: return askPlans(calls, request, reply);
    default: return askChange(calls, request, reply);
  }
}

}  // namespace

// The RPC system before the stream that it reads from.
struct Server::Connection {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::Maybe<kj::Own<kj::TlsContext>> tls;
  kj::Own<kj::AsyncIoStream> stream;
  kj::Own<capnp::TwoPartyVatNetwork> network;
  kj::Own<capnp::RpcSystem<capnp::rpc::twoparty::VatId>> system;
  kj::Maybe<Calls> calls;
  std::string address;

  Status open();
  // What `promise` came to within `limit`.
  Status wait(kj::Promise<void> promise, Nanos limit);
};

Status Server::Connection::wait(kj::Promise<void> promise, Nanos limit) {
  Status status = ok();
  auto within = io.provider->getTimer().timeoutAfter(limit.value * kj::NANOSECONDS,
                                                     kj::mv(promise));
  within.catch_([&](kj::Exception&& exception) { status = fromException(exception); })
      .wait(io.waitScope);
  return status;
}

Status Server::Connection::open() {
  kj::Maybe<kj::TlsContext&> secured;
  KJ_IF_MAYBE(context, tls) { secured = **context; }
  std::string why;
  auto connected = kj::evalNow([&]() {
                     return dial(io.provider->getNetwork(), address, secured);
                   }).then([this](kj::Own<kj::AsyncIoStream> got) { stream = kj::mv(got); },
                           [&](kj::Exception&& e) { why = std::string(view(e.getDescription())); });
  Status status = wait(kj::mv(connected), kConnectLimit);
  if (stream.get() == nullptr) {
    return fail(ErrorCode::Unavailable,
                "no scheduler answers at " + address + " (" +
                    (why.empty() ? status ? "no answer" : status.error().message : why) + ")");
  }
  network = kj::heap<capnp::TwoPartyVatNetwork>(*stream, capnp::rpc::twoparty::Side::CLIENT,
                                                readerOptions());
  system = kj::heap<capnp::RpcSystem<capnp::rpc::twoparty::VatId>>(
      capnp::makeRpcClient(*network));
  capnp::MallocMessageBuilder message;
  auto id = message.initRoot<capnp::rpc::twoparty::VatId>();
  id.setSide(capnp::rpc::twoparty::Side::SERVER);
  calls = system->bootstrap(id).castAs<schema::Scheduler>();
  return ok();
}

Server::Server(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Server::~Server() {
  if (connection_ != nullptr) connection_->calls = nullptr;
}

Result<std::unique_ptr<Server>> Server::connect(const std::string& address,
                                                const TlsOptions& options) {
  const auto addresses = parseDialList(address);
  if (!addresses) return addresses.error();
  auto connection = std::make_unique<Connection>();
  connection->address = addresses->front();
  const TlsFiles files{options.cert, options.key, options.ca};
  if (!files.none()) {
    auto tls = openTls(files);
    if (!tls) return tls.error();
    connection->tls = kj::mv(*tls);
  }
  if (Status status = connection->open(); !status) return status.error();
  return std::unique_ptr<Server>(new Server(std::move(connection)));
}

Result<std::string> Server::ask(const std::string& line, Nanos limit) {
  const Result<ClusterCommand> command = parseClusterCommand(line);
  if (!command) return renderError(command.error());
  switch (command->verb) {
    case ClusterVerb::Help: return renderHelp(clusterCommandInfos());
    case ClusterVerb::Watch:
    case ClusterVerb::Snapshot:
    case ClusterVerb::LogLevel:
      return renderError(fail(ErrorCode::Unsupported,
                              "not over --server: ask on the scheduler's machine, with --socket "
                              "or --cluster"));
    default: break;
  }
  capnp::MallocMessageBuilder question;
  auto request = question.initRoot<schema::ClusterRequest>();
  fillClusterRequest(request, *command, static_cast<std::uint32_t>(::geteuid()));
  capnp::MallocMessageBuilder answer;
  auto reply = answer.initRoot<schema::ClusterReply>();
  KJ_IF_MAYBE(calls, connection_->calls) {
    auto asked = kj::evalNow([&]() { return askServer(*calls, request.asReader(), reply); });
    if (Status status = connection_->wait(kj::mv(asked), limit); !status) {
      if (!connection_->network->onDisconnect().poll(connection_->io.waitScope)) {
        return renderError(status.error());
      }
      return status.error();
    }
  }
  return renderClusterReply(reply.asReader());
}

}  // namespace qgpu::ctl
