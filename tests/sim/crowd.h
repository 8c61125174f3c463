#pragma once
// Everybody who watches one world, as one Watch; and the watch that writes what happens for a
// person.

#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class Crowd final : public Watch {
 public:
  // Told in this order; they outlive the crowd's last event.
  void add(Watch& watch) { watches_.push_back(&watch); }

  void onPhase(Phase phase, Nanos now) override;
  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onRefused(ActorId from, ActorId to, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onTurnEnd(ActorId self, Nanos now) override;
  void onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                  Nanos now) override;
  void onAnswered(std::uint64_t batch, const Status& status, Nanos now) override;
  void onGate(const GateStore& store, Nanos now) override;
  void onGuest(const GuestNews& news, Nanos now) override;

 private:
  std::vector<Watch*> watches_;
};

// Writes one line for each event to stdout.
class Tracer final : public Watch {
 public:
  void onPhase(Phase phase, Nanos now) override;
  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onRefused(ActorId from, ActorId to, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                  Nanos now) override;
  void onAnswered(std::uint64_t batch, const Status& status, Nanos now) override;
  void onGate(const GateStore& store, Nanos now) override;
  void onGuest(const GuestNews& news, Nanos now) override;

  void say(Nanos now, const std::string& text) const { line(now, "--- " + text); }
  void open() { open_ = true; }  // until then it is silent, but learns who is who

 private:
  std::string who(ActorId id) const;
  void line(Nanos now, const std::string& text) const;

  bool open_ = false;
  Boot boot_;
};

}  // namespace qgpu::sim
