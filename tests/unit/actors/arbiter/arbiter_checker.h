#pragma once
// Judges an arbiter from outside: it is told every event and sees every order, keeps its own book
// of gates, wants and charged time, and says which invariant (A1 to A12, M1) an answer breaks. It
// shares no code with the arbiter and never asks it for a reason; of its status it reads only what
// A9 is about, the accounts. A13 is checked by running the same events twice (replay()).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/arbiter/arbiter.h"

namespace qgpu {

struct ArbiterEvent {
  enum class Kind : std::uint8_t {
    Join,
    Leave,
    SetPolicy,
    Busy,
    Quiet,
    Settled,
    Died,
    Retired,
    Expire,
    Away,
    Back,
    Drains,
    DrainsNow,
  };
  Kind kind = Kind::Expire;
  TaskId task = TaskId::kNone;
  Nanos now{0};
  Nanos since{0};           // Busy, Quiet; of Settled it is `at`
  std::uint32_t epoch = 0;  // Settled
  Policy policy = Policy::BestEffort;
  ArbiterTask spec;  // Join
};

void apply(Arbiter& arbiter, const ArbiterEvent& event, Decisions& out);
std::string describe(const ArbiterEvent& event);

class ArbiterChecker {
 public:
  // One task as its gate and its reports show it.
  struct Seen {
    ArbiterTask spec;
    bool wants = false;
    bool open = false, notify = false, contended = false;
    bool settling = false;  // held, and no terminal event yet
    bool quarantined = false;
    bool away = false;
    bool drains = false, urgent = false;     // is to have a drain; beside online too
    bool draining = false, hurried = false;  // its hold is one; that online does not end
    bool late = false;                       // overran; the hold's epoch has not settled yet
    bool overran = false;                    // ever
    bool charging = false;
    std::uint32_t holdEpoch = 0;
    Nanos holdAt{0}, stopAt{0}, sliceAt{0}, chargeFrom{0}, quietAt{0};
    Nanos longestSettle{0};
    Nanos charged{0};
    Nanos waited{0};  // wanting and willing, since it last had the card
    std::int64_t goneRivals = 0, goneWeights = 0;  // who left meanwhile, and may have had turns
    std::int64_t level = 0;   // fixed-share bucket, at least what it really is, ns x permille
    std::int64_t excess = 0;  // D - min(D) of A4 since the policy began, ns x permille
  };

  ArbiterChecker(const ArbiterConfig& config, Nanos start)
      : config_(config), policy_(config.policy), start_(start), last_(start) {}

  // Hands the event to the arbiter and judges its answer: empty, or the invariant that broke.
  std::string run(Arbiter& arbiter, const ArbiterEvent& event, Decisions& out);
  // Judges an answer that somebody else obtained; `due` is nextDeadline() before the event.
  std::string judge(const Arbiter& arbiter, const ArbiterEvent& event, const Decisions& out,
                    Nanos due, std::uint64_t digestBefore);

  const Seen* find(TaskId id) const;
  Nanos now() const { return last_; }
  bool onlineActive() const { return onlineActive_; }
  Nanos slack() const { return slack_; }
  std::uint64_t digest() const;

 private:
  void charge(const ArbiterEvent& event, Nanos now);
  void addCharge(Seen& task, Nanos span, bool charged);
  bool takeIn(const ArbiterEvent& event, Nanos now);  // false: an event that may change nothing
  bool endHold(Seen& task, Nanos now);
  void takeNotes(const Decisions& out, Nanos now);
  void takeOrder(const GateDecision& order, const ArbiterEvent& event, Nanos now);
  void takeOpen(Seen& task, const GateDecision& order, Nanos now);
  void takeHold(Seen& task, const GateDecision& order, const ArbiterEvent& event, Nanos now);
  void takeDrain(Seen& task, Nanos now);
  void takeHasten(Seen& task, const GateDecision& order, Nanos now);
  void checkGates(Nanos now);
  void checkWork(Nanos now);
  bool drainWaits() const;
  std::int64_t weightOf(const Seen& task) const;  // under the policy in force
  static void beginWait(Seen& task);
  void checkShares();
  void checkAccounts(const Arbiter& arbiter, Nanos now);
  Nanos settleBound(const Seen& task) const;
  bool mayRun(const Seen& task) const;  // wants, is willing and surely has room
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  ArbiterConfig config_;
  Policy policy_;
  Nanos start_, last_;
  std::map<std::uint64_t, Seen> tasks_;
  bool onlineActive_ = false;
  Nanos lastOnline_{0};
  Nanos slack_{0};  // how late events and timers were told, in all
  Nanos longestSettle_{0};
  std::uint32_t lastEpoch_ = 0;
  std::string failure_;
};

// Runs the events on a fresh arbiter and folds all of its answers into one number (A13).
std::uint64_t replay(const ArbiterConfig& config, Nanos start,
                     const std::vector<ArbiterEvent>& events);

}  // namespace qgpu
