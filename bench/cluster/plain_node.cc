#include "bench/cluster/plain_node.h"

#include <capnp/message.h>

#include "actors/base/codec.h"
#include "runtime/message_words.h"

namespace qgpu::bench {

void PlainNode::handle(schema::Envelope::Reader message, Turn& turn) {
  if (message.isTick()) resendArmed_ = false;
  if (message.isRequest()) {
    const auto request = message.getRequest();
    const std::uint64_t over = request.isEnd() ? find(request.getEnd()) : 0;
    capnp::MallocMessageBuilder built(64);
    answer(request, built.initRoot<schema::Reply>());
    Words words = flatten(built.getRoot<schema::Reply>().asReader());
    outbox_.put(turn.sender(), [words = std::move(words)](schema::Envelope::Builder envelope) {
      envelope.setReply(capnp::readMessageUnchecked<schema::Reply>(words.data()));
    });
    if (over != 0) tellEnded(over, turn.sender());
  }
  outbox_.flush(turn);
  if (outbox_.empty() || resendArmed_) return;
  resendArmed_ = true;
  turn.after(millis(5), [](schema::Envelope::Builder envelope) { envelope.initTick(); });
}

void PlainNode::answer(schema::Request::Reader request, Reply reply) {
  reply.setCorr(request.getCorr());
  switch (request.which()) {
    case schema::Request::INFO:
      return writeInfo(reply.initInfo());
    case schema::Request::CARDS:
      return writeCards(reply);
    case schema::Request::TASKS:
      return writeTasks(reply);
    case schema::Request::PLACE:
      return place(request.getPlace(), reply);
    case schema::Request::CLUSTER_TERM:
      term_ = request.getClusterTerm();
      return reply.setDone("stored");
    case schema::Request::STANDING:
      standing(text(request.getStanding()));
      return reply.setDone("noted");
    case schema::Request::END:
      if (find(request.getEnd()) != 0) return reply.setDone("ends");
      reply.initFailed().setCode(errorName(ErrorCode::NotFound));
      return;
    default:
      return reply.setDone("done");
  }
}

void PlainNode::place(schema::OrderBind::Reader order, Reply reply) {
  const auto [entry, isNew] = byCluster_.try_emplace(order.getTask(), lastTask_ + 1);
  if (isNew) {
    PlainTask& held = tasks_[++lastTask_];
    held.spec = readSpec(order.getSpec());
    for (const auto card : order.getCards()) held.cards.push_back(text(card));
    counts_.placed.fetch_add(1, std::memory_order_relaxed);
    if (!counts_.holders.emplace(order.getTask(), this).second) {
      counts_.twice.fetch_add(1, std::memory_order_relaxed);
    }
  }
  auto bound = reply.initBound();
  bound.setTask(entry->second);
  bound.setToken("0123456789abcdef0123456789abcdef");
  bound.setCards(order.getCards());
  bound.setAttachSocket("/run/qgpu/attach.sock");
}

std::uint64_t PlainNode::find(schema::OrderEnd::Reader order) const {
  const auto found = byCluster_.find(order.getTask());
  return found == byCluster_.end() ? 0 : found->second;
}

void PlainNode::tellEnded(std::uint64_t task, ActorId member) {
  const std::uint64_t number = tasks_.at(task).spec.clusterTask;
  byCluster_.erase(number);
  const auto holder = counts_.holders.find(number);
  if (holder != counts_.holders.end() && holder->second == this) counts_.holders.erase(holder);
  tasks_.erase(task);
  counts_.ended.fetch_add(1, std::memory_order_relaxed);
  outbox_.put(member, [task](schema::Envelope::Builder envelope) {
    auto event = envelope.initEventTold();
    event.setKind("task-ended");
    event.setTask(task);
  });
}

void PlainNode::standing(const std::string& text) {
  const bool now = text.starts_with("joined");
  if (now == joined_) return;
  joined_ = now;
  if (now)
    counts_.joined.fetch_add(1);
  else
    counts_.joined.fetch_sub(1);
}

void PlainNode::writeInfo(schema::NodeInfo::Builder info) const {
  info.setName(shape_.name);
  info.setVersion("bench");
  info.setIncarnation(1);
  info.setCards(shape_.cards);
  info.setMixed(true);
  info.setMaxTasksPerCard(shape_.tasksPerCard);
  info.setClusterTerm(term_);
}

void PlainNode::writeCards(Reply reply) const {
  auto cards = reply.initCards(shape_.cards);
  for (unsigned i = 0; i < shape_.cards; ++i) {
    auto info = cards[i].initInfo();
    info.setId("sim-" + std::to_string(i));
    info.setIndex(i);
    info.setModel("imaginary");
    info.setBackend("sim");
    info.setMemBytes(shape_.cardGib << 30);
  }
}

void PlainNode::writeTasks(Reply reply) const {
  auto tasks = reply.initTasks(static_cast<unsigned>(tasks_.size()));
  unsigned i = 0;
  for (const auto& [id, held] : tasks_) {
    auto task = tasks[i++];
    task.setId(id);
    writeSpec(held.spec, task.initSpec());
    std::string cards;
    for (const std::string& card : held.cards) cards += (cards.empty() ? "" : ",") + card;
    task.setCard(cards);
    task.setState(schema::TaskState::BOUND);
  }
}

}  // namespace qgpu::bench
