#pragma once
// The node's own row: the numbers that are never given twice, also where the store is an older copy
// than what guests have met. These are the incarnation of this manager, the numbers of tasks, and
// the highest term of a scheduler; the ceiling of event numbers goes with them (EventSource). The
// row is written with every change, so what one of them used is durable with it.
//
// Who calls: NodeActor (rows, incarnations, terms), Bindings and NodeRecovery (numbers of tasks).
// Kept here: A10 (no incarnation that a guest has met is used again), C1 (the highest term is
// durable).

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/node/node_change.h"
#include "actors/node/node_context.h"

namespace qgpu {

class NodeNumbers final : public ChangeOwner {
 public:
  explicit NodeNumbers(NodeContext& node)
      : node_(node),
        incarnation_(node.options().incarnation),
        nextTask_(node.options().lastTask + 1) {}

  // Of the last manager that these rows are of; nothing where the store was never written. The next
  // one is above it (A10).
  static std::optional<std::uint32_t> storedIncarnation(const std::vector<StoredRow>& rows);
  // Whether a task that lives and has no row is one of which these rows, a copy that was restored,
  // can't know. Of other rows no task is.
  static bool laterThanCopy(const std::vector<StoredRow>& rows, std::uint64_t task);

  // --- tasks ---
  std::uint64_t takeTask() { return nextTask_++; }
  void numberFrom(std::uint64_t next);
  // Of a task that lives and has no row: whether the store gave out its number. If so it had ended;
  // if not it is remembered as unknown, since numbers above it are given out from now on.
  bool gaveOut(std::uint64_t task);

  // --- the incarnation: in force, and durable once started() ---
  std::uint32_t incarnation() const { return incarnation_; }
  bool started() const { return started_; }
  void start();
  // A guest has met this one. What this manager hands out from now on is above all of those; the
  // attach server has refused what no manager can have given out.
  void onIncarnationSeen(std::uint32_t value);

  // --- the term of the scheduler that this node obeys ---
  std::uint64_t term() const { return term_; }
  // ChangeOwner, of the kind Term; it is in the row.
  Result<Need> check(NodeChange& change) override;
  void persist(const NodeChange&, Turn&) override {}
  void apply(const NodeChange& change, Turn& turn) override;

  // --- the row ---
  bool restored() const { return restored_; }  // at this start
  void load(const std::vector<StoredRow>& rows);
  bool rowDue() const;
  // The incarnation that the next row has.
  std::uint32_t incarnationToStore() const;
  void write(const NodeChange& change, Turn& turn);
  // Every change may raise the incarnation, since each writes the row.
  void stored(const NodeChange& change);

 private:
  struct Range {  // from the first to before the last
    std::uint64_t from = 0, to = 0;
    bool has(std::uint64_t value) const { return value >= from && value < to; }
  };

  void tellIncarnation();

  NodeContext& node_;
  bool started_ = false;  // the row of this incarnation is committed
  std::uint32_t incarnation_;
  std::uint32_t incarnationSeen_ = 0;  // the highest that a guest has met
  std::uint64_t nextTask_;
  std::uint64_t numbered_ = 0;  // numbers below it were given out before this start,
  Range wereUnknown_;           // but for these
  Range unknown_;               // as the row has it from now on
  std::uint64_t term_ = 0;
  bool restored_ = false;
};

}  // namespace qgpu
