#include "services/kubernetes/device_plugin/manager_link.h"

#include <algorithm>
#include <capnp/rpc-twoparty.h>

#include "schema/node.capnp.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/rpc_session.h"
#include "services/base/kj_time.h"
#include "services/base/net/dial.h"

namespace qgpu {
namespace {

// Rings at every event of the node.
class Bell final : public schema::EventWatcher::Server {
 public:
  explicit Bell(kj::Own<kj::PromiseFulfiller<void>>& rung) : rung_(rung) {}
  kj::Promise<void> event(EventContext) override {
    if (rung_.get() != nullptr) rung_->fulfill();
    return kj::READY_NOW;
  }

 private:
  kj::Own<kj::PromiseFulfiller<void>>& rung_;
};

NodeNow readNode(schema::KubeletHandler::NodeResults::Reader reader) {
  NodeNow node;
  node.mixed = reader.getMixed();
  node.claims = reader.getClaims();
  node.runtime = view(reader.getRuntime());
  for (const auto card : reader.getCards()) {
    const auto info = card.getInfo();
    node.cards.push_back({std::string(view(info.getId())),
                          Bytes(static_cast<std::int64_t>(info.getMemBytes())),
                          card.getState() == schema::CardState::READY});
    node.backend = view(info.getBackend());
  }
  for (const auto entry : reader.getEnvironment()) {
    const std::string_view text = view(entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    node.environment[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return node;
}

}  // namespace

struct ManagerLink::Connection {
  explicit Connection(kj::Own<kj::AsyncIoStream> s)
      : stream(kj::mv(s)),
        network(*stream, capnp::rpc::twoparty::Side::CLIENT),
        system(capnp::makeRpcClient(network)),
        node(bootstrap()),
        handler(node.kubeletRequest().send().getHandler()) {}
  schema::Node::Client bootstrap() {
    capnp::MallocMessageBuilder message(8);
    auto id = message.initRoot<capnp::rpc::twoparty::VatId>();
    id.setSide(capnp::rpc::twoparty::Side::SERVER);
    return system.bootstrap(id).castAs<schema::Node>();
  }

  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> system;
  schema::Node::Client node;
  schema::KubeletHandler::Client handler;
  kj::Own<kj::PromiseFulfiller<void>> rung;  // before the next question
};

ManagerLink::ManagerLink(kj::Network& network, kj::Timer& timer, ManagerLinkConfig config,
                         OnNode onNode, OnState onState)
    : network_(network),
      timer_(timer),
      config_(std::move(config)),
      onNode_(std::move(onNode)),
      onState_(std::move(onState)),
      pause_(config_.pauseMin),
      tasks_(*this) {}

ManagerLink::~ManagerLink() noexcept = default;

void ManagerLink::start() {
  tasks_.add(live());
}

void ManagerLink::setState(std::string state) {
  if (state == state_) return;
  state_ = std::move(state);
  onState_(state_);
}

kj::Promise<void> ManagerLink::live() {
  return attempt()
      .then([this] {
        const Nanos now = pause_;
        pause_ = std::min(config_.pauseMax, pause_ * 2);
        return timer_.afterDelay(toKj(now));
      })
      .then([this] { return live(); });
}

// One connection, from the first byte to the last. Never fails.
kj::Promise<void> ManagerLink::attempt() {
  return kj::evalNow([this] { return dial(network_, "unix:" + config_.socket, nullptr); })
      .then([this](kj::Own<kj::AsyncIoStream> stream) {
        connection_ = kj::heap<Connection>(kj::mv(stream));
        return talk();
      })
      .catch_([this](kj::Exception&& exception) {
        connection_ = nullptr;
        setState(config_.socket + ": " + fromException(exception).message);
      });
}

kj::Promise<void> ManagerLink::talk() {
  auto watch = connection_->node.watchRequest();
  watch.setWatcher(kj::heap<Bell>(connection_->rung));
  return watch.send()
      .then([this](capnp::Response<schema::Node::WatchResults> watching) {
        return poll().attach(kj::mv(watching));
      })
      .exclusiveJoin(connection_->network.onDisconnect().then([]() -> kj::Promise<void> {
        return KJ_EXCEPTION(DISCONNECTED, "the manager closed the connection");
      }));
}

// Until the connection fails.
kj::Promise<void> ManagerLink::poll() {
  auto rung = kj::newPromiseAndFulfiller<void>();
  connection_->rung = kj::mv(rung.fulfiller);  // before the question: what changes since rings
  return ask()
      .then([this, next = kj::mv(rung.promise)]() mutable {
        return timer_.afterDelay(toKj(config_.poll)).exclusiveJoin(kj::mv(next));
      })
      .then([this] { return poll(); });
}

kj::Promise<void> ManagerLink::ask() {
  return timer_.timeoutAfter(toKj(config_.deadline), connection_->handler.nodeRequest().send())
      .then([this](capnp::Response<schema::KubeletHandler::NodeResults> node) {
        pause_ = config_.pauseMin;
        setState("connected to " + config_.socket);
        onNode_(readNode(node));
      });
}

// --- calls ---

template <typename T, typename Send>
kj::Promise<Result<T>> ManagerLink::call(Send send) {
  if (connection_.get() == nullptr) {
    return Result<T>(fail(ErrorCode::Unavailable, "no manager answers: " + state_));
  }
  return timer_
      .timeoutAfter(toKj(config_.deadline), kj::evalNow([&] { return send(connection_->handler); }))
      .catch_([](kj::Exception&& exception) { return Result<T>(fromException(exception)); });
}

kj::Promise<Result<Grant>> ManagerLink::startTask(const DevicesOwner& owner, Resource resource) {
  const ContainerName& container = owner.name;
  const auto& counts = owner.counts;
  return call<Grant>([&](schema::KubeletHandler::Client& handler) {
    auto request = handler.startRequest();
    auto name = request.initContainer();
    name.setNamespace(ptr(container.nameSpace));
    name.setPod(ptr(container.pod));
    name.setName(ptr(container.container));
    auto devices = request.initDevices(static_cast<kj::uint>(counts.size()));
    kj::uint at = 0;
    request.setResource(resourceName(resource));
    for (const auto& [of, count] : counts) {
      auto device = devices[at++];
      device.setResource(resourceName(of));
      device.setCount(static_cast<std::uint32_t>(count));
    }
    return request.send().then(
        [container](capnp::Response<schema::KubeletHandler::StartResults> started) {
          Grant grant{started.getTask(), std::string(view(started.getToken())), container, {}};
          for (const auto card : started.getCards()) grant.cards.emplace_back(view(card));
          return Result<Grant>(std::move(grant));
        });
  });
}

kj::Promise<Result<std::vector<PodTask>>> ManagerLink::tasks() {
  return call<std::vector<PodTask>>([](schema::KubeletHandler::Client& handler) {
    return handler.tasksRequest().send().then(
        [](capnp::Response<schema::KubeletHandler::TasksResults> answer) {
          std::vector<PodTask> all;
          for (const auto task : answer.getTasks()) {
            all.push_back({task.getTask(), task.getProcesses()});
          }
          return Result<std::vector<PodTask>>(std::move(all));
        });
  });
}

kj::Promise<Status> ManagerLink::endTask(std::uint64_t task) {
  return call<Unit>([task](schema::KubeletHandler::Client& handler) {
    auto request = handler.endRequest();
    request.setTask(task);
    return request.send().then(
        [](capnp::Response<schema::KubeletHandler::EndResults>) { return Status(Unit{}); });
  });
}

kj::Promise<Result<std::vector<ManagerLink::ClaimPart>>> ManagerLink::prepareClaim(
    const std::string& nameSpace, const std::string& name, const std::string& uid) {
  return call<std::vector<ClaimPart>>([&](schema::KubeletHandler::Client& handler) {
    auto request = handler.prepareRequest();
    auto claim = request.initClaim();
    claim.setNamespace(ptr(nameSpace));
    claim.setName(ptr(name));
    claim.setUid(ptr(uid));
    return request.send().then(
        [nameSpace, name](capnp::Response<schema::KubeletHandler::PrepareResults> answer) {
          std::vector<ClaimPart> parts;
          for (const auto from : answer.getParts()) {
            ClaimPart part;
            part.request = view(from.getRequest());
            part.admin = from.getAdmin();
            part.grant = {from.getTask(),
                          std::string(view(from.getToken())),
                          {nameSpace, name, part.request},
                          {}};
            for (const auto card : from.getCards()) part.grant.cards.emplace_back(view(card));
            for (const auto device : from.getDevices()) {
              part.devices.push_back(
                  {std::string(view(device.getDevice())), std::string(view(device.getShare()))});
            }
            parts.push_back(std::move(part));
          }
          return Result<std::vector<ClaimPart>>(std::move(parts));
        });
  });
}

kj::Promise<Status> ManagerLink::unprepareClaim(const std::string& uid) {
  return call<Unit>([&uid](schema::KubeletHandler::Client& handler) {
    auto request = handler.unprepareRequest();
    request.setUid(ptr(uid));
    return request.send().then(
        [](capnp::Response<schema::KubeletHandler::UnprepareResults>) { return Status(Unit{}); });
  });
}

kj::Promise<Status> ManagerLink::tellCounted(const std::vector<std::string>& cards) {
  return call<Unit>([&cards](schema::KubeletHandler::Client& handler) {
    auto request = handler.countedRequest();
    auto list = request.initCards(static_cast<kj::uint>(cards.size()));
    for (kj::uint i = 0; i < list.size(); ++i) list.set(i, ptr(cards[i]));
    return request.send().then(
        [](capnp::Response<schema::KubeletHandler::CountedResults>) { return Status(Unit{}); });
  });
}

void ManagerLink::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every attempt handles its own failures");
}

}  // namespace qgpu
