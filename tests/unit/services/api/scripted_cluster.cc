#include "tests/unit/services/api/scripted_cluster.h"

#include "services/api/commands/schema_names.h"

namespace qgpu::testing {
namespace {

void fillNode(schema::ClusterNode::Builder node) {
  node.setName("node-a");
  node.setState(schema::ClusterNode::State::ALIVE);
  node.setCards(2);
  node.setTasks(1);
  node.setMemBytes(32ULL << 30);
  node.setMemBound(4ULL << 30);
  node.setShareBound(300);
}

void fillTask(schema::ClusterTask::Builder task) {
  task.setId(7);
  task.setEpoch(2);
  task.setState(schema::PlaceState::BOUND);
  task.setTaskState(schema::TaskState::RUNNING);
  task.setNode("node-a");
  auto cards = task.initCards(2);
  cards.set(0, "sim-0");
  cards.set(1, "sim-1");
  auto spec = task.initSpec().initTask();
  spec.setName("train\n");
  spec.setClass(schema::TaskClass::ORDINARY);
  spec.setMemBytes(4ULL << 30);
  spec.setSharePermille(1000);
  spec.setCards(2);
}

void fillAssigned(schema::Assigned::Builder assigned, bool waits) {
  assigned.setTask(7);
  assigned.setEpoch(1);
  assigned.setWaiting(waits);
  if (waits) return assigned.setReason("MemShort: no card has 20 GiB free");
  assigned.setNode("node-a");
  assigned.initCards(1).set(0, "sim-1");
  assigned.setNodeTask(3);
  assigned.setToken("secret");
  assigned.setAttachSocket("/run/qgpu/attach.sock");
  auto environment = assigned.initEnvironment(3);
  environment.set(0, "POCL_DEVICES=pthread");
  environment.set(1, "LD_PRELOAD=/tmp/evil.so");  // as schedulers of before passed on
  environment.set(2, "QGPU_TOKEN=secret");
}

void fillExplanation(schema::Explanation::Builder explanation) {
  explanation.setTask(7);
  explanation.setConsidered(2);
  explanation.setText("waits: no card has 20 GiB free");
  explanation.setRemedy("end task 3");
  auto verdict = explanation.initNodes(1)[0];
  verdict.setNode("node-a");
  verdict.setCard("sim-0");
  verdict.setReason("MemShort");
  verdict.setText("4 GiB short");
  auto count = explanation.initCounts(1)[0];
  count.setReason("MemShort");
  count.setCards(2);
}

void fillWhatIf(schema::WhatIfAnswer::Builder answer) {
  auto landing = answer.initLanded(1)[0];
  landing.setTask(7);
  landing.setNode("node-a");
  landing.initCards(1).set(0, "sim-0");
  landing.initEvicts(1).set(0, 3);
  answer.initStay(1)[0].setReason("MemShort");
  answer.setAllocatedBefore(100);
  answer.setAllocatedAfter(200);
}

}  // namespace

SendResult ScriptedCluster::send(Build build) {
  auto message = std::make_unique<capnp::MallocMessageBuilder>();
  build(message->initRoot<schema::Envelope>());
  asked_.push_back(std::move(message));
  const auto request = last();
  tasks_.add(kj::evalLater([this, request]() {
    capnp::MallocMessageBuilder reply;
    answer(request, reply.initRoot<schema::ClusterReply>());
    actor->onReply(reply.getRoot<schema::ClusterReply>().asReader());
  }));
  return SendResult::Sent;
}

void ScriptedCluster::answer(schema::ClusterRequest::Reader request,
                             schema::ClusterReply::Builder reply) {
  reply.setCorr(request.getCorr());
  if (failNext) {
    auto failed = reply.initFailed();
    failed.setCode(errorName(failNext->code));
    failed.setMessage(ptr(failNext->message));
    failNext.reset();
    return;
  }
  switch (request.which()) {
    case schema::ClusterRequest::INFO: {
      auto info = reply.initInfo();
      info.setVersion("9.9");
      info.setTerm(4);
      info.setNodes(1);
      info.setAlive(1);
      info.setPriority(schema::Score::SPREAD);
      info.setStorage(ptr(storage));
      return;
    }
    case schema::ClusterRequest::NODES:
      return fillNode(reply.initNodes(1)[0]);
    case schema::ClusterRequest::CARDS: {
      auto card = reply.initCards(1)[0];
      card.setNode("node-a");
      card.initStatus().initInfo().setId("sim-0");
      return;
    }
    case schema::ClusterRequest::TASKS: {
      const std::uint64_t page = request.getPage().getAfter();  // each page has one task
      fillTask(reply.initTasks(1)[0]);
      if (request.hasPage() && page + 1 < pages) reply.setNext(page + 1);
      if (request.hasPage() && stuck) reply.setNext(1);
      return;
    }
    case schema::ClusterRequest::SUBMIT:
      return fillAssigned(reply.initAssigned(), waits);
    case schema::ClusterRequest::EXPLAIN:
    case schema::ClusterRequest::EXPLAIN_SPEC:
      return fillExplanation(reply.initExplanation());
    case schema::ClusterRequest::PREEMPT:
    case schema::ClusterRequest::WHAT_IF:
      return fillWhatIf(reply.initWhatIf());
    case schema::ClusterRequest::EVENTS: {
      auto event = reply.initEvents(request.getEvents() == 0 ? 1 : 0);
      if (event.size() > 0) event[0].setSeq(1);
      return;
    }
    default:
      return reply.setDone("done");
  }
}

}  // namespace qgpu::testing
