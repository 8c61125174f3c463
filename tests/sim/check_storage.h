#pragma once
// Judges what a manager finds on disk against what the one before it stored, and what actors say
// before their rows are there.
//
// Judged: D1 (the rows of a new life are those after some batch between the last acknowledged and
// the last issued one), D2 (an actor with a batch under way sends nothing ordinary; a failed batch
// had no effect), D3 (read twice, the same), D4 (whoever was told that storage fails tries again
// soon), D5 (a flipped bit is detected or harmless: what is served is a state that once was).

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class StorageCheck final : public Watch {
 public:
  // Between two tries of a storage that failed: the node's second, and loops that stand still.
  static constexpr Nanos kTriesAgain = seconds(12);

  explicit StorageCheck(Verdict& verdict) : verdict_(verdict) {}

  // A bit of a file has flipped: a log may be cut there, so a state that once was is legal too.
  void bitFlipped() { flipped_ = true; }

  void onPhase(Phase phase, Nanos now) override;
  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onAppended(std::uint64_t batch, ActorId actor, const std::vector<StoredRow>& rows,
                  Nanos now) override;
  void onAnswered(std::uint64_t batch, const Status& status, Nanos now) override;

 private:
  using Changes = std::vector<std::pair<RowKey, std::uint64_t>>;   // hash 0: the row is gone
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
    bool inherited = false;   // of a life that ended before its answer; its rows were found
  };

  static State stateOf(const std::vector<StoredRow>& rows);
  bool inherit(const State& found);
  void watchTries(Nanos now);

  Verdict& verdict_;
  State stored_;                           // after the last batch that was answered ok; what a
                                           // life found beyond it is durable with its own first
  std::deque<Batch> open_;                 // not answered, oldest first
  std::unordered_set<std::uint64_t> past_;   // digests of all states; never iterated
  std::unordered_map<std::uint32_t, int> under_;   // batches under way by actor; never iterated
  ActorId node_{};
  std::uint64_t effects_ = 0;              // batches of the node answered ok whose effect is due
  bool flipped_ = false;
  bool first_ = true;                      // life
  Nanos failedAt_ = kNever;                // of the last answer, where it was a failure
};

}  // namespace qgpu::sim
