#include "tests/unit/services/kubernetes/extender/extender_world.h"

#include "actors/scheduler/codec.h"
#include "services/api/commands/schema_names.h"
#include "store/sqlite_store.h"

namespace qgpu::testing {

// --- nodes ---

void PlainNodes::writeFacts(const NodeShape& shape, schema::NodeFacts::Builder facts) const {
  facts.setName(shape.name);
  facts.setVersion("1");
  facts.setIncarnation(1);
  facts.setMixed(shape.mixed);
  facts.setMaxTasksPerCard(shape.tasksPerCard);
  auto cards = facts.initCards(static_cast<unsigned>(shape.cards));
  for (unsigned i = 0; i < shape.cards; ++i) {
    auto info = cards[i].initInfo();
    info.setId("GPU-" + shape.name + "-" + std::to_string(i));
    info.setIndex(i);
    info.setModel(shape.model);
    info.setMemBytes(static_cast<std::uint64_t>(gibibytes(shape.gib).value));
  }
}

void PlainNodes::handle(schema::Envelope::Reader message, Turn& turn) {
  const auto words = message.getToMember();
  Session& session = sessions_[words.getLink()];
  if (words.isWelcome()) {
    session = {words.getSession(), 0};
    ++welcomed;
    return;
  }
  const auto say = [&](auto fill) {
    const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
      auto answer = envelope.initFromMember();
      answer.setLink(words.getLink());
      answer.setSession(session.session);
      answer.setSeq(++session.seq);
      fill(answer);
    });
    EXPECT_EQ(sent, SendResult::Sent);
  };
  if (words.isBind()) {
    const auto order = words.getBind();
    if (refuses) {
      return say([&](schema::FromMember::Builder answer) {
        answer.initRefused().setTask(order.getTask());
        answer.getRefused().setEpoch(order.getEpoch());
        answer.getRefused().initFailure().setCode("no-room");
        answer.getRefused().getFailure().setMessage("the node says no");
      });
    }
    tasks[order.getTask()] = {shapes.at(words.getLink() - 1).name, readSpec(order.getSpec()),
                              readTexts(order.getCards(), 64)};
    say([&](schema::FromMember::Builder answer) {
      auto bound = answer.initBound();
      bound.setTask(order.getTask());
      bound.setEpoch(order.getEpoch());
      bound.setNodeTask(++lastTask_);
      bound.setToken("token");
      bound.setCards(order.getCards());
    });
  }
  if (words.isEnd()) {
    const auto order = words.getEnd();
    tasks.erase(order.getTask());
    say([&](schema::FromMember::Builder answer) {
      auto held = answer.initTasks(1)[0];
      held.setNodeTask(order.getNodeTask());
      held.setClusterTask(order.getTask());
      held.setEpoch(order.getEpoch());
      held.setEnded(true);
    });
  }
}

// --- the API server ---

namespace {

std::optional<ErrorCode> next(std::deque<std::optional<ErrorCode>>& fails) {
  if (fails.empty()) return std::nullopt;
  const std::optional<ErrorCode> code = fails.front();
  fails.pop_front();
  return code;
}

}  // namespace

kj::Promise<Result<std::string>> ApiDouble::readPod(PodRef pod) {
  for (const auto& [uid, here] : pods) {  // its name is its UID
    if (uid != pod.name || here.json.empty()) continue;
    std::string json = here.json;
    const std::string version = "\"resourceVersion\":\"";
    const std::size_t at = json.find(version) + version.size();
    json.replace(at, json.find('"', at) - at, here.resourceVersion);
    if (!here.node.empty()) {
      const std::string spec = "\"spec\":{";
      json.insert(json.find(spec) + spec.size(), "\"nodeName\":\"" + here.node + "\",");
    }
    return delayed(Result<std::string>(std::move(json))).then([this](Result<std::string> read) {
      meanwhileRead();
      return read;
    });
  }
  return delayed(Result<std::string>(fail(ErrorCode::NotFound, "there is no pod " + pod.name)));
}

kj::Promise<Status> ApiDouble::annotatePod(PodRef pod, std::vector<AnnotationChange> changes,
                                           std::string resourceVersion) {
  const auto found = pods.find(pod.uid);
  if (const auto code = next(annotateFails)) return later(fail(*code, "as the test wants"));
  if (found == pods.end()) return later(fail(ErrorCode::NotFound, "no such pod"));
  Pod& here = found->second;
  if (!resourceVersion.empty() && resourceVersion != here.resourceVersion) {
    return later(fail(ErrorCode::Conflict, "the pod changed"));
  }
  for (const AnnotationChange& change : changes) {
    if (change.value)
      here.annotations[change.key] = *change.value;
    else
      here.annotations.erase(change.key);
  }
  here.resourceVersion = std::to_string(std::stoi(here.resourceVersion) + 1);
  if (!meanwhile) return later(ok());
  return std::exchange(meanwhile, nullptr)().then([this]() { return later(ok()); });
}

kj::Promise<Status> ApiDouble::bindPod(PodRef pod, std::string node) {
  const auto found = pods.find(pod.uid);
  const auto code = next(bindFails);
  if (code && *code != ErrorCode::Unavailable) return later(fail(*code, "as the test wants"));
  if (found == pods.end()) return later(fail(ErrorCode::NotFound, "no such pod"));
  Pod& here = found->second;
  if (!here.node.empty() && here.node != node) {
    return later(fail(ErrorCode::Conflict, "bound to " + here.node));
  }
  here.node = node;
  if (code) return later(fail(*code, "as the test wants"));
  return later(ok());
}

// --- the cluster ---

namespace {

SchedulerOptions options(Score priority) {
  SchedulerOptions out;
  out.version = "1";
  out.priority = priority;
  out.times = {seconds(200), seconds(600), seconds(800)};  // these nodes never beat
  return out;
}

}  // namespace

ExtenderWorld::ExtenderWorld(std::vector<NodeShape> shapes, Score priority, PodRules rules,
                             kj::Duration groupHold)
    : scheduler(options(priority), SchedulerPeers{nodesId}, {}),
      extender(actor, scheduler, kj.timer(), std::move(rules), 1, groupHold) {
  auto store = SqliteStore::open(folder / "scheduler.db");
  EXPECT_TRUE(store.ok()) << (store ? "" : store.error().message);
  journal.emplace(
      std::make_unique<SqliteStore>(std::move(*store)),
      [this](std::function<void()> work) { loop.post(std::move(work)); },
      [](Status health) { EXPECT_TRUE(health.ok()); });
  actors.setJournal(*journal);
  actors.attach(schedulerId, scheduler);
  actors.attach(clientId, actor);
  actors.attach(nodesId, nodes);
  nodes.shapes = std::move(shapes);
  Outlet(actors, clientId).sendUrgent(schedulerId, [](auto message) { message.initStart(); });
  for (std::size_t i = 0; i < nodes.shapes.size(); ++i) sayHello(i);
  EXPECT_TRUE(served([&] { return nodes.welcomed == nodes.shapes.size(); }));
  extender.setApi(api);
  extender.setPriorities([this](const std::string& node, std::string_view uid) {
    const auto pod = api.pods.find(std::string(uid));
    const bool held = pod != api.pods.end() && pod->second.node == node;
    return held ? std::optional(readPod(pod->second.json, {})->priority) : std::nullopt;
  });
  auto listener = TcpListener::open("127.0.0.1:0", "--http");
  HttpLimits limits;
  limits.connectionsMax = 2'048;
  limits.bodiesMax = kExtenderBodyMax;
  http = std::make_unique<HttpServer>(extender.routes(), limits, kj.lowLevel(), kj.timer(),
                                      std::move(*listener));
}

void ExtenderWorld::sayHello(std::size_t node) {
  Outlet from(actors, nodesId);
  const auto hello = [&](schema::Envelope::Builder envelope) {
    auto words = envelope.initFromMember();
    words.setLink(static_cast<std::uint32_t>(node + 1));
    words.initHello().setNonce(node + 1);
    nodes.writeFacts(nodes.shapes[node], words.getHello().initFacts());
  };
  while (from.send(schedulerId, hello) != SendResult::Sent) {
    EXPECT_TRUE(served([&, before = nodes.welcomed] { return nodes.welcomed > before; }));
  }
}

void ExtenderWorld::join(NodeShape node) {
  nodes.shapes.push_back(std::move(node));
  sayHello(nodes.shapes.size() - 1);
  EXPECT_TRUE(served([&] { return nodes.welcomed == nodes.shapes.size(); }));
}

ExtenderWorld::~ExtenderWorld() noexcept {
  http.reset();
  system.stop();
  journal.reset();
}

kj::Promise<std::string> ExtenderWorld::posted(const std::string& verb, const std::string& body) {
  struct Exchange {
    kj::Own<kj::NetworkAddress> address;
    kj::Own<kj::AsyncIoStream> stream;
    std::string bytes;
  };
  auto owned = kj::heap<Exchange>();
  Exchange& exchange = *owned;
  exchange.bytes = "POST /scheduler/" + verb +
                   " HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body;
  return kj.io()
      .getNetwork()
      .parseAddress(ptr(http->address()))
      .then([&exchange](kj::Own<kj::NetworkAddress> address) {
        exchange.address = kj::mv(address);
        return exchange.address->connect();
      })
      .then([&exchange](kj::Own<kj::AsyncIoStream> stream) {
        exchange.stream = kj::mv(stream);
        return exchange.stream->write(exchange.bytes.data(), exchange.bytes.size());
      })
      .then([&exchange]() {
        exchange.stream->shutdownWrite();
        return exchange.stream->readAllText();
      })
      .then([](kj::String text) {
        const std::string answer(view(text));
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer.substr(0, 200);
        const std::size_t split = answer.find("\r\n\r\n");
        return split == std::string::npos ? std::string() : answer.substr(split + 4);
      })
      .attach(kj::mv(owned));
}

std::string ExtenderWorld::post(const std::string& verb, const std::string& body) {
  return posted(verb, body).wait(kj.waitScope());
}

void ExtenderWorld::create(const PodSpec& spec) {
  api.pods[spec.uid].json.clear();
  pod(spec);
}

std::string ExtenderWorld::pod(const PodSpec& spec) {
  ApiDouble::Pod& known = api.pods[spec.uid];
  std::string json = R"({"metadata":{"name":")" + spec.uid + R"(","namespace":"ns","uid":")" +
                     spec.uid + R"(","creationTimestamp":null,"resourceVersion":")" +
                     known.resourceVersion + "\"";
  std::string annotations;
  if (!spec.appClass.empty()) {
    annotations = R"("tke.cloud.tencent.com/app-class":")" + spec.appClass + "\"";
  }
  if (!spec.models.empty()) {
    annotations += annotations.empty() ? "" : ",";
    annotations += R"("qgpu.io/card-models":")" + spec.models + "\"";
  }
  if (!spec.group.empty()) {
    annotations += annotations.empty() ? "" : ",";
    annotations += R"("qgpu.io/group":")" + spec.group + R"(","qgpu.io/group-size":")" +
                   std::to_string(spec.groupSize) + "\"";
  }
  if (!annotations.empty()) json += R"(,"annotations":{)" + annotations + "}";
  if (!spec.owner.empty()) {
    json += R"(,"ownerReferences":[{"uid":")" + spec.owner + R"(","controller":true}])";
  }
  json += R"(},"spec":{"priority":)" + std::to_string(spec.priority) + R"(,"initContainers":[)" +
          spec.initContainers + R"(],"containers":[)";
  bool first = true;
  for (const auto& [name, words] : spec.containers) {
    json +=
        (first ? "" : ",") + std::string(R"({"name":")") + name + R"(","resources":{"limits":{)";
    first = false;
    std::size_t at = 0;
    while (at < words.size()) {
      const std::size_t end = std::min(words.find(' ', at), words.size());
      const std::size_t equals = words.find('=', at);
      json += (at == 0 ? "\"" : ",\"") + std::string(kResourcePrefix) + "/qgpu-" +
              words.substr(at, equals - at) + "\":\"" + words.substr(equals + 1, end - equals - 1) +
              "\"";
      at = end + 1;
    }
    json += "}}}";
  }
  json += "]}}";
  if (known.json.empty()) known.json = json;
  return json;
}

std::string ExtenderWorld::args(const std::string& pod, const std::vector<std::string>& nodes) {
  std::string json = R"({"Pod":)" + pod + R"(,"Nodes":null,"NodeNames":[)";
  for (const std::string& node : nodes) json += (&node == &nodes[0] ? "\"" : ",\"") + node + "\"";
  return json + "]}";
}

std::string ExtenderWorld::filter(const PodSpec& spec, const std::vector<std::string>& wanted) {
  return post("filter", args(pod(spec), wanted));
}

std::string ExtenderWorld::bindingArgs(const std::string& uid, const std::string& node) {
  return R"({"PodName":")" + uid + R"(","PodNamespace":"ns","PodUID":")" + uid + R"(","Node":")" +
         node + "\"}";
}

std::vector<std::string> ExtenderWorld::names() const {
  std::vector<std::string> all;
  for (const NodeShape& shape : nodes.shapes) all.push_back(shape.name);
  return all;
}

}  // namespace qgpu::testing
