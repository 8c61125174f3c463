// What members say and hear, see actors/member/member_actor.h for a real node's part.
#include <algorithm>

#include "actors/base/codec.h"
#include "actors/member/held_record.h"
#include "runtime/config.h"
#include "services/base/kj_time.h"
#include "services/kubernetes/bridge/cluster_bridge.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

constexpr Nanos kBeatMin = millis(10);

}  // namespace

// --- messages that leave ---

// Built where it goes to, or kept until the mailbox has room: no word is lost or out of order.
void ClusterBridge::put(Node& node, const Say& fill) {
  if (node.messages.empty()) {
    const SendResult sent = scheduler_.send(
        [&](schema::Envelope::Builder envelope) { fill(envelope.initFromMember()); });
    if (sent == SendResult::Sent) return;
  }
  auto kept = kj::heap<capnp::MallocMessageBuilder>();
  fill(kept->initRoot<schema::FromMember>());
  node.messages.push_back(kj::mv(kept));
}

void ClusterBridge::flush(Node& node) {
  while (!node.messages.empty()) {
    const auto message = node.messages.front()->getRoot<schema::FromMember>().asReader();
    const SendResult sent = scheduler_.send(
        [&](schema::Envelope::Builder envelope) { envelope.setFromMember(message); });
    if (sent == SendResult::Refused) return;
    node.messages.pop_front();
  }
}

void ClusterBridge::say(Node& node, const Say& fill) {
  if (node.life != Life::Joined) return;
  if (node.messages.size() >= options_.messagesMax) return leave(node, options_.retryAfter);
  const std::uint64_t seq = ++node.seq;
  put(node, [&](schema::FromMember::Builder message) {
    message.setLink(node.link);
    message.setSession(node.session);
    message.setSeq(seq);
    fill(message);
  });
}

// --- a node's session ---

void ClusterBridge::look(Node& node) {
  flush(node);
  const kj::TimePoint now = timer_.now();
  if (node.life != Life::Away && !node.cards) return leave(node, Nanos(0));
  switch (node.life) {
    case Life::Away:
      if (node.cards && node.kube.ready && node.messages.empty() && node.due <= now) greet(node);
      return;
    case Life::Greeting:
      if (node.due <= now) leave(node, options_.retryAfter);
      return;
    case Life::Joined:
      // A node that is not Ready falls silent, and is suspect and lost as any other.
      if (!node.kube.ready || node.due > now) return;
      node.due = now + toKj(node.beatEvery);
      say(node, [&](schema::FromMember::Builder message) {
        message.setBeat(
            static_cast<std::uint64_t>((now - kj::origin<kj::TimePoint>()) / kj::NANOSECONDS));
      });
      return;
  }
}

void ClusterBridge::greet(Node& node) {
  do {
    lastLink_ = (lastLink_ + 1) & (kLocalLinks - 1);
  } while (links_.contains(kLocalLinks + lastLink_));
  node.link = kLocalLinks + lastLink_;
  links_[node.link] = &node;
  node.life = Life::Greeting;
  node.factsLate = false;
  node.nonce = chance_.next();
  node.due = timer_.now() + toKj(options_.helloMax);
  put(node, [&](schema::FromMember::Builder message) {
    message.setLink(node.link);
    auto hello = message.initHello();
    hello.setNonce(node.nonce);
    writeFacts(node, hello.initFacts());
    auto tasks = hello.initTasks(static_cast<unsigned>(node.held.size() + node.gone.size()));
    unsigned i = 0;
    for (const auto& [request, held] : node.held) writeNodeTask(held, false, tasks[i++]);
    for (const NodeTask& held : node.gone) writeNodeTask(held, true, tasks[i++]);
  });
  node.changed.clear();
  node.gone.clear();
}

void ClusterBridge::leave(Node& node, Nanos pause) {
  links_.erase(node.link);
  put(node, [&](schema::FromMember::Builder message) {
    message.setLink(node.link);
    message.setLost();
  });
  node.life = Life::Away;
  node.link = 0;
  node.session = 0;
  node.seq = 0;
  node.due = timer_.now() + toKj(pause);
}

void ClusterBridge::tellChanges(Node& node) {
  if (node.life != Life::Joined || (node.changed.empty() && node.gone.empty())) return;
  say(node, [&](schema::FromMember::Builder message) {
    auto tasks = message.initTasks(static_cast<unsigned>(node.changed.size() + node.gone.size()));
    unsigned i = 0;
    for (const std::string& request : node.changed) {
      writeNodeTask(node.held.at(request), false, tasks[i++]);
    }
    for (const NodeTask& held : node.gone) writeNodeTask(held, true, tasks[i++]);
  });
  node.changed.clear();
  node.gone.clear();
}

// --- messages of the scheduler ---

void ClusterBridge::onToMember(schema::ToMember::Reader message) {
  const auto found = links_.find(message.getLink());
  if (found == links_.end()) return;
  Node& node = *found->second;
  if (message.isTurnedAway()) {
    node.answered = true;
    log_.warn("kube-node-turned-away",
              {{"node", node.kube.name}, {"why", text(message.getTurnedAway().getMessage())}});
    return leave(node, options_.retryAfter);
  }
  if (message.isWelcome()) return onWelcome(node, message);
  if (node.life != Life::Joined || message.getSession() != node.session) return;
  if (message.isBind()) return onBind(node, message.getBind());
  if (message.isEnd()) return onEnd(node, message.getEnd());
  if (message.isMark()) return onMark(node, message.getMark());
}

void ClusterBridge::onWelcome(Node& node, schema::ToMember::Reader message) {
  const auto welcome = message.getWelcome();
  if (node.life != Life::Greeting || welcome.getNonce() != node.nonce) return;
  node.life = Life::Joined;
  node.answered = true;
  node.session = message.getSession();
  node.seq = 0;
  node.beatEvery =
      std::max(kBeatMin, Nanos(std::min(bounded(welcome.getBeatNs()), seconds(600).value)));
  // Thousands that joined at once do not beat at once for ever.
  const auto spread = static_cast<std::int64_t>(chance_.next() % 1000);
  node.due = timer_.now() + toKj(Nanos(mulDiv(node.beatEvery.value, spread, 1000)));
  if (std::exchange(node.factsLate, false) && node.cards) {
    say(node, [&](schema::FromMember::Builder facts) { writeFacts(node, facts.initFacts()); });
  }
  tellChanges(node);
}

void ClusterBridge::refuse(Node& node, schema::OrderBind::Reader order, const Error& why) {
  say(node, [&](schema::FromMember::Builder message) {
    auto refused = message.initRefused();
    refused.setTask(order.getTask());
    refused.setEpoch(order.getEpoch());
    writeFailure(why, refused.initFailure());
  });
}

// Who else binds it has no say here, and its name tells.
std::optional<PodRef> ClusterBridge::podOf(const TaskSpec& spec) const {
  const std::string uid(podUidOf(spec.requestId));
  if (uid.empty()) return std::nullopt;
  if (const auto bind = options_.bindOf(uid)) return bind->pod;
  const std::optional<PodTaskParts> parts = podTaskParts(spec.name);
  if (!parts) return std::nullopt;
  return PodRef{std::string(parts->nameSpace), std::string(parts->pod), uid};
}

void ClusterBridge::onBind(Node& node, schema::OrderBind::Reader order) {
  TaskSpec spec = readSpec(order.getSpec());
  spec.clusterTask = order.getTask();
  spec.clusterEpoch = order.getEpoch();
  std::optional<PodRef> pod = podOf(spec);
  if (!pod) {
    return refuse(
        node, order,
        fail(ErrorCode::Unsupported, "on a Kubernetes node tasks are containers of pods"));
  }
  const std::string key = keyOfTask(spec);
  auto found = node.held.find(key);
  if (found != node.held.end() && found->second.spec.clusterTask != order.getTask()) {
    const bool seen = found->second.seen;
    if (!seen) settleAt(timer_.now(), node, found->second);
    return refuse(node, order,
                  seen ? fail(ErrorCode::Conflict, "its pod is bound here already")
                       : fail(ErrorCode::Unavailable,
                              "what became of an earlier bind of its pod is being asked"));
  }
  if (found == node.held.end()) {
    if (apiAway() || !options_.mayBind()) {
      return refuse(node, order,
                    fail(ErrorCode::Unavailable, apiAway() ? "the API server does not answer"
                                                           : "the lease could not be renewed"));
    }
    NodeTask held;
    for (const auto card : order.getCards()) held.cards.push_back(text(card));
    held.nodeTask = spec.clusterTask;
    held.spec = std::move(spec);
    held.pod = std::move(*pod);
    found = node.held.emplace(key, std::move(held)).first;
    settleAt(timer_.now() + toKj(options_.assumeMax), node, found->second);
  } else if (order.getEpoch() < found->second.spec.clusterEpoch) {
    return;  // a later decision was made
  } else {
    const bool later = order.getEpoch() > found->second.spec.clusterEpoch;
    found->second.spec.clusterEpoch = order.getEpoch();
    if (later && !found->second.seen) {
      settleAt(timer_.now() + toKj(options_.assumeMax), node, found->second);
    }
  }
  sayBound(node, order, found->second);
}

void ClusterBridge::sayBound(Node& node, schema::OrderBind::Reader order, const NodeTask& held) {
  say(node, [&](schema::FromMember::Builder message) {
    auto bound = message.initBound();
    bound.setTask(order.getTask());
    bound.setEpoch(order.getEpoch());
    bound.setNodeTask(held.nodeTask);
    auto cards = bound.initCards(static_cast<unsigned>(held.cards.size()));
    for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, held.cards[i]);
  });
}

void ClusterBridge::onEnd(Node& node, schema::OrderEnd::Reader order) {
  const auto ours = [&](const auto& entry) {
    const NodeTask& held = entry.second;
    return held.spec.clusterTask != 0 ? held.spec.clusterTask == order.getTask()
                                      : held.nodeTask == order.getNodeTask();
  };
  const auto found = std::find_if(node.held.begin(), node.held.end(), ours);
  if (found == node.held.end() || found->second.spec.clusterEpoch < order.getEpoch()) {
    // It is not here, and with this epoch will not be.
    NodeTask over;
    over.spec.clusterTask = order.getTask();
    over.spec.clusterEpoch = order.getEpoch();
    over.nodeTask = order.getNodeTask();
    node.gone.push_back(std::move(over));
    return tellChanges(node);
  }
  NodeTask& held = found->second;
  if (held.spec.clusterEpoch > order.getEpoch()) return;
  held.why = text(order.getReason());
  if (held.seen) return beginEviction(node, found->first, held);
  const auto bind = options_.bindOf(podUidOf(held.spec.requestId));
  if (bind && !bind->written) return release(node.kube.name, found->first);
  held.ending = true;
  settleAt(timer_.now(), node, held);
}

// --- marks ---

std::set<std::string> ClusterBridge::cordonedOf(const Node& node) const {
  std::set<std::string> cordoned = readCordonedCards(node.kube.cordoned);
  for (const auto& [card, isCordoned] : node.marks) {
    if (isCordoned) {
      cordoned.insert(card);
    } else {
      cordoned.erase(card);
    }
  }
  return cordoned;
}

// A card that drains is cordoned: the scheduler moves what is on it.
void ClusterBridge::onMark(Node& node, schema::OrderMark::Reader order) {
  const std::string card = text(order.getCard());
  const bool isHere =
      node.cards && std::any_of(node.cards->cards.begin(), node.cards->cards.end(),
                                [&](const AnnotatedCard& one) { return one.id == card; });
  if (!isHere) return;
  node.marks[card] = order.getMark() != schema::OrderMark::Mark::UNCORDON;
  node.markAt = timer_.now();
  say(node, [&](schema::FromMember::Builder message) { writeFacts(node, message.initFacts()); });
}

// The API server keeps them for whoever comes after this process.
void ClusterBridge::writeMarks(Node& node) {
  if (!node.markAt || *node.markAt > timer_.now()) return;
  node.markAt = timer_.now() + toKj(options_.markEvery);
  const std::string& name = node.kube.name;
  const std::string wanted = writeCordonedCards(cordonedOf(node));
  tasks_.add(writer_.annotateNode(name, {{kCordonedAnnotation, wanted}})
                 .then([this, name, wanted](Status done) {
                   const auto found = nodes_.find(name);
                   if (found == nodes_.end()) return;
                   if (!done) {
                     log_.warn("kube-mark", {{"node", name}, {"why", done.error().message}});
                   } else if (writeCordonedCards(cordonedOf(found->second)) == wanted) {
                     found->second.markAt.reset();
                   }
                 }));
}

// --- what messages hold ---

void ClusterBridge::writeFacts(const Node& node, schema::NodeFacts::Builder facts) const {
  const CardsAnnotation& told = *node.cards;
  facts.setName(node.kube.name);
  facts.setVersion(told.version);
  facts.setIncarnation(1);
  facts.setMixed(node.kube.mixed);  // the label wins
  facts.setMaxTasksPerCard(told.maxTasksPerCard);
  facts.setAttachSocket(told.attachSocket);
  const auto policy = parsePolicy(node.kube.policy);
  const std::set<std::string> cordoned = cordonedOf(node);
  auto cards = facts.initCards(static_cast<unsigned>(told.cards.size()));
  for (unsigned i = 0; i < cards.size(); ++i) {
    const AnnotatedCard& card = told.cards[i];
    qgpu::writeFacts(card, cards[i].initInfo());
    const bool taken = card.health == schema::CardState::READY && cordoned.contains(card.id);
    cards[i].setState(taken ? schema::CardState::CORDONED : card.health);
    cards[i].setPolicy(policy ? *policy : card.policy);
    cards[i].setReportUnixMs(card.reportUnixMs);
  }
}

void ClusterBridge::writeNodeTask(const NodeTask& held, bool ended,
                                  schema::HeldTask::Builder builder) {
  writeBinding(held.nodeTask, held.spec, held.cards, builder);
  builder.setState(schema::TaskState::BOUND);
  builder.setEnded(ended);
}

}  // namespace qgpu
