#pragma once
// Judges what a manager finds on disk against what the one before it stored, and what actors say
// before their rows are there.
//
// Judged: D1 (the rows of a new life are those after some batch between the last acknowledged and
// the last issued one, and are durable), D2 (an actor with a batch under way sends nothing
// ordinary; a failed batch had no effect), D3 (read twice, the same), D4 (whoever was told that
// storage fails tries again soon), D5 (nothing comes out of a new database).

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class StorageCheck final : public Watch {
 public:
  // Between two tries of a storage that failed: the node's second, and loops that stand still.
  static constexpr Nanos kTriesAgain = seconds(12);

  // Whether the actor tells itself of a commit only where there was one.
  enum class Rounds : std::uint8_t { AlwaysRows, MayBeEmpty };
  explicit StorageCheck(Verdict& verdict, Rounds rounds = Rounds::AlwaysRows)
      : verdict_(verdict), rounds_(rounds) {}

  void onPhase(Phase phase, Nanos now) override;
  // Who has no turns until then can't try again before.
  void onStall(Nanos until);
  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onAppended(std::uint64_t batch, ActorId actor, const std::vector<StoredRow>& rows,
                  Nanos now) override;
  void onAnswered(std::uint64_t batch, const Status& status, Nanos now) override;

  // Of the life before: the last batch that this one found, where it had no answer yet; 0: none.
  // A life that goes on beside the next one may hear of these alone that they are stored.
  std::uint64_t lastFound() const { return lastFound_; }

 private:
  using Changes = std::vector<std::pair<RowKey, std::uint64_t>>;  // hash 0: the row is gone
  // The sum over rows of a hash of key and content: changed by one row at a time.
  struct State {
    std::map<RowKey, std::uint64_t> rows;
    std::uint64_t digest = 0;
    void set(RowKey key, std::uint64_t hash);
  };
  struct Batch {
    std::uint64_t number = 0;
    ActorId actor{};
    Changes changes;
  };

  static State stateOf(const std::vector<StoredRow>& rows);
  bool legal(const State& found);
  void watchTries(Nanos now);

  Verdict& verdict_;
  const Rounds rounds_;
  State stored_;                                  // found by this life, and what it was answered ok
  std::deque<Batch> open_;                        // not answered, oldest first
  std::unordered_map<std::uint32_t, int> under_;  // batches under way by actor; never iterated
  ActorId node_{};
  std::uint64_t effects_ = 0;  // batches of the node answered ok whose effect is due
  std::uint64_t lastFound_ = 0;
  bool first_ = true;  // life
  Nanos stalledUntil_{0};
  Nanos failedAt_ = kNever;  // of the last answer, where it was a failure
};

}  // namespace qgpu::sim
