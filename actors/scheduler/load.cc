// What the scheduler finds at its start: the rows of the store. Places in them are believed until
// their node says what it holds, or is lost for not saying anything within the fence time.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"
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
      priority_(options_.priority) {
  load(rows);
}

void SchedulerActor::load(const std::vector<StoredRow>& rows) {
  bool isNew = true;
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (row.isCluster()) {
      isNew = false;
      firstTask_ = row.getCluster().getFirstTask();
      term_ = row.getCluster().getTerm();
      nextTask_ = std::max(nextTask_, row.getCluster().getNextTask());
      nextEvent_ = std::max(nextEvent_, row.getCluster().getNextEvent());
      const Score chosen = readScore(row.getCluster().getPriority());
      if (chosen != Score::ClassDefault) priority_ = chosen;
    } else if (row.isAudit()) {
      audits_.push_back(stored.key.id);
    }
  }
  if (isNew) firstTask_ = nextTask_ = std::max<std::uint64_t>(options_.firstTask, 1);
  ledger_.setPriority(priority_);
  loadNodes(rows);
  std::map<std::uint64_t, Job> ended;
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (!row.isClusterTask()) continue;
    const std::uint64_t id = stored.key.id;
    nextTask_ = std::max(nextTask_, id + 1);
    Job job = readJob(row.getClusterTask());
    if (job.endedUnixMs != 0) ended.emplace(id, std::move(job));
    else loadTask(id, std::move(job));
  }
  loadEnded(std::move(ended));
  openClaims();
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
    node.marks.cordoned = row.getCordoned();
    for (const auto drain : row.getDrains()) {
      node.marks.drains[text(drain.getCard())] = drain.getUntilUnixMs();
    }
    names_.emplace(node.facts.ledger.name, static_cast<MemberId>(number));
  }
  membersStored_ = members_.size();
}

Job SchedulerActor::readJob(schema::ClusterTaskRow::Reader row) const {
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
  job.endedUnixMs = row.getEndedUnixMs();
  job.reason = text(stored.getReason());
  if (job.boundUnixMs != 0) job.phase = TaskPhase::Bound;
  const auto named = names_.find(text(stored.getNode()));
  if (named != names_.end()) job.member = named->second;
  const auto making = row.getMaking();
  const auto host = names_.find(text(making.getNode()));
  if (host == names_.end() || making.getVictims().size() == 0) return job;
  RoomMaking& room = job.making.emplace();
  room.member = host->second;
  room.cards = readTexts(making.getCards(), kNodeCardsMax);
  for (const auto victim : making.getVictims()) {
    room.victims.emplace_back(victim.getTask(), victim.getEpoch());
  }
  return job;
}

// Where nobody can hold it, it waits.
void SchedulerActor::loadTask(std::uint64_t id, Job job) {
  if (!job.member) job.state = PlaceState::Waiting;
  if (job.state == PlaceState::Assumed) QGPU_MARK(RestartedMidBind);
  if (job.state == PlaceState::Ending) QGPU_MARK(RestartedMidEnd);
  if (!job.spec.task.requestId.empty()) {
    requests_[{job.spec.task.ownerUid, job.spec.task.requestId}] = id;
  }
  list(id, job, std::nullopt);
  jobs_.emplace(id, std::move(job));
}

// As they ended. A request that was used again belongs to the task that lives.
void SchedulerActor::loadEnded(std::map<std::uint64_t, Job> ended) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> order;
  for (const auto& [id, job] : ended) order.emplace(job.endedUnixMs, id);
  for (const auto& [endedAt, id] : order) {
    Job& job = ended.at(id);
    job.phase = TaskPhase::Exited;
    const RequestKey key{job.spec.task.ownerUid, job.spec.task.requestId};
    const auto [request, isNew] = requests_.emplace(key, id);
    if (!isNew && !jobs_.contains(request->second)) request->second = id;
    keepEnded(id, std::move(job));
  }
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
