// One round of durable changes: its rows, what follows once they are committed, and how it is
// undone where they are not.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {

// The cluster's row goes with every round: it has the numbers that the other rows used.
void SchedulerActor::persist(Turn& turn) {
  const bool same = started_ || (QGPU_PLANTED(TermReused) && term_ != 0);
  round_->term = same ? term_ : term_ + 1;
  turn.persist({RowKind::Cluster, 0}, [&](schema::Row::Builder row) {
    auto cluster = row.initCluster();
    cluster.setTerm(round_->term);
    cluster.setFirstTask(firstTask_);
    cluster.setNextTask(nextTask_);
    cluster.setNextEvent(nextEvent_ + kEventBlock);
    cluster.setPriority(word(priority_));
  });
  std::set<MemberId> nodes;
  for (const auto& [member, before] : round_->marks) nodes.insert(member);
  // A node is found again by its place, so no row has one below it that is missing: also those are
  // stored whose first round failed and who did not come again.
  for (std::size_t i = membersStored_; i < round_->members; ++i) {
    nodes.insert(static_cast<MemberId>(i));
  }
  for (const MemberId member : nodes) persistNode(member, turn);
  for (const auto& [task, before] : round_->jobs) persistTask(task, turn);
  persistForgotten(turn);
  persistAudits(turn);
}

void SchedulerActor::persistNode(MemberId member, Turn& turn) {
  const ClusterMember& node = at(member);
  const auto number = static_cast<std::uint64_t>(member);
  turn.persist({RowKind::ClusterNode, number}, [&](schema::Row::Builder row) {
    auto stored = row.initClusterNode();
    stored.setNumber(number);
    stored.setName(node.facts.ledger.name);
    stored.setCordoned(node.marks.cordoned);
    stored.setDraining(node.marks.drains.contains(""));
    auto drains = stored.initDrains(static_cast<unsigned>(node.marks.drains.size()));
    unsigned i = 0;
    for (const auto& [card, until] : node.marks.drains) {
      drains[i].setCard(card);
      drains[i++].setUntilUnixMs(until);
    }
  });
}

// What has ended is kept for its request alone.
void SchedulerActor::persistTask(std::uint64_t task, Turn& turn) {
  const RowKey key{RowKind::ClusterTask, task};
  const auto living = jobs_.find(task);
  const auto over = round_->ended.find(task);
  if (living == jobs_.end() && over->second.spec.task.requestId.empty()) {
    if (!round_->jobs.at(task).job) return;   // begun and ended in one round
    turn.persist(key, [](schema::Row::Builder row) { row.setErased(); });
    return;
  }
  const Job& job = living != jobs_.end() ? living->second : over->second;
  if (QGPU_PLANTED(SubmitNotStored) && job.state == PlaceState::Waiting) return;
  turn.persist(key, [&](schema::Row::Builder row) {
    writeRow(task, job, row.initClusterTask());
  });
}

// What a task is to everybody, as it is stored and as it is told.
void SchedulerActor::writeDurable(std::uint64_t task, const Job& job,
                                  schema::ClusterTask::Builder facts) const {
  facts.setId(task);
  facts.setEpoch(job.epoch);
  writeClusterSpec(job.spec, facts.initSpec());
  facts.setState(static_cast<schema::PlaceState>(job.state));
  if (job.member) facts.setNode(at(*job.member).facts.ledger.name);
  writeTexts(job.cards, facts.initCards(static_cast<unsigned>(job.cards.size())));
  facts.setNodeTask(job.nodeTask);
  facts.setSubmittedUnixMs(job.submittedUnixMs);
  facts.setBoundUnixMs(job.boundUnixMs);
  facts.setReason(job.reason);
}

void SchedulerActor::writeRow(std::uint64_t task, const Job& job,
                              schema::ClusterTaskRow::Builder row) const {
  writeDurable(task, job, row.initTask());
  row.setRequestId(job.spec.task.requestId);
  row.setUid(job.spec.task.ownerUid);
  row.setToken(job.token);
  row.setAgain(job.again);
  row.setAdopted(job.adopted);
  row.setForwarded(job.forwarded);
  row.setEndedUnixMs(job.endedUnixMs);
  if (!job.making) return;
  auto making = row.initMaking();
  making.setNode(at(job.making->member).facts.ledger.name);
  const std::vector<std::string>& cards = job.making->cards;
  writeTexts(cards, making.initCards(static_cast<unsigned>(cards.size())));
  auto victims = making.initVictims(static_cast<unsigned>(job.making->victims.size()));
  for (unsigned i = 0; i < victims.size(); ++i) {
    victims[i].setTask(job.making->victims[i].first);
    victims[i].setEpoch(job.making->victims[i].second);
  }
}

// The rows of those that endedOrder_ will have no room for.
void SchedulerActor::persistForgotten(Turn& turn) {
  const std::size_t kept = endedOrder_.size() + round_->ended.size();
  const std::size_t over = kept > options_.endedKept ? kept - options_.endedKept : 0;
  for (std::size_t i = 0; i < std::min(over, endedOrder_.size()); ++i) {
    if (ended_.at(endedOrder_[i]).spec.task.requestId.empty()) continue;
    turn.persist({RowKind::ClusterTask, endedOrder_[i]},
                 [](schema::Row::Builder row) { row.setErased(); });
  }
}

void SchedulerActor::persistAudits(Turn& turn) {
  for (const EventRecord& event : round_->audits) {
    turn.persist({RowKind::Audit, event.seq}, [&](schema::Row::Builder row) {
      writeEvent(event, row.initAudit());
    });
  }
  const std::size_t kept = audits_.size() + round_->audits.size();
  const std::size_t over = kept > kAuditKept ? kept - kAuditKept : 0;
  for (std::size_t i = 0; i < std::min(over, audits_.size()); ++i) {
    turn.persist({RowKind::Audit, audits_[i]}, [](schema::Row::Builder row) { row.setErased(); });
    round_->auditsErased.push_back(audits_[i]);
  }
}

void SchedulerActor::apply(const Round& round, Turn& turn) {
  eventCeiling_ = nextEvent_ + kEventBlock;
  for (std::size_t i = 0; i < round.auditsErased.size(); ++i) audits_.pop_front();
  for (const EventRecord& event : round.audits) {
    audits_.push_back(event.seq);
    tellEvent(event);
  }
  membersStored_ = std::max(membersStored_, round.members);
  if (!started_) {
    started_ = true;
    term_ = round.term;
    membership_.setTerm(term_);
    note("scheduler-started", 0, "", options_.version + ", term " + std::to_string(term_));
  }
  for (const auto& effect : round.effects) effect(turn);
}

// In two steps, so that no card holds what was decided beside what was before.
void SchedulerActor::undo(const Round& round) {
  for (const auto& [task, before] : round.jobs) {
    const auto found = jobs_.find(task);
    if (found == jobs_.end()) continue;
    unlist(task, found->second);
    if (!before.job) requests_.erase({found->second.spec.task.ownerUid,
                                      found->second.spec.task.requestId});
    jobs_.erase(found);
  }
  for (const auto& [task, before] : round.jobs) {
    releaseMove(task);
    dropClaimOf(task);
    if (!before.job) continue;
    const Job& job = jobs_[task] = *before.job;
    std::optional<Spot> spot;
    if (before.spot && job.member) spot = spotOf(at(*job.member), job.spec, job.cards);
    list(task, job, spot);
    // What had made the round look at it was taken off its list.
    if (job.member && membership_.life(*job.member) == NodeLife::Lost) {
      losing_.emplace_back(*job.member, task);
    }
    if (job.answerBy != Nanos(0) && job.answerBy <= now_) {
      overdue_.push_front({job.answerBy, task});
    }
  }
  openClaims();
  for (const auto& [member, marks] : round.marks) {
    at(member).marks = marks;
    applyMarks(member);
  }
  if (round.priority) {
    priority_ = *round.priority;
    ledger_.setPriority(priority_);
  }
  // Rooms that the round had given away are free again, and nobody would look.
  for (const MemberId member : memberOfNode_) gain(*at(member).node);
}

}  // namespace qgpu
