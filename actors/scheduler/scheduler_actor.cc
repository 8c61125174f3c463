#include "actors/scheduler/scheduler_actor.h"

#include <algorithm>
#include <utility>

#include "actors/base/tick.h"
#include "runtime/journal.h"
#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {

SchedulerActor::SchedulerActor(SchedulerOptions options, SchedulerPeers peers,
                               const std::vector<StoredRow>& rows)
    : options_(std::move(options)),
      shell_(options_.probeEvery),
      feed_(shell_.outbox(), kEventBlock),
      rounds_(options_, shell_, feed_),
      ledger_(ClusterLedger::Options{options_.priority, 1, true}),
      members_(rounds_, ledger_, freed_, peers.links, options_.times, options_.reportMsMax),
      places_(ledger_, members_, freed_),
      waiting_(ledger_, members_, groups_),
      tasks_(options_, rounds_, ledger_, members_, freed_, places_, groups_, waiting_),
      evictions_(rounds_, ledger_, members_, freed_, places_, tasks_),
      drains_(rounds_, ledger_, members_, freed_, tasks_),
      plans_(rounds_, ledger_, members_, tasks_, evictions_, kTickPlan),
      reports_(options_, rounds_, ledger_, members_, places_, waiting_, tasks_, evictions_, plans_),
      sessions_(options_, peers, rounds_, ledger_, members_, freed_, places_, tasks_, evictions_,
                drains_),
      requests_(rounds_, members_, waiting_, tasks_, drains_, plans_, reports_, joinTokens_) {
  load(rows);
}

// --- start ---

// What the store had. Places in it are believed until their node says what it holds, or is lost for
// not saying anything within the fence time.
void SchedulerActor::load(const std::vector<StoredRow>& rows) {
  const std::uint64_t fresh = std::max<std::uint64_t>(options_.firstTask, 1);
  std::uint64_t first = fresh, next = fresh, term = 0;
  Score priority = options_.priority;
  bool gathers = options_.rebuilds;
  if (gathers) term = termAt(options_.firstTask);
  std::vector<EventRecord> audits;
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (row.isAudit()) audits.push_back(readEvent(row.getAudit()));
    if (!row.isCluster()) continue;
    const auto cluster = row.getCluster();
    first = cluster.getFirstTask();
    next = cluster.getNextTask();
    term = cluster.getTerm();
    gathers = cluster.getGathers();
    feed_.atLeast(cluster.getNextEvent());
    const Score chosen = readScore(cluster.getPriority());
    if (chosen != Score::ClassDefault) priority = chosen;
    joinTokens_.load(readTokens(cluster));
  }
  places_.setGathers(gathers);
  tasks_.loadNumbers(first, next);
  tasks_.loadPriority(priority);
  members_.load(rows, term);
  tasks_.load(rows);
  evictions_.openClaims();
  feed_.load(std::move(audits));
}

void SchedulerActor::onStart(schema::Start::Reader, Turn& turn) {
  if (startAsked_) return;
  startAsked_ = true;
  requests_.start(turn.now());
  members_.start();
  lookLater(turn);
}

// --- turns ---

void SchedulerActor::handle(schema::Envelope::Reader message, Turn& turn) {
  rounds_.setNow(turn.now());
  dispatch(*this, message, turn);
  shell_.finishTurn(*this, turn);
}

void SchedulerActor::lookLater(Turn& turn) const {
  tickAfter(turn, options_.lookEvery, kTickLook);
}

void SchedulerActor::onTick(schema::Tick::Reader message, Turn& turn) {
  if (shell_.onTick(message.getKind())) return;
  if (message.getKind() == kTickPlan) return plans_.step(turn);
  if (message.getKind() != kTickLook) return;
  lookDue_ = true;
  if (members_.started()) sessions_.lookAtLeases();  // whatever the storage does
  plans_.wake(turn);
  lookLater(turn);
}

bool SchedulerActor::hasWork() const {
  if (!startAsked_) return false;
  if (!shell_.storageOk()) return shell_.probeDue() || requests_.hasWork();
  return !members_.started() || feed_.rowDue() || lookDue_ || sessions_.hasWork() ||
         requests_.hasWork() || groups_.anyChanged() || (!freed_.empty() && !places_.gathers());
}

// --- rounds ---

bool SchedulerActor::work(Turn& turn) {
  if (!shell_.announce(turn)) return false;
  rounds_.begin();
  rounds_.open().nextTask = tasks_.nextNumber();
  decide();
  if (!rounds_.open().empty()) {
    persist(turn);
    shell_.persisted();
    return true;
  }
  const std::unique_ptr<Round> done = rounds_.end();
  for (const auto& effect : done->effects) effect(turn);
  feed_.tellReservedNotes();
  return true;
}

void SchedulerActor::decide() {
  Round& round = rounds_.open();
  if (!shell_.storageOk()) {
    round.cluster = shell_.takeProbe();
    if (!round.cluster) requests_.take();
    return;
  }
  if (!members_.started()) {
    round.cluster = true;
    return;
  }
  round.cluster = feed_.rowDue();
  sessions_.take();
  if (!members_.started()) return;  // a node has seen a later term
  if (std::exchange(lookDue_, false)) {
    tasks_.onOverdue();
    members_.lookAtReports();
    if (places_.gathers()) endGathering();
    if (!places_.gathers()) {
      drains_.look();
      evictions_.look();
    }
    waiting_.look();
  }
  sessions_.loseTasks();
  if (!places_.gathers()) tasks_.wakeWaiting();
  requests_.take();
  tasks_.settleGroups();
}

// A node that was not heard of for the fence time is lost, here as at any other time.
void SchedulerActor::endGathering() {
  if (rounds_.now() - begunAt_ < options_.times.fence) return;
  places_.setGathers(false);
  rounds_.open().cluster = rounds_.open().gathered = true;
  rounds_.after([this](Turn&) { rounds_.note("gathered", 0, "", sessions_.gathered()); });
}

// The cluster's row goes with every round: it has the numbers that the other rows used.
void SchedulerActor::persist(Turn& turn) {
  Round& round = rounds_.open();
  const std::uint64_t term = members_.term();
  const bool same = members_.started() || (QGPU_PLANTED(TermReused) && term != 0);
  round.term = same ? term : term + 1;
  if (QGPU_PLANTED(AddressStored)) round.term += reinterpret_cast<std::uintptr_t>(this) % 4'096;
  turn.persist({RowKind::Cluster, 0}, [&](schema::Row::Builder row) {
    auto cluster = row.initCluster();
    cluster.setTerm(round.term);
    cluster.setFirstTask(tasks_.firstNumber());
    cluster.setNextTask(tasks_.nextNumber());
    cluster.setNextEvent(feed_.toStore());
    cluster.setPriority(word(tasks_.priority()));
    cluster.setGathers(places_.gathers());
    writeTokens(joinTokens_.all(), cluster);
  });
  members_.persist(round, turn);
  tasks_.persist(round, turn);
  feed_.persistAudits(round.audits, turn);
}

void SchedulerActor::onCommitted(schema::Committed::Reader committed, Turn& turn) {
  const DurableShell::Commit commit = shell_.onCommitted(committed);
  if (commit == DurableShell::Commit::NotOurs) return;
  const std::unique_ptr<Round> round = rounds_.end();
  if (commit == DurableShell::Commit::Back) {
    rounds_.note("storage-ok", 0, "", "changes are taken again");
  }
  apply(*round, turn);
  feed_.tellReservedNotes();
}

void SchedulerActor::apply(const Round& round, Turn& turn) {
  feed_.stored();
  feed_.auditsStored(round.audits);
  for (const EventRecord& event : round.audits) feed_.tell(event);
  members_.stored(round);
  if (!members_.started()) {
    members_.begin(round.term);
    begunAt_ = rounds_.now();
    rounds_.note("scheduler-started", 0, "",
                 options_.version + ", term " + std::to_string(round.term));
    if (places_.gathers()) {
      rounds_.note("gathers", 0, "",
                   "nodes have " + std::to_string(options_.times.fence / seconds(1)) +
                       " s to say what they hold, then tasks that wait are placed");
    }
  }
  for (const auto& effect : round.effects) effect(turn);
}

// --- storage that failed ---

void SchedulerActor::onStorageHealth(schema::StorageHealth::Reader health, Turn& turn) {
  if (!health.getOk()) storageFailed(text(health.getText()), turn);
}

// Exactly the round is undone. What nodes said is taken up again when the storage is back, since
// nobody will say it twice; who asked is told.
void SchedulerActor::storageFailed(const std::string& why, Turn& turn) {
  const DurableShell::Failure failure = shell_.onFailed(why);
  if (failure.first) rounds_.note("storage-failed", 0, "", why);
  const std::string& text = shell_.storageText();
  if (failure.wasInFlight) {
    const std::unique_ptr<Round> round = rounds_.end();
    QGPU_MARK(RoundUndone);
    if (!QGPU_PLANTED(RoundNotUndone)) undo(*round);
    const Error error =
        fail(ErrorCode::Unavailable, "nothing was changed: storage failed (" + text + ")");
    for (const Asker& asker : round->askers) rounds_.replyFailed(asker, error);
    for (const auto& [member, corr] : round->forwards) {
      sessions_.tellForwarded(member, corr, error);
    }
    sessions_.takeAgain(*round);
  }
  sessions_.refuseForwards(fail(ErrorCode::Unavailable, "storage failed (" + text + ")"));
  plans_.tickLost();
  feed_.tellReservedNotes();
  shell_.armProbe(turn);
}

void SchedulerActor::undo(const Round& round) {
  tasks_.undo(round);
  sessions_.undo(round);
  evictions_.openClaims();
  members_.undo(round);
  if (round.priority) tasks_.loadPriority(*round.priority);
  if (round.tokens) joinTokens_.load(*round.tokens);
  if (round.gathered) places_.setGathers(true);
  // Rooms that the round had given away are free again, and nobody would look.
  for (const MemberId member : members_.withNode()) freed_.gain(*members_.at(member).node);
}

}  // namespace qgpu
