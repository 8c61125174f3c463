#pragma once
// A card with hand-made words, for tests of those who judge it: what it is told, what it orders
// thereupon, and which invariants the judges then say are broken.

#include <capnp/message.h>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/checkers/check_arbiter.h"
#include "tests/sim/checkers/check_guests.h"
#include "tests/sim/checkers/check_memory.h"
#include "tests/sim/checkers/check_replay.h"

namespace qgpu::sim {

struct TestOrder {
  enum class Kind : std::uint8_t { Open, Hold, Close, Introduce };
  Kind kind = Kind::Open;
  std::uint64_t task = 0;
  bool notify = false;
  bool contended = false;
  std::uint32_t epoch = 0;  // 0: the next one
};
inline TestOrder open(std::uint64_t task, bool contended = false) {
  return {TestOrder::Kind::Open, task, false, contended, 0};
}
inline TestOrder idle(std::uint64_t task) {
  return {TestOrder::Kind::Open, task, true, false, 0};
}
inline TestOrder hold(std::uint64_t task) {
  return {TestOrder::Kind::Hold, task, false, false, 0};
}

class ScriptedCard final : public Verdict {
 public:
  using Orders = std::vector<TestOrder>;
  using Build = std::function<void(schema::Envelope::Builder)>;
  static constexpr ActorId kNode{1}, kAttach{2}, kCard{3};

  explicit ScriptedCard(Policy policy = Policy::BestEffort);

  // Ids of what was said to be broken so far, each once.
  std::string broken() const { return broken_; }
  void violated(const char* invariant, const std::string& what) override;

  // --- the clock: time of day in microseconds from the boot ---
  ScriptedCard& at(std::int64_t us);
  std::uint32_t epoch() const { return epoch_; }  // of the last order

  // --- the card is told, and orders ---
  void turn(const Build& build, const Orders& orders = {}, bool timer = false);
  void joins(std::uint64_t task, Class taskClass, std::uint32_t share, const Orders& orders = {});
  void leaves(std::uint64_t task, const Orders& orders = {});
  void busy(std::uint64_t task, const Orders& orders = {});
  void quiet(std::uint64_t task, const Orders& orders = {});
  void settled(std::uint64_t task, std::uint32_t epoch, const Orders& orders = {});
  void died(std::uint64_t task, const Orders& orders = {});
  void retiredLate(std::uint64_t task, const Orders& orders = {});
  void tick(const Orders& orders = {});
  // Its timer fires now; tick() is its turn.
  void fires();
  void reports(std::int64_t usedUs, std::int64_t idleUs, std::int64_t onlineUs,
               std::uint64_t holds = 0);

  // --- gates and guests ---
  void stores(std::uint64_t task, std::uint32_t flags);
  void guest(GuestNews::Kind kind, std::uint64_t task, std::uint32_t process,
             std::int64_t amount = 0, std::uint32_t inFlight = 0);
  // The port says so, and the card is not asked.
  void portSays(const Build& build);
  // The node tells the port.
  void tells(const Build& build);
  void restarts();

 private:
  void boots();
  void each(const std::function<void(Watch&)>& tell);
  void carry(ActorId from, ActorId to, const Build& build, Lane lane, bool timer = false);
  void order(const TestOrder& order);

  Policy policy_;
  std::uint32_t life_ = 0;
  Nanos boot_ = seconds(1);
  Nanos now_ = boot_;
  std::uint32_t epoch_ = 0;
  std::uint64_t serial_ = 0;
  std::uint64_t fired_ = 0;  // serial of its timer's tick that had no turn yet; 0: none
  std::uint32_t stores_ = 0;
  std::string broken_;
  ArbiterCheck arbiter_{*this};
  GuestCheck guests_{*this};
  MemoryCheck memory_{*this};
};

}  // namespace qgpu::sim
