#include "tests/unit/actors/scheduler/scheduler_world.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace qgpu::testing {
namespace {

void writeTasks(const NodeDouble& node, capnp::List<schema::HeldTask>::Builder list) {
  unsigned i = 0;
  for (const auto& [id, task] : node.tasks) {
    auto held = list[i++];
    held.setNodeTask(id);
    held.setClusterTask(task.clusterTask);
    held.setEpoch(task.epoch);
    writeSpec(task.spec, held.initSpec());
    writeTexts(task.cards, held.initCards(static_cast<unsigned>(task.cards.size())));
    held.setState(schema::TaskState::BOUND);
  }
}

void writeNodeFacts(const NodeDouble& node, schema::NodeFacts::Builder facts) {
  facts.setName(node.name);
  facts.setVersion("1");
  facts.setIncarnation(node.incarnation);
  facts.setMixed(node.mixed);
  facts.setCpuMilli(node.cpuMilli);
  facts.setMaxTasksPerCard(node.maxTasksPerCard);
  facts.setAttachSocket("/run/qgpu/attach.sock");
  auto environment = facts.initEnvironment(2);
  environment.set(0, "LD_PRELOAD=libqgpu.so");
  environment.set(1, "POCL_DEVICES=cpu");
  auto cards = facts.initCards(static_cast<unsigned>(node.cards));
  for (unsigned i = 0; i < node.cards; ++i) {
    auto info = cards[i].initInfo();
    info.setId(node.cardStart + std::to_string(i));
    info.setIndex(i);
    info.setModel(node.model);
    info.setMemBytes(static_cast<std::uint64_t>(gibibytes(node.gib).value));
    cards[i].setReportUnixMs(node.reportUnixMs);
  }
}

std::size_t rowsOf(const std::vector<StoredRow>& rows, bool ended) {
  return static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [&](auto& stored) {
    const auto row = capnp::readMessageUnchecked<schema::Row>(stored.words.data());
    return row.isClusterTask() && (row.getClusterTask().getEndedUnixMs() != 0) == ended;
  }));
}

}  // namespace

const NodeDouble::Task* NodeDouble::find(std::uint64_t clusterTask) const {
  for (const auto& [id, task] : tasks) {
    if (task.clusterTask == clusterTask) return &task;
  }
  return nullptr;
}

// --- LinksDouble ---

NodeDouble* LinksDouble::byLink(std::uint32_t link) {
  for (auto& [name, node] : nodes) {
    if (node.link == link && link != 0) return &node;
  }
  return nullptr;
}

void LinksDouble::handle(schema::Envelope::Reader message, Turn& turn) {
  heard.handle(message, turn);
  ASSERT_TRUE(message.isToMember());
  const auto words = message.getToMember();
  NodeDouble* node = byLink(words.getLink());
  if (node == nullptr) return;  // that connection is over
  if (words.isTurnedAway()) {
    node->turnedAway = text(words.getTurnedAway().getCode());
    node->link = 0;
    node->session = 0;
    return;
  }
  if (words.getTerm() < node->termSeen) return;
  if (words.isWelcome()) {
    node->session = words.getSession();
    node->term = node->termSeen = words.getTerm();
    node->seq = 0;
    node->leaseFrom = turn.now();
    return;
  }
  if (words.getSession() != node->session) return;
  const Send send = [&](const Fill& fill) {
    const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
      auto answer = envelope.initFromMember();
      answer.setLink(node->link);
      answer.setSession(node->session);
      answer.setSeq(++node->seq);
      fill(answer);
    });
    EXPECT_EQ(sent, SendResult::Sent);
  };
  if (words.isBind()) answerBind(*node, words.getBind(), send);
  if (words.isEnd()) answerEnd(*node, words.getEnd(), send);
}

void LinksDouble::answerBind(NodeDouble& node, schema::OrderBind::Reader bind, const Send& send) {
  if (!node.answers) return;
  const NodeDouble::Task* here = node.find(bind.getTask());
  const bool otherEpoch = here != nullptr && here->epoch != bind.getEpoch();
  if (otherEpoch || !node.refuses.empty()) {
    return send([&](schema::FromMember::Builder words) {
      auto refused = words.initRefused();
      refused.setTask(bind.getTask());
      refused.setEpoch(bind.getEpoch());
      refused.initFailure().setCode(otherEpoch ? "conflict" : "no-room");
      refused.getFailure().setMessage(otherEpoch ? "here with another epoch" : node.refuses);
    });
  }
  std::uint64_t nodeTask = 0;
  for (const auto& [id, task] : node.tasks) {
    if (task.clusterTask == bind.getTask()) nodeTask = id;
  }
  if (nodeTask == 0) {
    nodeTask = ++node.lastTask;
    NodeDouble::Task& task = node.tasks[nodeTask];
    task.clusterTask = bind.getTask();
    task.epoch = bind.getEpoch();
    task.spec = readSpec(bind.getSpec());
    task.cards = readTexts(bind.getCards(), 64);
  }
  send([&](schema::FromMember::Builder words) {
    auto bound = words.initBound();
    bound.setTask(bind.getTask());
    bound.setEpoch(bind.getEpoch());
    bound.setNodeTask(nodeTask);
    bound.setToken("token-" + node.name + "-" + std::to_string(nodeTask));
    bound.setCards(bind.getCards());
  });
}

void LinksDouble::answerEnd(NodeDouble& node, schema::OrderEnd::Reader end, const Send& send) {
  if (!node.ends) return;
  for (auto next = node.tasks.begin(); next != node.tasks.end();) {
    const auto task = next++;
    const bool same = end.getTask() == 0 ? task->first == end.getNodeTask()
                                         : task->second.clusterTask == end.getTask() &&
                                               task->second.epoch <= end.getEpoch();
    if (same) node.tasks.erase(task);
  }
  send([&](schema::FromMember::Builder words) {
    auto held = words.initTasks(1)[0];
    held.setNodeTask(end.getNodeTask());
    held.setClusterTask(end.getTask());
    held.setEpoch(end.getEpoch());
    held.setEnded(true);
  });
}

// --- ClusterWorld ---

ClusterWorld::ClusterWorld(ClusterOptions options)
    : fixture(options.seed), random_(options.seed != 1) {
  schedulerId = fixture.reserve();
  clientId = fixture.add(actor);
  linksId = fixture.add(links);
  SchedulerOptions scheduling;
  scheduling.version = "1";
  scheduling.pid = 7;
  scheduling.priority = options.priority;
  scheduling.firstTask = options.firstTask;
  scheduling.endedKept = options.endedKept;
  scheduling.rebuilds = options.rebuilds;
  scheduling.reportMsMax = options.reportMsMax;
  scheduling.unixMsAtZero = options.unixMsAtZero;
  scheduler = std::make_unique<SchedulerActor>(scheduling, SchedulerPeers{linksId}, options.rows);
  fixture.attach(schedulerId, *scheduler);
}

void ClusterWorld::run() {
  if (random_)
    fixture.runRandom();
  else
    fixture.run();
}

void ClusterWorld::start() {
  fixture.tellUrgent(clientId, schedulerId, [](schema::Envelope::Builder e) { e.initStart(); });
  run();
}

void ClusterWorld::restart() {
  fixture.remove(schedulerId);
  schedulerId = fixture.reserve();
  for (auto& [name, node] : links.nodes) {
    node.link = 0;
    node.session = 0;
  }
  SchedulerOptions scheduling;
  scheduling.version = "2";
  scheduler = std::make_unique<SchedulerActor>(scheduling, SchedulerPeers{linksId}, rows());
  fixture.attach(schedulerId, *scheduler);
  start();
}

void ClusterWorld::pass(Nanos time) {
  const Nanos until = fixture.now() + time;
  while (fixture.now() < until) {
    fixture.advance(std::min(seconds(1), until - fixture.now()));
    for (const auto& [name, node] : links.nodes) {
      if (node.link == 0 || node.session == 0) continue;
      say(name, [&](schema::FromMember::Builder words) {
        words.setBeat(static_cast<std::uint64_t>(fixture.now().value));
      });
    }
    run();
  }
}

NodeDouble& ClusterWorld::add(const std::string& name, std::size_t cards, std::int64_t gib) {
  NodeDouble& node = links.nodes[name];
  node.name = name;
  node.cards = cards;
  node.gib = gib;
  connect(name);
  return node;
}

void ClusterWorld::connect(const std::string& name) {
  NodeDouble& joining = node(name);
  joining.link = ++lastLink_;
  joining.session = 0;
  joining.turnedAway.clear();
  sayHello(joining);
  run();
}

void ClusterWorld::sayHello(NodeDouble& joining) {
  const SendResult sent = fixture.tell(linksId, schedulerId, [&](schema::Envelope::Builder e) {
    auto words = e.initFromMember();
    words.setLink(joining.link);
    auto hello = words.initHello();
    hello.setTermSeen(joining.termSeen);
    hello.setNonce(joining.link);
    writeNodeFacts(joining, hello.initFacts());
    writeTasks(joining, hello.initTasks(static_cast<unsigned>(joining.tasks.size())));
  });
  EXPECT_EQ(sent, SendResult::Sent);
}

void ClusterWorld::disconnect(const std::string& name) {
  const std::uint32_t link = std::exchange(node(name).link, 0);
  node(name).session = 0;
  const SendResult sent = fixture.tell(linksId, schedulerId, [&](schema::Envelope::Builder e) {
    auto words = e.initFromMember();
    words.setLink(link);
    words.setLost();
  });
  EXPECT_EQ(sent, SendResult::Sent);
  run();
}

void ClusterWorld::say(const std::string& name, const LinksDouble::Fill& fill) {
  NodeDouble& speaker = node(name);
  const SendResult sent = fixture.tell(linksId, schedulerId, [&](schema::Envelope::Builder e) {
    auto words = e.initFromMember();
    words.setLink(speaker.link);
    words.setSession(speaker.session);
    words.setSeq(++speaker.seq);
    fill(words);
  });
  EXPECT_EQ(sent, SendResult::Sent);
}

void ClusterWorld::sayHeld(const std::string& name, std::uint64_t nodeTask, bool ended) {
  const NodeDouble::Task task = node(name).tasks.at(nodeTask);
  if (ended) node(name).tasks.erase(nodeTask);
  say(name, [&](schema::FromMember::Builder words) {
    auto held = words.initTasks(1)[0];
    held.setNodeTask(nodeTask);
    held.setClusterTask(task.clusterTask);
    held.setEpoch(task.epoch);
    writeSpec(task.spec, held.initSpec());
    writeTexts(task.cards, held.initCards(static_cast<unsigned>(task.cards.size())));
    held.setEnded(ended);
  });
  run();
}

std::uint64_t ClusterWorld::send(const Fill& fill, As as) {
  const std::uint64_t corr = ++lastCorr_;
  const SendResult sent = fixture.tell(clientId, schedulerId, [&](schema::Envelope::Builder e) {
    auto request = e.initClusterRequest();
    request.setCorr(corr);
    request.setPeerUid(as.uid);
    request.setPeerPid(12);
    request.setMayChange(as.mayChange);
    fill(request);
  });
  EXPECT_EQ(sent, SendResult::Sent);
  return corr;
}

std::uint64_t ClusterWorld::ask(const Fill& fill, As as) {
  const std::uint64_t corr = send(fill, as);
  run();
  return corr;
}

std::size_t ClusterWorld::answers(std::uint64_t corr) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < actor.size(); ++i) {
    if (actor[i].isClusterReply()) count += actor[i].getClusterReply().getCorr() == corr ? 1 : 0;
  }
  return count;
}

schema::ClusterReply::Reader ClusterWorld::reply(std::uint64_t corr) const {
  for (std::size_t i = 0; i < actor.size(); ++i) {
    if (!actor[i].isClusterReply()) continue;
    if (actor[i].getClusterReply().getCorr() == corr) return actor[i].getClusterReply();
  }
  ADD_FAILURE() << "request " << corr << " was not answered";
  return schema::ClusterReply::Reader();
}

std::string ClusterWorld::code(std::uint64_t corr) const {
  const auto answer = reply(corr);
  return answer.isFailed() ? text(answer.getFailed().getCode()) : "ok";
}

std::string ClusterWorld::message(std::uint64_t corr) const {
  const auto answer = reply(corr);
  return answer.isFailed() ? text(answer.getFailed().getMessage()) : "";
}

ClusterSpec ClusterWorld::spec(TaskClass taskClass, std::int64_t gib, std::int64_t percent,
                               const std::string& node) {
  ClusterSpec spec;
  spec.task.name = "job";
  spec.task.taskClass = taskClass;
  spec.task.mem = gibibytes(gib);
  spec.task.share = Permille(percent * 10);
  spec.node = node;
  return spec;
}

ClusterWorld::Fill ClusterWorld::submit(const ClusterSpec& spec) {
  return [spec](schema::ClusterRequest::Builder r) { writeClusterSpec(spec, r.initSubmit()); };
}

std::uint64_t ClusterWorld::submitted(const ClusterSpec& spec, As as) {
  const std::uint64_t corr = ask(submit(spec), as);
  const auto answer = reply(corr);
  EXPECT_TRUE(answer.isAssigned()) << message(corr);
  return answer.isAssigned() ? answer.getAssigned().getTask() : 0;
}

PlaceState ClusterWorld::state(std::uint64_t task) const {
  const Job* job = scheduler->task(task);
  return job == nullptr ? PlaceState::Ended : job->state;
}

std::string ClusterWorld::placeOf(std::uint64_t task) const {
  for (const auto& [name, node] : links.nodes) {
    if (node.find(task) != nullptr) return name;
  }
  return "";
}

std::size_t ClusterWorld::holders(std::uint64_t task) const {
  std::size_t count = 0;
  for (const auto& [name, node] : links.nodes) count += node.find(task) != nullptr ? 1 : 0;
  return count;
}

std::vector<StoredRow> ClusterWorld::rows() {
  std::vector<StoredRow> rows;
  const auto take = [&](RowKey key) {
    if (!fixture.journal().has(key)) return;
    const auto row = fixture.journal().row(key);
    if (row.isErased()) return;  // as recovery does
    rows.push_back({key, flatten(row)});
  };
  take({RowKind::Cluster, 0});
  for (std::uint64_t id = 0; id < 64; ++id) take({RowKind::ClusterNode, id});
  for (std::uint64_t id = 1; id < 4096; ++id) take({RowKind::ClusterTask, id});
  for (std::uint64_t seq = 1; seq < 8192; ++seq) take({RowKind::Audit, seq});
  return rows;
}

std::size_t ClusterWorld::taskRows() {
  return rowsOf(rows(), false);
}
std::size_t ClusterWorld::endedRows() {
  return rowsOf(rows(), true);
}

}  // namespace qgpu::testing
