#include "tests/unit/actors/base/actors_world.h"

#include <cstdio>
#include <gtest/gtest.h>

namespace qgpu::testing {

void AttachDouble::handle(schema::Envelope::Reader message, Turn& turn) {
  heard.handle(message, turn);
  if (silent) return;
  if (message.isReportAsked()) return tellUse(turn);
  if (!message.isTaskKnown()) return;
  const std::uint64_t task = message.getTaskKnown().getTask();
  turn.sendUrgent(turn.sender(), [&](schema::Envelope::Builder envelope) {
    auto opened = envelope.initGateOpened();
    opened.setTask(task);
    opened.setFailed(failing);
  });
}

void AttachDouble::tellUse(Turn& turn) {
  std::uint64_t task = 0;  // the newest in the slot that asks
  for (const auto message : testing::heard(heard, schema::Envelope::TASK_KNOWN)) {
    const auto known = message.getTaskKnown();
    if (ActorId{known.getActor()} == turn.sender()) task = known.getTask();
  }
  const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
    auto used = envelope.initUsed();
    used.setTask(task);
    used.setLaunches(11);
  });
  EXPECT_EQ(sent, SendResult::Sent);
}

void CardDouble::handle(schema::Envelope::Reader message, Turn& turn) {
  heard.handle(message, turn);
  if (silent || !message.isReportAsked()) return;
  const std::uint64_t corr = message.getReportAsked().getCorr();
  const SendResult sent = turn.send(turn.sender(), [&](schema::Envelope::Builder envelope) {
    auto report = envelope.initCardReport();
    report.setCorr(corr);
    report.initStatus().initInfo().setIndex(index_);
    report.getStatus().setHolds(7);
  });
  EXPECT_EQ(sent, SendResult::Sent);
}

std::string CountingTokens::next() {
  char token[33];
  std::snprintf(token, sizeof token, "%032llx", static_cast<unsigned long long>(++last_));
  return token;
}

std::vector<schema::Envelope::Reader> heard(const Probe& probe, schema::Envelope::Which which) {
  std::vector<schema::Envelope::Reader> found;
  for (std::size_t i = 0; i < probe.size(); ++i) {
    if (probe[i].which() == which) found.push_back(probe[i]);
  }
  return found;
}

World::World(WorldOptions options) : fixture(options.seed), random_(options.seed != 1) {
  nodeId = fixture.reserve();
  clientId = fixture.add(actor);
  attachId = fixture.add(attach);
  std::vector<CardFacts> facts;
  for (std::size_t i = 0; options.ids.size() < options.cards; ++i) {
    options.ids.push_back("sim-" + std::to_string(i));
  }
  for (std::size_t i = 0; i < options.cards; ++i) {
    const auto index = static_cast<std::uint32_t>(i);
    cards.push_back(std::make_unique<CardDouble>(index));
    cardIds.push_back(fixture.add(*cards.back()));
    CardFacts& card = facts.emplace_back();
    card.id = options.ids[i];
    card.index = index;
    card.model = "imaginary";
    card.backend = "sim";
    card.mem = gibibytes(options.gib);
    card.suspend = options.suspend;
  }
  for (std::size_t i = 0; i < options.slots; ++i) {
    tasks.push_back(std::make_unique<TaskActor>(nodeId, attachId));
    taskIds.push_back(fixture.add(*tasks.back()));
  }
  NodeOptions nodeOptions;
  nodeOptions.name = "here";
  nodeOptions.version = "1";
  nodeOptions.pid = kPid;
  nodeOptions.incarnation = options.incarnation;
  nodeOptions.lastTask = options.lastTask;
  nodeOptions.living = options.living;
  nodeOptions.policy = options.policy;
  nodeOptions.mixed = options.mixed;
  nodeOptions.labelled = options.labelled;
  nodeOptions.maxTasksPerCard = options.tasksMax;
  nodeOptions.attachSocket = "/run/qgpu/attach.sock";
  if (options.member) memberId = fixture.reserve();
  node = std::make_unique<NodeActor>(nodeOptions, NodePeers{attachId, cardIds, taskIds, memberId},
                                     facts, tokens, options.rows, options.survivors);
  fixture.attach(nodeId, *node);
}

void World::run() {
  if (random_)
    fixture.runRandom();
  else
    fixture.run();
}

void World::start() {
  fixture.tellUrgent(clientId, nodeId, [](schema::Envelope::Builder e) { e.initStart(); });
  run();
}

std::uint64_t World::send(const Fill& fill, As as) {
  const std::uint64_t corr = ++lastCorr_;
  const SendResult sent = fixture.tell(clientId, nodeId, [&](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(corr);
    request.setPeerUid(as.uid);
    request.setPeerPid(as.pid);
    request.setMayChange(as.mayChange);
    fill(request);
  });
  EXPECT_EQ(sent, SendResult::Sent);
  return corr;
}

std::uint64_t World::ask(const Fill& fill, As as) {
  const std::uint64_t corr = send(fill, as);
  run();
  return corr;
}

std::size_t World::answers(std::uint64_t corr) const {
  std::size_t count = 0;
  for (const auto message : heard(actor, schema::Envelope::REPLY)) {
    count += message.getReply().getCorr() == corr ? 1 : 0;
  }
  return count;
}

bool World::answered(std::uint64_t corr) const {
  return answers(corr) != 0;
}

schema::Reply::Reader World::reply(std::uint64_t corr) const {
  for (const auto message : heard(actor, schema::Envelope::REPLY)) {
    if (message.getReply().getCorr() == corr) return message.getReply();
  }
  ADD_FAILURE() << "request " << corr << " was not answered";
  return schema::Reply::Reader();
}

std::string World::code(std::uint64_t corr) const {
  const auto answer = reply(corr);
  return answer.isFailed() ? text(answer.getFailed().getCode()) : "ok";
}

std::string World::message(std::uint64_t corr) const {
  const auto answer = reply(corr);
  return answer.isFailed() ? text(answer.getFailed().getMessage()) : "";
}

TaskSpec World::spec(TaskClass taskClass, std::int64_t gib, std::int64_t percent,
                     std::string card) {
  TaskSpec spec;
  spec.name = "job";
  spec.taskClass = taskClass;
  spec.mem = gibibytes(gib);
  spec.share = Permille(percent * 10);
  spec.card = std::move(card);
  return spec;
}

World::Fill World::bind(const TaskSpec& spec) {
  return [spec](schema::Request::Builder request) { writeSpec(spec, request.initBind()); };
}

std::uint64_t World::bound(const TaskSpec& spec, As as) {
  const std::uint64_t corr = ask(bind(spec), as);
  const auto answer = reply(corr);
  EXPECT_TRUE(answer.isBound()) << message(corr);
  return answer.isBound() ? answer.getBound().getTask() : 0;
}

// The task actor that the attach server was told of, like the real one learns it.
ActorId World::actorOf(std::uint64_t task) const {
  for (const auto message : heard(attach.heard, schema::Envelope::TASK_KNOWN)) {
    if (message.getTaskKnown().getTask() == task) {
      return ActorId{message.getTaskKnown().getActor()};
    }
  }
  ADD_FAILURE() << "the attach server does not know task " << task;
  return taskIds.front();
}

void World::attached(std::uint64_t task, std::uint32_t slot) {
  fixture.tellUrgent(attachId, actorOf(task), [&](schema::Envelope::Builder envelope) {
    auto attachedTo = envelope.initProcessAttached();
    attachedTo.setTask(task);
    attachedTo.setPid(100 + slot);
    attachedTo.setSlot(slot);
  });
  run();
}

void World::gone(std::uint64_t task, std::uint32_t slot, bool last) {
  fixture.tellUrgent(attachId, actorOf(task), [&](schema::Envelope::Builder envelope) {
    auto left = envelope.initProcessGone();
    left.setTask(task);
    left.setPid(100 + slot);
    left.setSlot(slot);
    left.setLast(last);
  });
  run();
}

void World::ownerGone(std::uint64_t task) {
  fixture.tellUrgent(attachId, nodeId, [&](schema::Envelope::Builder envelope) {
    envelope.initOwnerGone().setTask(task);
  });
  run();
}

void World::incarnationSeen(std::uint32_t value) {
  fixture.tellUrgent(attachId, nodeId, [&](schema::Envelope::Builder envelope) {
    envelope.initIncarnationSeen().setValue(value);
  });
  run();
}

std::uint32_t World::storedIncarnation() {
  const RowKey key{RowKind::Node, 0};
  if (!fixture.journal().has(key)) return 0;
  return fixture.journal().row(key).getNode().getIncarnation();
}

std::vector<StoredRow> World::rows() {
  std::vector<StoredRow> rows;
  const auto take = [&](RowKey key) {
    if (!fixture.journal().has(key)) return;
    const auto row = fixture.journal().row(key);
    if (row.isErased()) return;  // as recovery does
    rows.push_back({key, flatten(row)});
  };
  take({RowKind::Node, 0});
  for (std::uint64_t id = 0; id < 64; ++id) take({RowKind::Card, id});
  for (std::uint64_t id = 1; id < 256; ++id) take({RowKind::Task, id});
  for (std::uint64_t seq = 1; seq < 8192; ++seq) take({RowKind::Audit, seq});
  return rows;
}

std::size_t World::taskRows() {
  std::size_t count = 0;
  for (const StoredRow& row : rows()) count += row.key.kind == RowKind::Task ? 1 : 0;
  return count;
}

}  // namespace qgpu::testing
