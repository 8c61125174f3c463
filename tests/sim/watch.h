#pragma once
// What happens in the simulated world, told to those who judge it. A checker is a Watch: it sees
// each message, each stored gate word, each row and what guests really do, and it knows the
// product's types (units, schema, row keys) but none of its decisions.
//
// Everything is told in the order in which it happens; `now` never runs backwards.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "runtime/journal.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu::sim {

enum class Policy : std::uint8_t { BestEffort, FixedShare, BurstShare };  // as in schema/types
enum class Class : std::uint8_t { Online, Offline, Ordinary };            // as in schema/types

struct CardFact {
  ActorId actor{};
  Bytes mem{0};
  bool freeze = false;  // suspend=freeze; else gate
};

// One life of the manager. Addresses are given out anew in each.
struct Boot {
  std::uint32_t life = 0;         // 1, 2, ...
  std::uint32_t incarnation = 0;  // it starts with; guests may raise it
  ActorId node{};
  ActorId attach{};  // attach server and gate port
  std::vector<ActorId> clients;
  std::vector<CardFact> cards;  // by index; their ids are "sim-<index>"
  std::vector<ActorId> tasks;   // slots
  Policy policy = Policy::BestEffort;
  bool mixed = true;
  std::uint32_t maxTasksPerCard = 0;  // 0: nominal GiB / 4, at least 4
  std::uint32_t mailboxMax = 0;       // ordinary messages that one actor holds per sending loop
  Nanos onlineIdle{0};
  Nanos sliceMin{0};
  Nanos sliceMax{0};
  Nanos lingerMax{0};
  Nanos settleMax{0};
  std::int64_t settleFactor = 0;
  Nanos patience{0};
  Nanos resumeCost{0};
  std::vector<StoredRow> rows;       // what the store gave it
  std::vector<StoredRow> rowsAgain;  // ... and when it was read a second time (D3)
  bool databaseLost = false;         // its files were deleted before this life
  std::vector<StoredRow> survivors;  // tasks that it takes over since the store is new (D5)
};

enum class Ending : std::uint8_t { Crash, PowerLoss, Stop };
enum class Phase : std::uint8_t { Safety, Liveness, Restart };

struct Carried {
  ActorId from{};
  ActorId to{};
  Lane lane = Lane::Ordinary;
  bool timer = false;        // an actor's own timer
  std::uint64_t serial = 0;  // of its sending; unique in a run
  schema::Envelope::Reader message;
};

// A store of a gate word into a task's gate page.
struct GateStore {
  std::uint64_t task = 0;
  std::uint32_t epoch = 0;
  std::uint32_t flags = 0;  // QGPU_GATE_* of services/wire/gate_abi.h
  bool closed = false;      // the task is over: launches fail
};

// What a process of a task really does, whatever its page says.
struct GuestNews {
  enum class Kind : std::uint8_t {
    Attached,   // has pages and a slot (again)
    Waits,      // a launch of it waits at the gate or at the window
    Submitted,  // a kernel was let through and is in flight
    Started,    // ... and runs on the card
    Frozen,     // its kernel was stopped mid-way
    Thawed,
    Undone,         // the driver put its channel back on the card though it is held
    Retired,        // a kernel ended
    Died,           // the process is dead, its kernels with it
    BytesReturned,  // ... and its memory was torn down; the manager was told by pidfd
    Allocated,      // `amount`: bytes accepted
    Freed,          // `amount`: bytes given back
    Refused,        // an allocation over the quota, of `amount`
    Failed,         // a launch failed since the task is closed
    Orphaned,       // runs on though held: its manager has been silent for orphan_grace
    Lies,           // wrote nonsense into its page, once told for each process
    Silent,         // neither submits nor retires nor rings any more, though it lives
    Disobeys,       // launches through a shut gate from now on
  };
  Kind kind = Kind::Attached;
  std::uint64_t task = 0;
  std::uint32_t process = 0;  // unique in a run
  std::uint32_t card = 0;     // the first of its task
  std::int64_t amount = 0;
  std::uint32_t inFlight = 0;  // of this process, after the event
  std::uint32_t waiting = 0;
};

class Watch {
 public:
  virtual ~Watch() = default;
  virtual void onPhase(Phase, Nanos /*now*/) {}
  virtual void onBoot(const Boot&, Nanos /*now*/) {}
  virtual void onEnd(Ending, Nanos /*now*/) {}

  // A message entered its receiver's mailbox, past any output gate.
  virtual void onSent(const Carried&, Nanos /*now*/) {}
  // An ordinary message found the mailbox full; its sender was told.
  virtual void onRefused(ActorId /*from*/, ActorId /*to*/, Nanos /*now*/) {}
  // The receiver's turn begins, and has ended. Between the two nothing else has a turn.
  virtual void onTurn(const Carried&, Nanos /*now*/) {}
  virtual void onTurnEnd(ActorId /*self*/, Nanos /*now*/) {}

  // Rows of one turn went to the journal as `batch` (1, 2, ... in a run), and were answered.
  virtual void onAppended(std::uint64_t /*batch*/, ActorId, const std::vector<StoredRow>&,
                          Nanos /*now*/) {}
  virtual void onAnswered(std::uint64_t /*batch*/, const Status&, Nanos /*now*/) {}

  virtual void onGate(const GateStore&, Nanos /*now*/) {}
  virtual void onGuest(const GuestNews&, Nanos /*now*/) {}
};

// Where a checker says that an invariant does not hold. The run ends after the step.
class Verdict {
 public:
  virtual ~Verdict() = default;
  virtual void violated(const char* invariant, const std::string& what) = 0;
};

}  // namespace qgpu::sim
