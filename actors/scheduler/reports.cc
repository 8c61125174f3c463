#include "actors/scheduler/reports.h"

#include <algorithm>

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

void Reports::info(const Asker& asker, Nanos uptime) {
  rounds_.reply(asker, [this, uptime](schema::ClusterReply::Builder answer) {
    auto info = answer.initInfo();
    info.setTerm(members_.term());
    info.setVersion(options_.version);
    info.setPid(options_.pid);
    info.setUptimeNs(natural(uptime.value));
    info.setNodes(static_cast<std::uint32_t>(members_.size()));
    info.setAlive(static_cast<std::uint32_t>(members_.membership().alive()));
    info.setCards(static_cast<std::uint32_t>(ledger_.sums().cards));
    info.setTasks(static_cast<std::uint32_t>(tasks_.all().size()));
    info.setWaiting(static_cast<std::uint32_t>(waiting_.queue().size()));
    info.setPriority(word(tasks_.priority()));
    info.setStorage(rounds_.shell().storageText());
    info.setDecisions(places_.decisions());
    waiting_.writeReasons(info);
  });
}

// Nodes are known by their places, which they keep: a page of nodes or cards ends behind one.
void Reports::nodes(const Asker& asker, const ListPart& part) {
  rounds_.reply(asker, [this, part](schema::ClusterReply::Builder answer) {
    const std::size_t from = std::min<std::size_t>(part.after, members_.size());
    const std::size_t to = from + std::min(part.most, members_.size() - from);
    auto list = answer.initNodes(static_cast<unsigned>(to - from));
    for (unsigned i = 0; i < list.size(); ++i) {
      writeNode(static_cast<MemberId>(from + i), list[i]);
    }
    if (to < members_.size()) answer.setNext(to);
  });
}

void Reports::writeNode(MemberId member, schema::ClusterNode::Builder builder) const {
  const ClusterMember& node = members_.at(member);
  builder.setName(node.facts.ledger.name);
  builder.setState(static_cast<schema::ClusterNode::State>(members_.membership().life(member)));
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
void Reports::cards(const Asker& asker, const ListPart& part) {
  rounds_.reply(asker, [this, part](schema::ClusterReply::Builder answer) {
    const std::size_t from = std::min<std::size_t>(part.after, members_.size());
    std::size_t to = from;
    std::size_t cards = 0;
    for (; to < members_.size() && cards < part.most; ++to) {
      const ClusterMember& node = members_.at(static_cast<MemberId>(to));
      if (node.node) cards += node.facts.cards.size();
    }
    auto list = answer.initCards(static_cast<unsigned>(cards));
    unsigned next = 0;
    for (std::size_t i = from; i < to; ++i) {
      const ClusterMember& node = members_.at(static_cast<MemberId>(i));
      if (!node.node) continue;
      for (std::size_t card = 0; card < node.facts.cards.size(); ++card) {
        writeCard(node, card, list[next++]);
      }
    }
    if (to < members_.size()) answer.setNext(to);
  });
}

void Reports::writeCard(const ClusterMember& node, std::size_t card,
                        schema::ClusterCard::Builder builder) const {
  const CardRoom& room = ledger_.room(*node.node, card);
  builder.setNode(node.facts.ledger.name);
  auto status = builder.initStatus();
  writeFigures(node.facts.cards[card].figures, status);
  writeFacts(node.facts.cards[card].facts, status.initInfo());
  schema::CardState state = schema::CardState::READY;
  if (room.mark != CardMark::Ready) state = schema::CardState::CORDONED;
  if (room.mark == CardMark::Starting) state = schema::CardState::STARTING;
  if (room.mark == CardMark::Unproven) state = schema::CardState::UNPROVEN;
  if (room.mark == CardMark::Draining && room.tasks != 0) state = schema::CardState::DRAINING;
  if (!room.healthy) state = schema::CardState::QUARANTINED;
  status.setState(state);
  status.setReportUnixMs(node.facts.ledger.cards[card].reportUnixMs);
  status.setPolicy(word(room.policy));
  status.setTenancy(word(room.tenancy()));
  status.setTasks(room.tasks);
  status.setMemBound(natural(room.memBound.value));
  status.setShareBound(static_cast<std::uint32_t>(natural(room.ordinary.value)));
  status.setGreedyBound(static_cast<std::uint32_t>(natural(room.greedy.value)));
}

// All that live; a page ends behind the task that is its `next`.
void Reports::allTasks(const Asker& asker, const ListPart& part) {
  rounds_.reply(asker, [this, part](schema::ClusterReply::Builder answer) {
    auto job = tasks_.all().upper_bound(part.after);
    std::size_t count = 0;
    for (auto end = job; end != tasks_.all().end() && count < part.most; ++end) ++count;
    auto list = answer.initTasks(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i, ++job) {
      writeTask(job->first, job->second, list[i]);
      if (i + 1 == count && std::next(job) != tasks_.all().end()) answer.setNext(job->first);
    }
  });
}

// Also those that ended not long ago.
void Reports::tasks(const Asker& asker, const std::vector<std::uint64_t>& ids) {
  std::vector<std::pair<std::uint64_t, Job>> found;
  for (const std::uint64_t id : ids) {
    if (const Job* job = tasks_.known(id)) found.emplace_back(id, *job);
  }
  if (found.empty()) {
    return rounds_.replyFailed(
        asker, fail(ErrorCode::NotFound, "no task " + std::to_string(ids[0]) + " in this cluster"));
  }
  rounds_.reply(asker, [this, found = std::move(found)](schema::ClusterReply::Builder answer) {
    auto list = answer.initTasks(static_cast<unsigned>(found.size()));
    for (unsigned i = 0; i < list.size(); ++i) writeTask(found[i].first, found[i].second, list[i]);
  });
}

void Reports::writeTask(std::uint64_t task, const Job& job,
                        schema::ClusterTask::Builder builder) const {
  tasks_.writeDurable(task, job, builder);
  if (job.state == PlaceState::Waiting) builder.setReason(waiting_.reason(task, job));
  builder.setTaskState(word(job.phase));
  auto use = builder.initUse();
  writeFigures(job.figures, use);
  use.setUsedNs(job.usedNs);
  use.setHeldNs(job.heldNs);
}

void Reports::events(const Asker& asker, std::uint64_t since) {
  rounds_.reply(asker, [found = rounds_.feed().after(since)](schema::ClusterReply::Builder answer) {
    auto list = answer.initEvents(static_cast<unsigned>(found.size()));
    for (unsigned i = 0; i < list.size(); ++i) writeEvent(found[i], list[i]);
  });
}

// --- explanations ---

void Reports::explainTask(const Asker& asker, std::uint64_t task) {
  const Job* job = tasks_.find(task);
  if (job == nullptr) {
    const Job* over = tasks_.ended(task);
    const std::string name = "task " + std::to_string(task);
    return rounds_.replyFailed(
        asker, fail(ErrorCode::NotFound, over == nullptr ? "no " + name + " in this cluster"
                                                         : name + " ended: " + over->reason));
  }
  std::string said = "ends on node ";
  switch (job->state) {
    case PlaceState::Waiting:
      said = "waits: " + waiting_.reason(task, *job);
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
  if (job->member) said += members_.name(*job->member) + ", card " + joined(job->cards);
  const ClusterAsk ask = askOf(job->spec);
  if (job->awaitsGroup() && job->state == PlaceState::Bound) {
    said = "waits on node " + members_.name(*job->member) + ": " + waiting_.reason(task, *job);
  }
  const bool waits =
      job->state == PlaceState::Waiting && ask.group.empty() && !evictions_.makesRoomFor(task);
  explain(asker, task, ask, said, waits ? plans_.remedyFor(ask) : std::string());
}

void Reports::explainSpec(const Asker& asker, const ClusterSpec& spec) {
  Status valid = checkClusterSpec(spec);
  const ClusterAsk ask = askOf(spec);
  if (valid) valid = ledger_.check(ask);
  if (!valid) return rounds_.replyFailed(asker, valid.error());
  const Result<Spot> spot = ledger_.place(ask);
  std::string said = spot ? "fits on node " + members_.name(members_.memberOf(spot->node)) +
                                ", card " + joined(members_.cardIds(*spot))
                          : "would wait: " + spot.error().message;
  if (!spot && spot.error().code == ErrorCode::Infeasible) said = spot.error().message;
  explain(asker, 0, ask, said, spot ? std::string() : plans_.remedyFor(ask));
}

void Reports::explain(const Asker& asker, std::uint64_t task, const ClusterAsk& ask,
                      const std::string& said, const std::string& remedy) {
  ClusterVerdict verdict = ledger_.explain(ask);
  const Job* job = tasks_.find(task);
  const bool groupWaits = job != nullptr && job->state == PlaceState::Waiting && job->awaitsGroup();
  verdict.fits = verdict.fits && !groupWaits;  // it alone may well fit
  rounds_.reply(asker, [this, task, verdict = std::move(verdict), said,
                        remedy](schema::ClusterReply::Builder answer) {
    auto explanation = answer.initExplanation();
    explanation.setTask(task);
    explanation.setText(said);
    explanation.setRemedy(remedy);
    writeVerdict(verdict, explanation);
  });
}

void Reports::writeVerdict(const ClusterVerdict& verdict,
                           schema::Explanation::Builder builder) const {
  builder.setFits(verdict.fits);
  builder.setConsidered(static_cast<std::uint32_t>(verdict.considered));
  auto nodes = builder.initNodes(static_cast<unsigned>(verdict.nodes.size()));
  for (unsigned i = 0; i < nodes.size(); ++i) {
    const NodeVerdict& one = verdict.nodes[i];
    const ClusterNodeFacts& facts = members_.at(members_.memberOf(one.node)).facts.ledger;
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
