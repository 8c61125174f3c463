#include "services/ctl/server.h"

#include <capnp/rpc-twoparty.h>
#include <deque>
#include <kj/async-io.h>
#include <unistd.h>

#include "actors/base/event_kinds.h"
#include "schema/scheduler.capnp.h"
#include "services/api/commands/cluster_render.h"
#include "services/api/commands/render.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/rpc_session.h"
#include "services/api/rpc/standing_by.h"
#include "services/base/net/dial.h"
#include "services/base/net/tls.h"
#include "services/base/platform.h"
#include "services/ctl/run.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kConnectLimit = seconds(10);
constexpr Nanos kMoveLimit = seconds(10);  // in which another scheduler acts
constexpr unsigned kMovePauseUs = 200'000;
constexpr std::uint64_t kAnswerWords = kAnswerMax / 8;
constexpr int kNestingMax = 32;
constexpr std::size_t kAheadMax = 64;  // events taken before they are asked for

using Calls = schema::Scheduler::Client;
using Answered = capnp::Response<schema::Scheduler::AskResults>;

capnp::ReaderOptions readerOptions() {
  return {kAnswerWords, kNestingMax};
}

// What a watch brought and nobody took yet.
class Lines {
 public:
  bool empty() const { return lines_.empty(); }

  // Done once there is room for another.
  kj::Promise<void> put(Document line) {
    lines_.push_back(std::move(line));
    if (arrived_.get() != nullptr) arrived_->fulfill();
    if (lines_.size() < kAheadMax) return kj::READY_NOW;
    auto paf = kj::newPromiseAndFulfiller<void>();
    room_ = kj::mv(paf.fulfiller);
    return kj::mv(paf.promise);
  }
  Document take() {
    Document line = std::move(lines_.front());
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
  std::deque<Document> lines_;
  kj::Own<kj::PromiseFulfiller<void>> arrived_;
  kj::Own<kj::PromiseFulfiller<void>> room_;
};

Answer refusal(const Error& error) {
  Document document;
  writeError(document, error);
  return document;
}

class Watcher final : public schema::ClusterWatcher::Server {
 public:
  explicit Watcher(Lines& lines) : lines_(lines) {}
  kj::Promise<void> event(EventContext context) override {
    const auto told = context.getParams().getEvent();
    Document line;
    if (kWatchDropped == view(told.getKind())) {
      writeError(line, fail(ErrorCode::Overloaded, std::string(view(told.getText()))));
    } else {
      writeTold(line, told);
    }
    return lines_.put(std::move(line));
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
  kj::Promise<void> greeting = kj::NEVER_DONE;
  bool greeted = false;  // something that speaks as we do is there
  kj::Maybe<schema::ClusterSubscription::Client> watch;
  std::string address;

  Status open();
  kj::Promise<void> startWatch(Calls& scheduler, std::uint64_t since);
  // What `promise` came to within `limit`.
  Status wait(kj::Promise<void> promise, Nanos limit);
  // An error of the connection, or a document of what the scheduler refused.
  Result<Answer> failed(const Error& error);
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
  KJ_IF_MAYBE (context, tls) {
    secured = **context;
  }
  std::string why;
  auto connected =
      kj::evalNow([&]() {
        return dial(io.provider->getNetwork(), address, secured, {io.provider->getTimer()});
      })
          .then([this](kj::Own<kj::AsyncIoStream> got) { stream = kj::mv(got); },
                [&](kj::Exception&& e) { why = std::string(view(e.getDescription())); });
  Status status = wait(kj::mv(connected), kConnectLimit);
  if (stream.get() == nullptr) {
    return fail(
        ErrorCode::Unavailable,
        "no scheduler answers at " + address + " (" +
            (why.empty() ? status ? "no answer" : status.error().message : tlsExplained(why)) +
            ")");
  }
  network = kj::heap<capnp::TwoPartyVatNetwork>(*stream, capnp::rpc::twoparty::Side::CLIENT,
                                                readerOptions());
  system = kj::heap<capnp::RpcSystem<capnp::rpc::twoparty::VatId>>(capnp::makeRpcClient(*network));
  capnp::MallocMessageBuilder message;
  auto id = message.initRoot<capnp::rpc::twoparty::VatId>();
  id.setSide(capnp::rpc::twoparty::Side::SERVER);
  Calls& scheduler = calls.emplace(system->bootstrap(id).castAs<schema::Scheduler>());
  greeting = scheduler.whenResolved()
                 .then([this]() { greeted = true; })
                 .eagerlyEvaluate([](kj::Exception&&) {});
  return ok();
}

kj::Promise<void> Server::Connection::startWatch(Calls& scheduler, std::uint64_t since) {
  auto call = scheduler.watchRequest();
  call.setWatcher(kj::heap<Watcher>(lines));
  call.setSince(since);
  return call.send().then([this](auto results) { watch = results.getSubscription(); });
}

Result<Answer> Server::Connection::failed(const Error& error) {
  if (!network->onDisconnect().poll(io.waitScope)) return refusal(error);
  const bool plain = tls == nullptr && !address.starts_with("unix:");
  return fail(error.code, error.message + " (" + address + ")" +
                              (plain ? "; where it speaks TLS, give --tls-cert, --tls-key and "
                                       "--tls-ca"
                                     : ""));
}

Server::Server(std::vector<std::string> addresses, const TlsOptions& options)
    : addresses_(std::move(addresses)), options_(options) {}
Server::~Server() {
  leave();
}

void Server::leave() {
  if (connection_ == nullptr) return;
  connection_->watch = nullptr;
  connection_->greeting = kj::NEVER_DONE;
  connection_->calls = nullptr;
  connection_.reset();
}

Status Server::open(const std::string& address) {
  leave();
  auto connection = std::make_unique<Connection>();
  connection->address = address;
  const TlsFiles files{options_.cert, options_.key, options_.ca};
  if (!files.none()) {
    auto tls = openTls(files);
    if (!tls) return tls.error();
    connection->tls = kj::mv(*tls);
  }
  if (Status status = connection->open(); !status) return status;
  connection_ = std::move(connection);
  return ok();
}

Result<std::unique_ptr<Server>> Server::connect(const std::string& address,
                                                const TlsOptions& options) {
  auto addresses = parseDialList(address);
  if (!addresses) return addresses.error();
  std::unique_ptr<Server> server(new Server(std::move(*addresses), options));
  if (Status opened = server->openAny(); !opened) return opened.error();
  return server;
}

Status Server::openAny() {
  Status opened = ok();
  for (const std::string& each : addresses_) {
    opened = open(each);
    if (opened || opened.error().code != ErrorCode::Unavailable) break;
  }
  return opened;
}

// A scheduler that stands by says which one acts, and where none does, or the one that did is lost,
// another one will soon.
Result<Answer> Server::ask(const Ask& ask, Nanos limit) {
  const Nanos end = now() + std::min(limit, kMoveLimit);
  while (true) {
    const Status opened = connection_ != nullptr ? ok() : openAny();
    Result<Answer> answer = opened ? askHere(ask, limit) : Result<Answer>(opened.error());
    const bool moved =
        answer && !answer->status() && answer->status().error().code == ErrorCode::StandsBy;
    const bool lost = !answer && answer.error().code == ErrorCode::Unavailable &&
                      (!opened || (connection_->greeted && isRepeatable(ask)));
    if ((!moved && !lost) || now() > end) return answer;
    if (lost) leave();
    const auto acting = moved ? actingOf(answer->status().error().message) : std::nullopt;
    if (acting && open(*acting)) continue;
    ::usleep(kMovePauseUs);
  }
}

Result<Answer> Server::askHere(const Ask& ask, Nanos limit) {
  Result<Command> command = commandOf(ask, Side::Cluster);
  if (!command) return refusal(command.error());
  command->given.spec.task.ownerUid = static_cast<std::uint32_t>(::geteuid());
  Connection& c = *connection_;
  Calls& calls = KJ_ASSERT_NONNULL(c.calls);
  if (ask.row->does == Does::Watch) {
    auto started = kj::evalNow([&]() { return c.startWatch(calls, command->given.number); });
    if (Status status = c.wait(kj::mv(started), limit); !status) return c.failed(status.error());
    Document watching;
    writeWatching(watching);
    return Answer(std::move(watching));
  }
  Document document;
  ClusterListing listing(document);
  while (true) {
    kj::Maybe<Answered> answer;
    auto asked = kj::evalNow([&]() {
      auto call = calls.askRequest();
      auto request = call.initRequest();
      fillRequest(request, *command);
      if (command->isList()) request.initPage().setAfter(listing.after());
      return call.send().then([&](Answered&& got) { answer = kj::mv(got); });
    });
    if (Status status = c.wait(kj::mv(asked), limit); !status) return c.failed(status.error());
    const auto reply = KJ_ASSERT_NONNULL(answer).getReply();
    if (!command->isList()) {
      const std::string runDir = defaultRunDir(Platform::ofThisProcess());
      writeClusterReply(document, reply, launchVariables(findLibrary(), runDir));
      return Answer(std::move(document));
    }
    const Result<bool> more = listing.add(reply);
    if (!more) return refusal(more.error());
    if (!*more) return Answer(std::move(document));
  }
}

Result<Answer> Server::nextLine(Nanos limit) {
  Connection& c = *connection_;
  if (c.lines.empty()) {
    const Status status = c.wait(c.lines.arrival().exclusiveJoin(c.network->onDisconnect()), limit);
    if (c.lines.empty()) {
      return fail(ErrorCode::Unavailable,
                  "the scheduler at " + c.address +
                      (status ? " closed the connection" : " does not answer"));
    }
  }
  return Answer(c.lines.take());
}

Result<std::unique_ptr<Asker>> reach(const Options& options) {
  if (options.server.empty()) return std::unique_ptr<Asker>(new Client(options.socket));
  auto server = Server::connect(options.server, options.tls);
  if (!server) return server.error();
  return std::unique_ptr<Asker>(std::move(*server));
}

}  // namespace qgpu::ctl
