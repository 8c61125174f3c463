#pragma once
// The tasks of the cluster: where each waits, which node is told to hold it, and how it ends. Every
// durable change of a task goes through put() and erase(), which remember in the round what was
// before, and keep all lists of tasks alike: the ledger, the queue, its member, its request.
//
// A task is placed in three steps. Assume: the place is decided and committed, then its node is
// told. Confirm: the node holds it, and whoever asked gets the answer. Expire: a node that refused,
// or said nothing for too long, is told to end it, and the task waits again under a later epoch,
// which is given to another node only once the first one is known to hold nothing.
//
// The tasks of a group (Groups) are assumed at once, in one round, and nobody is told their tokens
// before all are confirmed. Where one of them loses its place before that and finds no other, the
// others give theirs back in the same round, so that no part of a group holds room.
//
// A request id means its task while that lives, and until so many others have ended since
// (SchedulerOptions.endedKept), also over a restart: a late retry makes no second task.
//
// Who calls: Requests (submit, delete), Sessions (what nodes say), Drains and Evictions (ends and
// moves), SchedulerActor (looks, rows). Kept here: P3 and P6 (one place, one epoch), P9 (released
// once), C2 (one answer for each submit), C5 (tasks and askers are bounded).

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/scheduler/groups.h"
#include "actors/scheduler/places.h"
#include "actors/scheduler/waiting.h"

namespace qgpu {

// Makes room for tasks that wait by evicting others: Evictions is one. Tasks calls it, in the turn
// in which the task changes.
class RoomMaker {
 public:
  // The task was put into the queue of those that wait; or it left that queue, because it was
  // placed, it ended, or the round was undone.
  virtual void waits(std::uint64_t task, const Job& job) = 0;
  virtual void waitsNoMore(std::uint64_t task, const Job& job) = 0;
  // A task was submitted that fits nowhere now: it is in the queue since this round.
  virtual void came(std::uint64_t task) = 0;
  // The task does not hold its old place any more: it ended, or its node confirmed that it is over
  // there. If it was evicted for another task, that one may take the place.
  virtual void isGone(std::uint64_t task) = 0;
  // The round in which the task was changed was undone: if it was to be evicted for another task,
  // that plan is dropped.
  virtual void isUndone(std::uint64_t task) = 0;

 protected:
  ~RoomMaker() = default;
};

class Tasks {
 public:
  static constexpr std::size_t kTasksMax = 262'144;
  static constexpr std::size_t kShapesPerTurn = 4'096;  // of waiting tasks, tried on nodes
  static constexpr std::size_t kAskersMax = 64;         // that wait for one task

  Tasks(const SchedulerOptions& options, Rounds& rounds, ClusterLedger& ledger, Members& members,
        FreedRoom& freed, Places& places, Groups& groups, Waiting& waiting)
      : options_(options),
        rounds_(rounds),
        ledger_(ledger),
        members_(members),
        freed_(freed),
        places_(places),
        groups_(groups),
        waiting_(waiting) {}
  // Before the first task is loaded.
  void setRoomMaker(RoomMaker& maker) { maker_ = &maker; }

  // --- which there are ---
  const std::map<std::uint64_t, Job>& all() const { return jobs_; }
  // Null: it does not live.
  const Job* find(std::uint64_t task) const;
  // For what is not durable; the rest is changed by put().
  Job* find(std::uint64_t task);
  const Job& at(std::uint64_t task) const { return jobs_.at(task); }
  // Of those that ended not long ago; null: it lives, or is forgotten.
  const Job* ended(std::uint64_t task) const;
  // Whether it ended under this epoch or a later one, as far as that is known; in a round.
  bool isOver(std::uint64_t task, std::uint32_t epoch) const;
  // The living task or the one that ended not long ago.
  const Job* known(std::uint64_t task) const;
  std::optional<std::uint64_t> ofRequest(std::uint32_t uid, const std::string& requestId) const;
  std::uint64_t firstNumber() const { return firstTask_; }  // of this store
  std::uint64_t nextNumber() const { return nextTask_; }
  void numberAbove(std::uint64_t task) { nextTask_ = std::max(nextTask_, task + 1); }

  // --- changes; in a round ---
  // Whether it may be a task at all, and then the place that it gets: a node, or the queue. A task
  // that somebody waits for on its node does not wait. Errors: InvalidArgument, Overloaded, and
  // those of ClusterLedger::place().
  Result<std::uint64_t> admit(Job job);
  // `spot`: what it holds from now on; nothing where it holds no room that we know of.
  void put(std::uint64_t task, Job job, std::optional<Spot> spot);
  void erase(std::uint64_t task, std::string reason);
  // It is to be bound there; its node is told after the commit.
  void assume(std::uint64_t task, Job job, Spot spot);
  enum class Elsewhere : std::uint8_t { Now, Later };  // Later: when a node gains room
  // Under the next epoch; its last place is known to hold it no more.
  void placeAgain(std::uint64_t task, const std::string& reason, Elsewhere when,
                  std::optional<MemberId> avoided = std::nullopt);
  // Its node is told; what it holds it holds until the node says that it is over. `again`: then it
  // waits.
  void beginEnd(std::uint64_t task, bool again, const std::string& reason);
  // Its node holds it no more.
  void nodeEnded(std::uint64_t task, const std::string& reason);
  Result<Spot> choose(std::uint64_t task, const Job& job,
                      std::optional<MemberId> avoided = std::nullopt) {
    return places_.place(task, askOf(job.spec), avoided);
  }
  // Room at the new place of a task that is on its way there.
  void keepForMove(std::uint64_t task, const Spot& spot);
  // Orders whose answer is overdue.
  void onOverdue();
  // Offers the nodes that gained room to those that wait; a bounded number of tries a turn.
  void wakeWaiting();
  // Looks at the groups that changed, at the end of a round: who can go goes, what is torn gives
  // its places back, and what is whole starts.
  void settleGroups();

  // How ordinary tasks are placed unless they ask for another way; in the cluster's row.
  void choosePriority(Score priority);
  Score priority() const { return priority_; }

  // --- orders to nodes, after the commit ---
  void orderBind(std::uint64_t task);
  void orderEnd(std::uint64_t task);
  // Of what a node holds otherwise than decided. `task` 0: the node knows it by `nodeTask` alone.
  void orderEndOf(MemberId member, std::uint64_t task, std::uint32_t epoch, std::uint64_t nodeTask,
                  const std::string& reason);

  // --- who asked for them ---
  // Overloaded where kAskersMax wait for it already.
  Status addAsker(std::uint64_t task, const Asker& asker);
  // Bound: with all that a launcher needs, its token among it. Not to be bound soon: that it waits.
  // Between the two the askers wait on.
  void answerAskers(std::uint64_t task);
  void replyAssigned(const Asker& asker, std::uint64_t task);

  // --- rows ---
  void load(const std::vector<StoredRow>& rows);
  // The number of a new store's first task, or what the cluster's row says.
  void loadNumbers(std::uint64_t first, std::uint64_t next);
  void loadPriority(Score priority);
  void persist(const Round& round, Turn& turn) const;
  // In two steps, so that no card holds what was decided beside what was before.
  void undo(const Round& round);
  // What a task is to everybody, as it is stored and as it is told.
  void writeDurable(std::uint64_t task, const Job& job, schema::ClusterTask::Builder facts) const;

 private:
  struct Overdue {
    Nanos at{0};
    std::uint64_t task = 0;
  };

  void remember(std::uint64_t task);
  void list(std::uint64_t task, const Job& job, const std::optional<Spot>& spot);
  void unlist(std::uint64_t task, const Job& job);
  void keepEnded(std::uint64_t task, Job job);
  void livesAgain(std::uint64_t task);
  void claimRequest(std::uint64_t task, const TaskSpec& spec);
  void forgetOldest();
  void letWait(std::uint64_t task, Job job, const std::string& story);
  Result<std::uint64_t> admitToQueue(std::uint64_t task, Job job);
  void beginsToWait(std::uint64_t task);
  std::string whereElse(ClusterSpec spec);
  void releaseMove(std::uint64_t task);
  void expectAnswer(std::uint64_t task, Job& job);
  bool wakeFor(NodeId node, FreedRoom::Wake& wake, std::size_t& tried);
  Status checkGroup(const Job& job) const;
  void settleGroup(const std::string& group);
  bool placeGroup(const std::string& group, std::optional<MemberId> avoided = std::nullopt);
  void startGroup(const Groups::Group& group);
  void giveBack(const Groups::Group& group);
  void judgeGroup(const std::string& group);
  void writeAssigned(std::uint64_t task, const Job& job, schema::Assigned::Builder builder) const;
  void persistTask(std::uint64_t task, const Round& round, Turn& turn) const;
  void persistForgotten(const Round& round, Turn& turn) const;
  void writeRow(std::uint64_t task, const Job& job, schema::ClusterTaskRow::Builder row) const;
  Job readJob(schema::ClusterTaskRow::Reader row) const;
  void loadTask(std::uint64_t id, Job job);
  void loadEnded(std::map<std::uint64_t, Job> ended);

  const SchedulerOptions& options_;
  Rounds& rounds_;
  ClusterLedger& ledger_;
  Members& members_;
  FreedRoom& freed_;
  Places& places_;
  Groups& groups_;
  Waiting& waiting_;
  RoomMaker* maker_ = nullptr;
  std::map<std::uint64_t, Job> jobs_;
  std::map<std::uint64_t, Job> ended_;  // the newest ones
  std::deque<std::uint64_t> endedOrder_;
  std::map<RequestKey, std::uint64_t> requests_;  // tasks by request, living and ended
  std::map<std::uint64_t, Spot> moves_;           // room kept for tasks that are moved
  std::deque<Overdue> overdue_;                   // orders, by the time of their answer
  std::uint64_t firstTask_ = 0;                   // of this store
  std::uint64_t nextTask_ = 1;
  Score priority_ = Score::Binpack;
};

}  // namespace qgpu
