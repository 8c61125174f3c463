// What the scheduler finds at its start: the rows of the store. Places in them are believed until
// their node says what it holds, or is lost for not saying anything within the fence time.
#include <algorithm>

#include "actors/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

schema::Row::Reader readRow(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data());
}

PlaceState readState(schema::PlaceState word) {
  return word <= schema::PlaceState::LOST ? static_cast<PlaceState>(word) : PlaceState::Bound;
}

}  // namespace

SchedulerActor::SchedulerActor(SchedulerOptions options, SchedulerPeers peers,
                               const std::vector<StoredRow>& rows)
    : options_(std::move(options)),
      peers_(peers),
      ledger_(ClusterLedger::Options{options_.priority, 1, true}),
      membership_(options_.times),
      priority_(options_.priority),
      nextTask_(std::max<std::uint64_t>(options_.firstTask, 1)) {
  load(rows);
}

void SchedulerActor::load(const std::vector<StoredRow>& rows) {
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (row.isCluster()) {
      term_ = row.getCluster().getTerm();
      nextTask_ = std::max(nextTask_, row.getCluster().getNextTask());
      nextEvent_ = std::max(nextEvent_, row.getCluster().getNextEvent());
      const Score chosen = readScore(row.getCluster().getPriority());
      if (chosen != Score::ClassDefault) priority_ = chosen;
    } else if (row.isAudit()) {
      audits_.push_back(stored.key.id);
    }
  }
  ledger_.setPriority(priority_);
  loadNodes(rows);
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (row.isClusterTask()) loadTask(stored.key.id, row.getClusterTask());
  }
  loadStory(rows);
}

// In the order of their numbers, which are their places in members_.
void SchedulerActor::loadNodes(const std::vector<StoredRow>& rows) {
  std::map<std::uint64_t, schema::ClusterNodeRow::Reader> nodes;
  for (const StoredRow& stored : rows) {
    if (readRow(stored).isClusterNode()) {
      nodes.emplace(stored.key.id, readRow(stored).getClusterNode());
    }
  }
  for (const auto& [number, row] : nodes) {
    if (number != members_.size() || names_.contains(text(row.getName()))) break;
    ClusterMember& node = members_.emplace_back();
    node.facts.ledger.name = text(row.getName());
    node.stored = true;
    node.marks.cordoned = row.getCordoned();
    for (const auto drain : row.getDrains()) {
      node.marks.drains[text(drain.getCard())] = drain.getUntilUnixMs();
    }
    names_.emplace(node.facts.ledger.name, static_cast<MemberId>(number));
  }
}

void SchedulerActor::loadTask(std::uint64_t id, schema::ClusterTaskRow::Reader row) {
  const auto stored = row.getTask();
  Job job;
  job.epoch = stored.getEpoch();
  job.spec = readClusterSpec(stored.getSpec());
  job.state = readState(stored.getState());
  job.again = row.getAgain();
  job.adopted = row.getAdopted();
  job.forwarded = row.getForwarded();
  job.cards = readTexts(stored.getCards(), kNodeCardsMax);
  job.nodeTask = stored.getNodeTask();
  job.token = text(row.getToken());
  job.submittedUnixMs = stored.getSubmittedUnixMs();
  job.boundUnixMs = stored.getBoundUnixMs();
  job.reason = text(stored.getReason());
  if (job.boundUnixMs != 0) job.phase = TaskPhase::Bound;
  const auto named = names_.find(text(stored.getNode()));
  if (named != names_.end()) job.member = named->second;
  // Where nobody can hold it, it waits.
  if (!job.member) job.state = PlaceState::Waiting;
  if (job.state == PlaceState::Assumed) QGPU_MARK(RestartedMidBind);
  if (job.state == PlaceState::Ending) QGPU_MARK(RestartedMidEnd);
  nextTask_ = std::max(nextTask_, id + 1);
  if (!job.spec.task.requestId.empty()) {
    requests_[{job.spec.task.ownerUid, job.spec.task.requestId}] = id;
  }
  list(id, job, std::nullopt);
  jobs_.emplace(id, std::move(job));
}

// The audited events are the story so far; they are read again once they are in order.
void SchedulerActor::loadStory(const std::vector<StoredRow>& rows) {
  std::sort(audits_.begin(), audits_.end());
  std::map<std::uint64_t, EventRecord> story;
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (row.isAudit()) story.emplace(row.getAudit().getSeq(), readEvent(row.getAudit()));
  }
  for (auto& [seq, event] : story) {
    nextEvent_ = std::max(nextEvent_, seq + 1);
    events_.add(std::move(event));
  }
}

}  // namespace qgpu
