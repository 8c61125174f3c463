#include "services/ctl/server.h"

#include <capnp/rpc-twoparty.h>
#include <deque>
#include <kj/async-io.h>
#include <unistd.h>

#include "schema/scheduler.capnp.h"
#include "services/admin/cluster_commands.h"
#include "services/admin/cluster_render.h"
#include "services/admin/render.h"
#include "services/admin/words.h"
#include "services/base/surroundings.h"
#include "services/base/tls.h"
#include "services/ctl/run.h"
#include "services/rpc/dial.h"
#include "services/rpc/rpc_session.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kConnectLimit = seconds(10);
constexpr std::uint64_t kAnswerWords = kAnswerMax / 8;
constexpr int kNestingMax = 32;
constexpr std::size_t kAheadMax = 64;   // events taken before they are asked for

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
kj::Promise<void> change(Call call, Reply reply) {
  return send(kj::mv(call), reply,
              [](Reply r, auto& results) { r.setDone(results.getDone()); });
}

template <typename Call>
kj::Promise<void> changeTarget(Call call, schema::Target::Reader target, Reply reply) {
  call.setTarget(target);
  return change(kj::mv(call), reply);
}

// A page of a list, or all of it from a scheduler that knows no pages.
template <typename Call, typename Take>
kj::Promise<void> sendList(Call call, Request request, Reply reply, Take take) {
  if (request.hasPage()) call.setPage(request.getPage());
  return send(kj::mv(call), reply, [take](Reply r, auto& results) {
    take(r, results);
    r.setNext(results.getNext());
  });
}

kj::Promise<void> askTasks(Calls& calls, Request request, Reply reply) {
  if (request.getTasks().size() == 0) {
    return sendList(calls.listRequest(), request, reply,
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
      return change(kj::mv(call), reply);
    }
    case schema::ClusterRequest::CORDON:
      return changeTarget(calls.cordonRequest(), request.getCordon(), reply);
    case schema::ClusterRequest::UNCORDON:
      return changeTarget(calls.uncordonRequest(), request.getUncordon(), reply);
    case schema::ClusterRequest::DRAIN: {
      auto call = calls.drainRequest();
      call.setTimeoutNs(request.getDrain().getTimeoutNs());
      return changeTarget(kj::mv(call), request.getDrain().getTarget(), reply);
    }
    case schema::ClusterRequest::SNAPSHOT: return change(calls.snapshotRequest(), reply);
    case schema::ClusterRequest::LOG_LEVEL: {
      auto call = calls.setLogLevelRequest();
      call.setLevel(request.getLogLevel());
      return change(kj::mv(call), reply);
    }
    default: {
      auto call = calls.setPriorityRequest();
      call.setScore(request.getPriority());
      return change(kj::mv(call), reply);
    }
  }
}

kj::Promise<void> askServer(Calls& calls, Request request, Reply reply) {
  switch (request.which()) {
    case schema::ClusterRequest::INFO:
      return send(calls.infoRequest(), reply,
                  [](Reply r, auto& results) { r.setInfo(results.getInfo()); });
    case schema::ClusterRequest::NODES:
      return sendList(calls.nodesRequest(), request, reply,
                      [](Reply r, auto& results) { r.setNodes(results.getNodes()); });
    case schema::ClusterRequest::CARDS:
      return sendList(calls.cardsRequest(), request, reply,
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

// What a watch brought and nobody took yet.
class Lines {
 public:
  bool empty() const { return lines_.empty(); }

  // Done once there is room for another.
  kj::Promise<void> put(std::string line) {
    lines_.push_back(std::move(line));
    if (arrived_.get() != nullptr) arrived_->fulfill();
    if (lines_.size() < kAheadMax) return kj::READY_NOW;
    auto paf = kj::newPromiseAndFulfiller<void>();
    room_ = kj::mv(paf.fulfiller);
    return kj::mv(paf.promise);
  }
  std::string take() {
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    if (room_.get() != nullptr) room_->fulfill();
    return line;
  }
  // Of the next one, where there is none.
  kj::Promise<void> arrival() {
    auto paf = kj::newPromiseAndFulfiller<void>();
    arrived_ = kj::mv(paf.fulfiller);
    return kj::mv(paf.promise);
  }

 private:
  std::deque<std::string> lines_;
  kj::Own<kj::PromiseFulfiller<void>> arrived_;
  kj::Own<kj::PromiseFulfiller<void>> room_;
};

class Watcher final : public schema::ClusterWatcher::Server {
 public:
  explicit Watcher(Lines& lines) : lines_(lines) {}
  kj::Promise<void> event(EventContext context) override {
    const auto told = context.getParams().getEvent();
    const bool dropped = view(told.getKind()) == "watch-dropped";
    return lines_.put(dropped ? renderError(fail(ErrorCode::Overloaded,
                                                 std::string(view(told.getText()))))
                              : renderEvent(told));
  }

 private:
  Lines& lines_;
};

}  // namespace

// The RPC system before the stream that it reads from.
struct Server::Connection {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  Lines lines;
  kj::Maybe<kj::Own<kj::TlsContext>> tls;
  kj::Own<kj::AsyncIoStream> stream;
  kj::Own<capnp::TwoPartyVatNetwork> network;
  kj::Own<capnp::RpcSystem<capnp::rpc::twoparty::VatId>> system;
  kj::Maybe<Calls> calls;
  kj::Maybe<schema::ClusterSubscription::Client> watch;
  std::string address;

  Status open();
  kj::Promise<void> startWatch(Calls& scheduler, std::uint64_t since);
  // What `promise` came to within `limit`.
  Status wait(kj::Promise<void> promise, Nanos limit);
  // An error of the connection, or a document of what the scheduler refused.
  Result<std::string> failed(const Error& error);
};

Status Server::Connection::wait(kj::Promise<void> promise, Nanos limit) {
  Status status = ok();
  if (limit != kNever) {
    promise = io.provider->getTimer().timeoutAfter(limit.value * kj::NANOSECONDS, kj::mv(promise));
  }
  promise.catch_([&](kj::Exception&& exception) { status = fromException(exception); })
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
                    (why.empty() ? status ? "no answer" : status.error().message
                                 : tlsExplained(why)) + ")");
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

kj::Promise<void> Server::Connection::startWatch(Calls& scheduler, std::uint64_t since) {
  auto call = scheduler.watchRequest();
  call.setWatcher(kj::heap<Watcher>(lines));
  call.setSince(since);
  return call.send().then([this](auto results) { watch = results.getSubscription(); });
}

Result<std::string> Server::Connection::failed(const Error& error) {
  if (!network->onDisconnect().poll(io.waitScope)) return renderError(error);
  const bool plain = tls == nullptr && !address.starts_with("unix:");
  return fail(error.code, error.message + " (" + address + ")" +
                              (plain ? "; where it speaks TLS, give --tls-cert, --tls-key and "
                                       "--tls-ca"
                                     : ""));
}

Server::Server(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Server::~Server() {
  if (connection_ == nullptr) return;
  connection_->watch = nullptr;
  connection_->calls = nullptr;
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
  if (command->verb == ClusterVerb::Help) return renderHelp(clusterCommandInfos());
  Connection& c = *connection_;
  Calls& calls = KJ_ASSERT_NONNULL(c.calls);
  if (command->verb == ClusterVerb::Watch) {
    auto started = kj::evalNow([&]() { return c.startWatch(calls, command->number); });
    if (Status status = c.wait(kj::mv(started), limit); !status) return c.failed(status.error());
    return renderWatching();
  }
  const bool paged = isList(*command);
  ClusterListing listing;
  while (true) {
    capnp::MallocMessageBuilder question;
    auto request = question.initRoot<schema::ClusterRequest>();
    fillClusterRequest(request, *command, static_cast<std::uint32_t>(::geteuid()));
    if (paged) request.initPage().setAfter(listing.after());
    capnp::MallocMessageBuilder answer;
    auto reply = answer.initRoot<schema::ClusterReply>();
    auto asked = kj::evalNow([&]() { return askServer(calls, request.asReader(), reply); });
    if (Status status = c.wait(kj::mv(asked), limit); !status) return c.failed(status.error());
    if (!paged) {
      const std::string runDir = defaultRunDir(Surroundings::ofThisProcess());
      return renderClusterReply(reply.asReader(), launchVariables(findLibrary(), runDir));
    }
    if (!listing.add(reply.asReader())) return listing.take();
  }
}

Result<std::string> Server::nextLine(Nanos limit) {
  Connection& c = *connection_;
  if (c.lines.empty()) {
    const Status status = c.wait(c.lines.arrival().exclusiveJoin(c.network->onDisconnect()), limit);
    if (c.lines.empty()) {
      return fail(ErrorCode::Unavailable, "the scheduler at " + c.address +
                                              (status ? " closed the connection"
                                                      : " does not answer"));
    }
  }
  return c.lines.take();
}

}  // namespace qgpu::ctl
