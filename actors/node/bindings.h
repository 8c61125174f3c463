#pragma once
// What is bound on this node, and what was: each task with its token, its slot in the pool of task
// actors and its place in the ledger; the requests that tasks came of, and the epochs of the
// scheduler's tasks that ended here. A binding begins and ends in one step here; what happens to it
// in between is TaskLife's.
//
// A request id means its task while that lives, and until kFinishedKept others have ended since. Of
// a task that the scheduler placed the scheduler remembers it; the node remembers its epoch, so
// that a repeated order has one effect and one answer, and what ended stays ended.
//
// Who calls: TaskLife (binds and ends), NodeRecovery (the start), NodeReports. Kept here: P1 to P5
// and P8 (through the ledger), P6 (one binding and one answer for each request, and for each task
// and epoch of the scheduler), P9 (released once), C5 (tasks and what is remembered of them are
// bounded).

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/node/node_change.h"
#include "actors/node/node_numbers.h"

namespace qgpu {

// How far a task's binding is known. Each step is caused by the answer to the one before.
enum class Stage : std::uint8_t { TellingTask, TellingAttach, Live };

struct Binding {
  TaskSpec spec;
  std::string token;
  std::uint64_t boundUnixMs = 0;
  std::uint32_t slot = 0;  // of the pool of task actors
  Stage stage = Stage::TellingTask;
  bool late = false;      // its askers were answered before it was live
  bool evicting = false;  // durable: it ends when its processes are gone
  bool ownerGone = false;
  std::string endReason;  // why it is being closed
  std::uint32_t processes = 0;
  TaskPhase phase = TaskPhase::Bound;
  TaskFigures figures;         // the last report
  std::vector<Asker> waiting;  // for the end of the introduction
};

class Bindings {
 public:
  static constexpr std::size_t kFinishedKept = 1'024;  // tasks that ended and are remembered

  Bindings(NodeContext& node, Ledger& ledger, NodeNumbers& numbers, TokenSource& tokens);

  // --- which there are ---
  std::map<std::uint64_t, Binding>& all() { return bindings_; }
  const std::map<std::uint64_t, Binding>& all() const { return bindings_; }
  // Null: not bound here.
  Binding* find(std::uint64_t task);
  // Of what is bound.
  const Placement& placement(std::uint64_t task) const { return *ledger_.placement(TaskId{task}); }
  ActorId actorOf(const Binding& binding) const { return node_.peers().tasks[binding.slot]; }
  // Ids of the cards, joined by commas.
  std::string cardIds(const Placement& placement) const;

  // Whether online and offline tasks may be bound. What is bound runs on.
  bool mixed() const { return mixed_; }
  void setMixed(bool mixed) { mixed_ = mixed; }

  // --- binds ---
  // Errors: InvalidArgument, Conflict (of the request or the epoch), Overloaded, Infeasible, and
  // those of Ledger::place(). A repeated bind is answered as the first one was, or with it.
  Result<Need> check(NodeChange& bind);
  void persist(const NodeChange& bind, Turn& turn) const;
  // Its asker is answered once it is introduced.
  Binding& apply(const NodeChange& bind);
  // With the token, the cards and the socket, to all who wait for it.
  void answerWaiting(std::uint64_t task, Binding& binding);

  // --- the end ---
  void release(std::uint64_t task);

  // --- rows ---
  enum class Taking : std::uint8_t { AsItIs, IfItFits };
  // False: its card is not there any more, there is no slot, or it does not fit.
  bool load(std::uint64_t task, schema::TaskRow::Reader row, Taking taking);
  void persist(std::uint64_t task, const Binding& binding, const Placement& placement,
               Turn& turn) const;
  static void erase(std::uint64_t task, Turn& turn);
  void writeRow(std::uint64_t task, const Binding& binding, const Placement& placement,
                schema::TaskRow::Builder row) const;

 private:
  using RequestKey = std::pair<std::uint32_t, std::string>;  // uid, request id

  Result<Need> checkRepeated(const NodeChange& bind, std::uint64_t task);
  Result<Need> checkOrdered(const NodeChange& bind);
  Need answer(const Asker& asker, std::uint64_t task, Binding& binding);
  void replyBound(const Asker& asker, std::uint64_t task, const Binding& binding);
  Result<Placement> placementOf(const NodeChange& bind) const;
  static Binding newBinding(const NodeChange& bind);
  Binding& add(std::uint64_t task, Binding binding, const Placement& placement);

  NodeContext& node_;
  Ledger& ledger_;
  NodeNumbers& numbers_;
  TokenSource& tokens_;
  bool mixed_;
  std::map<std::uint64_t, Binding> bindings_;
  std::vector<std::uint32_t> freeSlots_;
  std::map<RequestKey, std::uint64_t> requests_;   // tasks by request, bound and ended
  std::deque<RequestKey> finished_;                // the ended ones, oldest first
  std::map<std::uint64_t, std::uint32_t> overAt_;  // epochs of cluster tasks that ended here
  std::deque<std::uint64_t> over_;                 // the same tasks, oldest first
};

}  // namespace qgpu
