#pragma once
// Judges the mail itself, and how often a card is told of one task.
//
// Judged: C5 (a mailbox holds no more than its bound from each loop; what the node was refused it
// sends again), C6 (FIFO by sender, receiver and lane), C7 (a gate page harms nobody else: here, by
// the time of the card loop), C8 (no turn after the end).

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class MailCheck final : public Watch {
 public:
  explicit MailCheck(Verdict& verdict) : verdict_(verdict) {}

  void onPhase(Phase phase, Nanos now) override;
  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onRefused(ActorId from, ActorId to, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;

 private:
  // Senders of one loop share a bound: the main loop, the card loop, and those of no loop.
  enum class Loop : std::uint8_t { Main, Card, None };

  // Position of an address of this life; 0 is for everybody else.
  std::uint32_t at(ActorId id) const;
  std::uint64_t& lastOf(std::vector<std::uint64_t>& table, const Carried& message);

  Verdict& verdict_;
  bool running_ = false;
  Boot boot_;
  std::uint32_t firstId_ = 0;
  std::uint32_t count_ = 0;  // addresses, with the place of everybody else
  std::vector<Loop> loops_;
  std::vector<std::array<std::uint32_t, 3>> mail_;  // ordinary messages, by the sender's loop
  std::vector<std::uint64_t> sent_;                 // last serial by sender, receiver, lane
  std::vector<std::uint64_t> delivered_;            // last serial that came, by the same
  std::vector<std::uint8_t> owes_;                  // the node was refused there, and has not sent
};

// A page may hold nonsense, but nonsense must not become news at every look: then the port and its
// card would be busy with each other alone.
class RateCheck final : public Watch {
 public:
  // Looks come every 250 us at most, rings a thousand times a second, orders at each end of a
  // slice of 200 us or more: a third of this.
  static constexpr std::uint32_t kBusyMax = 600;
  static constexpr Nanos kWindow = millis(20);

  explicit RateCheck(Verdict& verdict) : verdict_(verdict) {}

  void onBoot(const Boot& boot, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;

 private:
  struct Told {
    Nanos since{0};
    std::uint32_t times = 0;
  };
  Verdict& verdict_;
  std::map<std::uint64_t, Told> told_;  // by task
};

}  // namespace qgpu::sim
