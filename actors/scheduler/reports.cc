// Answers to doors. They are written when they leave, from what is known then.
#include <algorithm>

#include "actors/base/tenant_environment.h"
#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

static_assert(static_cast<int>(PlaceState::Waiting) ==
              static_cast<int>(schema::PlaceState::WAITING));
static_assert(static_cast<int>(PlaceState::Lost) == static_cast<int>(schema::PlaceState::LOST));
static_assert(static_cast<int>(NodeLife::Lost) ==
              static_cast<int>(schema::ClusterNode::State::LOST));

std::uint64_t natural(std::int64_t value) {
  return value < 0 ? 0 : static_cast<std::uint64_t>(value);
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& one : texts) all += (all.empty() ? "" : ",") + one;
  return all;
}

}  // namespace

void SchedulerActor::reply(const Asker& asker,
                           std::function<void(schema::ClusterReply::Builder)> fill) {
  outbox_.putWithin(asker.door, kRepliesPerDoor,
                    [corr = asker.corr, fill = std::move(fill)](schema::Envelope::Builder e) {
                      auto answer = e.initClusterReply();
                      answer.setCorr(corr);
                      fill(answer);
                    });
}

void SchedulerActor::replyFailed(const Asker& asker, const Error& error) {
  reply(asker, [error](schema::ClusterReply::Builder answer) {
    answer.initFailed().setCode(errorName(error.code));
    answer.getFailed().setMessage(error.message);
  });
}

void SchedulerActor::replyDone(const Asker& asker, const std::string& said) {
  reply(asker, [said](schema::ClusterReply::Builder answer) { answer.setDone(said); });
}

void SchedulerActor::replyAssigned(const Asker& asker, std::uint64_t task) {
  const Job* living = this->task(task);
  const auto over = ended_.find(task);
  const Job* job = living != nullptr ? living : over == ended_.end() ? nullptr : &over->second;
  if (job == nullptr) {
    return replyFailed(
        asker, fail(ErrorCode::NotFound, "task " + std::to_string(task) + " ended long ago"));
  }
  reply(asker, [this, task, job = *job](schema::ClusterReply::Builder answer) {
    writeAssigned(task, job, answer.initAssigned());
  });
}

// Bound: with all that a launcher needs. Not to be bound soon: that it waits. Between the two the
// askers wait on.
void SchedulerActor::answerAskers(std::uint64_t task) {
  const auto found = jobs_.find(task);
  if (found == jobs_.end() || found->second.state == PlaceState::Assumed) return;
  Job& job = found->second;
  if (job.state == PlaceState::Ending && !job.again) return;  // answered at its end
  for (const Asker& asker : std::exchange(job.askers, {})) {
    replyAssigned(asker, task);
    if (QGPU_PLANTED(AnsweredTwice)) replyAssigned(asker, task);
  }
}

void SchedulerActor::writeAssigned(std::uint64_t task, const Job& job,
                                   schema::Assigned::Builder builder) const {
  builder.setTask(task);
  builder.setEpoch(job.epoch);
  if (!job.member || job.boundUnixMs == 0 || job.again) {
    builder.setReason(reasonOf(task, job));
    return builder.setWaiting(true);
  }
  const MemberFacts& facts = at(*job.member).facts;
  builder.setNode(facts.ledger.name);
  writeTexts(job.cards, builder.initCards(static_cast<unsigned>(job.cards.size())));
  builder.setNodeTask(job.nodeTask);
  builder.setToken(job.token);
  std::vector<std::string> environment = facts.environment;
  for (const Variables& part : {Variables{{"QGPU_TOKEN", job.token}}, cardVariables(job.cards)}) {
    for (std::string& variable : assignments(part)) environment.push_back(std::move(variable));
  }
  writeTexts(environment, builder.initEnvironment(static_cast<unsigned>(environment.size())));
}

void SchedulerActor::replyInfo(const Asker& asker, Turn& turn) {
  const Nanos uptime = startAsked_ ? turn.now() - startedAt_ : Nanos(0);
  reply(asker, [this, uptime](schema::ClusterReply::Builder answer) {
    auto info = answer.initInfo();
    info.setTerm(term_);
    info.setVersion(options_.version);
    info.setPid(options_.pid);
    info.setUptimeNs(natural(uptime.value));
    info.setNodes(static_cast<std::uint32_t>(members_.size()));
    info.setAlive(static_cast<std::uint32_t>(membership_.alive()));
    info.setCards(static_cast<std::uint32_t>(ledger_.sums().cards));
    info.setTasks(static_cast<std::uint32_t>(jobs_.size()));
    info.setWaiting(static_cast<std::uint32_t>(waiting_.size()));
    info.setPriority(word(priority_));
    info.setStorage(storageText_);
    info.setDecisions(decisions_);
    writeReasons(info);
  });
}

// Nodes are known by their places, which they keep: a page of nodes or cards ends behind one.
void SchedulerActor::replyNodes(const Asker& asker, const ListPart& part) {
  reply(asker, [this, part](schema::ClusterReply::Builder answer) {
    const std::size_t from = std::min<std::size_t>(part.after, members_.size());
    const std::size_t to = from + std::min(part.most, members_.size() - from);
    auto list = answer.initNodes(static_cast<unsigned>(to - from));
    for (unsigned i = 0; i < list.size(); ++i) {
      writeNode(static_cast<MemberId>(from + i), list[i]);
    }
    if (to < members_.size()) answer.setNext(to);
  });
}

void SchedulerActor::writeNode(MemberId member, schema::ClusterNode::Builder builder) const {
  const ClusterMember& node = at(member);
  builder.setName(node.facts.ledger.name);
  builder.setState(static_cast<schema::ClusterNode::State>(membership_.life(member)));
  builder.setCards(static_cast<std::uint32_t>(node.facts.ledger.cards.size()));
  builder.setTasks(static_cast<std::uint32_t>(node.jobs.size()));
  builder.setCordoned(node.marks.cordoned);
  builder.setDraining(node.marks.drains.contains(""));
  builder.setMixed(node.facts.ledger.mixed);
  builder.setVersion(node.facts.version);
  builder.setSinceUnixMs(node.sinceUnixMs);
  builder.setCpuMilli(natural(node.facts.ledger.cpuMilli));
  builder.setHostMemBytes(natural(node.facts.ledger.hostMem.value));
  if (!node.node) return;
  builder.setCpuBound(natural(ledger_.cpuBound(*node.node)));
  builder.setHostMemBound(natural(ledger_.hostMemBound(*node.node).value));
  std::int64_t mem = 0, bound = 0, share = 0, greedy = 0;
  for (std::size_t card = 0; card < node.facts.ledger.cards.size(); ++card) {
    const CardRoom& room = ledger_.room(*node.node, card);
    mem += room.mem.value;
    bound += room.memBound.value;
    share += room.ordinary.value;
    greedy += room.greedy.value;
  }
  builder.setMemBytes(natural(mem));
  builder.setMemBound(natural(bound));
  builder.setShareBound(natural(share));
  builder.setGreedyBound(natural(greedy));
}

// The cards of one node stay together, so a page holds up to kNodeCardsMax - 1 more.
void SchedulerActor::replyCards(const Asker& asker, const ListPart& part) {
  reply(asker, [this, part](schema::ClusterReply::Builder answer) {
    const std::size_t from = std::min<std::size_t>(part.after, members_.size());
    std::size_t to = from;
    std::size_t cards = 0;
    for (; to < members_.size() && cards < part.most; ++to) {
      if (members_[to].node) cards += members_[to].facts.cards.size();
    }
    auto list = answer.initCards(static_cast<unsigned>(cards));
    unsigned next = 0;
    for (std::size_t i = from; i < to; ++i) {
      const ClusterMember& node = members_[i];
      if (!node.node) continue;
      for (std::size_t card = 0; card < node.facts.cards.size(); ++card) {
        writeCard(node, card, list[next++]);
      }
    }
    if (to < members_.size()) answer.setNext(to);
  });
}

void SchedulerActor::writeCard(const ClusterMember& node, std::size_t card,
                               schema::ClusterCard::Builder builder) const {
  const CardRoom& room = ledger_.room(*node.node, card);
  builder.setNode(node.facts.ledger.name);
  auto status = builder.initStatus();
  writeFigures(node.facts.cards[card].figures, status);
  writeFacts(node.facts.cards[card].facts, status.initInfo());
  schema::CardState state = schema::CardState::READY;
  if (room.mark != CardMark::Ready) state = schema::CardState::CORDONED;
  if (room.mark == CardMark::Starting) state = schema::CardState::STARTING;
  if (room.mark == CardMark::Draining && room.tasks != 0) state = schema::CardState::DRAINING;
  if (!room.healthy) state = schema::CardState::QUARANTINED;
  status.setState(state);
  status.setPolicy(word(room.policy));
  status.setTenancy(word(room.tenancy()));
  status.setTasks(room.tasks);
  status.setMemBound(natural(room.memBound.value));
  status.setShareBound(static_cast<std::uint32_t>(natural(room.ordinary.value)));
  status.setGreedyBound(static_cast<std::uint32_t>(natural(room.greedy.value)));
}

// All that live; a page ends behind the task that is its `next`.
void SchedulerActor::replyAllTasks(const Asker& asker, const ListPart& part) {
  reply(asker, [this, part](schema::ClusterReply::Builder answer) {
    auto job = jobs_.upper_bound(part.after);
    std::size_t count = 0;
    for (auto end = job; end != jobs_.end() && count < part.most; ++end) ++count;
    auto list = answer.initTasks(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i, ++job) {
      writeTask(job->first, job->second, list[i]);
      if (i + 1 == count && std::next(job) != jobs_.end()) answer.setNext(job->first);
    }
  });
}

// Also those that ended not long ago.
void SchedulerActor::replyTasks(const Asker& asker, const std::vector<std::uint64_t>& ids) {
  std::vector<std::pair<std::uint64_t, Job>> found;
  for (const std::uint64_t id : ids) {
    const auto over = ended_.find(id);
    if (const Job* job = task(id)) {
      found.emplace_back(id, *job);
    } else if (over != ended_.end()) {
      found.emplace_back(id, over->second);
    }
  }
  if (found.empty()) {
    return replyFailed(
        asker, fail(ErrorCode::NotFound, "no task " + std::to_string(ids[0]) + " in this cluster"));
  }
  reply(asker, [this, found = std::move(found)](schema::ClusterReply::Builder answer) {
    auto list = answer.initTasks(static_cast<unsigned>(found.size()));
    for (unsigned i = 0; i < list.size(); ++i) writeTask(found[i].first, found[i].second, list[i]);
  });
}

void SchedulerActor::writeTask(std::uint64_t task, const Job& job,
                               schema::ClusterTask::Builder builder) const {
  writeDurable(task, job, builder);
  if (job.state == PlaceState::Waiting) builder.setReason(reasonOf(task, job));
  builder.setTaskState(word(job.phase));
  auto use = builder.initUse();
  use.setGpuNs(job.figures.gpuNs);
  use.setLaunches(job.figures.launches);
  use.setMemBytes(job.figures.memBytes);
  use.setMemPeak(job.figures.memPeak);
  use.setProcesses(job.figures.processes);
  use.setUsedNs(job.usedNs);
  use.setHeldNs(job.heldNs);
}

void SchedulerActor::replyEvents(const Asker& asker, std::uint64_t since) {
  std::vector<EventRecord> found;
  for (const EventRecord* event : events_.after(since)) found.push_back(*event);
  reply(asker, [found = std::move(found)](schema::ClusterReply::Builder answer) {
    auto list = answer.initEvents(static_cast<unsigned>(found.size()));
    for (unsigned i = 0; i < list.size(); ++i) writeEvent(found[i], list[i]);
  });
}

// --- explanations ---

void SchedulerActor::explainTask(const Asker& asker, std::uint64_t task) {
  const Job* job = this->task(task);
  if (job == nullptr) {
    const auto over = ended_.find(task);
    const std::string name = "task " + std::to_string(task);
    return replyFailed(asker, fail(ErrorCode::NotFound,
                                   over == ended_.end() ? "no " + name + " in this cluster"
                                                        : name + " ended: " + over->second.reason));
  }
  std::string said = "ends on node ";
  switch (job->state) {
    case PlaceState::Waiting:
      said = "waits: " + reasonOf(task, *job);
      break;
    case PlaceState::Assumed:
      said = "is about to be bound on node ";
      break;
    case PlaceState::Bound:
      said = "runs on node ";
      break;
    case PlaceState::Lost:
      said = "is lost with node ";
      break;
    case PlaceState::Ending:
    case PlaceState::Ended:
      break;
  }
  if (job->member) said += at(*job->member).facts.ledger.name + ", card " + joined(job->cards);
  const ClusterAsk ask = askOf(job->spec);
  const bool waits = job->state == PlaceState::Waiting && !claims_.contains(task);
  explain(asker, task, ask, said, waits ? remedyFor(ask) : std::string());
}

void SchedulerActor::explainSpec(const Asker& asker, const ClusterSpec& spec) {
  Status valid = checkClusterSpec(spec);
  const ClusterAsk ask = askOf(spec);
  if (valid) valid = ledger_.check(ask);
  if (!valid) return replyFailed(asker, valid.error());
  const Result<Spot> spot = ledger_.place(ask);
  std::string said = spot ? "fits on node " + at(memberOf(spot->node)).facts.ledger.name +
                                ", card " + joined(cardIds(*spot))
                          : "would wait: " + spot.error().message;
  if (!spot && spot.error().code == ErrorCode::Infeasible) said = spot.error().message;
  explain(asker, 0, ask, said, spot ? std::string() : remedyFor(ask));
}

void SchedulerActor::explain(const Asker& asker, std::uint64_t task, const ClusterAsk& ask,
                             const std::string& said, const std::string& remedy) {
  reply(asker, [this, task, verdict = ledger_.explain(ask), said,
                remedy](schema::ClusterReply::Builder answer) {
    auto explanation = answer.initExplanation();
    explanation.setTask(task);
    explanation.setText(said);
    explanation.setRemedy(remedy);
    writeVerdict(verdict, explanation);
  });
}

void SchedulerActor::writeVerdict(const ClusterVerdict& verdict,
                                  schema::Explanation::Builder builder) const {
  builder.setFits(verdict.fits);
  builder.setConsidered(static_cast<std::uint32_t>(verdict.considered));
  auto nodes = builder.initNodes(static_cast<unsigned>(verdict.nodes.size()));
  for (unsigned i = 0; i < nodes.size(); ++i) {
    const NodeVerdict& one = verdict.nodes[i];
    const ClusterNodeFacts& facts = at(memberOf(one.node)).facts.ledger;
    nodes[i].setNode(facts.name);
    if (one.card && *one.card < facts.cards.size()) nodes[i].setCard(facts.cards[*one.card].id);
    nodes[i].setReason(reasonName(one.reason));
    nodes[i].setText(one.text);
  }
  std::vector<std::pair<const char*, std::size_t>> counts;
  for (std::size_t i = 0; i < verdict.counts.size(); ++i) {
    if (verdict.counts[i] == 0) continue;
    counts.emplace_back(reasonName(static_cast<Reason>(i)), verdict.counts[i]);
  }
  auto list = builder.initCounts(static_cast<unsigned>(counts.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setReason(counts[i].first);
    list[i].setCards(static_cast<std::uint32_t>(counts[i].second));
  }
}

}  // namespace qgpu
