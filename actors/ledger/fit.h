#pragma once
// Whether one task fits one card or one node, and exactly what is missing: the rules of the
// contract as a pure function of a card's sums and the ask. The node's ledger admits by it, the
// scheduler places and explains by it, so that both say the same (P4, P7, P8).
//
// Units: memory in bytes, given out in steps of kMemoryStep; shares in permille of one card, CPU in
// thousandths of a core.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "actors/ledger/near.h"
#include "actors/model.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

inline constexpr Bytes kMemoryStep = mebibytes(1);

// What is asked, in the units of the contract: memory per card, share in permille of one card.
struct LedgerAsk {
  TaskClass taskClass = TaskClass::Ordinary;
  Bytes mem{0};
  Permille share{0};
  std::uint32_t cards = 1;
  std::string card;   // by any of its names; empty: the ledger chooses
  Bytes pageable{0};  // of `mem`, what an offline task lends while it is held

  bool operator==(const LedgerAsk&) const = default;
};

// The rules that need neither card nor node: what may be asked at all. InvalidArgument.
Status checkAsk(const LedgerAsk& ask);
bool isWhole(const LedgerAsk& ask);
// Whole cards may be asked as a share of N * 1000 alone, or as N cards with a share of 1000 each;
// this is the second form. `ask` has passed checkAsk().
LedgerAsk normalAsk(LedgerAsk ask);

// Stable reasons: their names (reasonName) appear in explain, metrics, audit and pod events.
// Add at the end, never rename.
enum class Reason : std::uint8_t {
  Fits,
  NoQgpuNode,  // no such node, or it has no cards of ours
  NodeLost,    // its lease ran out
  NodeCordoned,
  NotMixedNode,  // online and offline tasks run on mixed nodes only
  CardCordoned,
  CardUnhealthy,
  CardTooSmall,    // not even if it were empty
  WrongTenancy,    // ordinary tasks here, or online and offline ones
  HeldWhole,       // by a task of whole cards
  NotWholeFree,    // whole cards are asked, and something sits on it
  NotEnoughCards,  // some cards of the node would do, but fewer than asked
  MemShort,
  CoreShort,
  GreedyShort,
  SlotsFull,    // tasks per card
  ShareNeeded,  // fixed-share, and the task asks for none
  ModelMismatch,
  CpuShort,
  HostMemShort,
  OtherNode,  // the task named a node or card, and it is not this one
  InvalidRequest,
  StaleState,       // the node has not said yet what it holds
  ManagerStarting,  // kubelet does not count the devices of the card, as after a restart
  GroupWaits,       // too few tasks of its group are here, or fit at once
  ReportNeeded,     // the scheduler wants a newer report of what holds on the card
};
inline constexpr std::size_t kReasons = static_cast<std::size_t>(Reason::ReportNeeded) + 1;
const char* reasonName(Reason reason);
// Whether waiting can't help: it would not fit were the card, or the node, empty.
bool isHopeless(Reason reason);

// The sums of one card, and what it is.
struct CardRoom {
  Bytes mem{0};  // in all
  Bytes memBound{0};
  Bytes pageableBound{0};  // of that, what may leave the card
  Bytes overcommitted{0};  // so much more may be bound, of what may leave it
  Permille ordinary{0};    // qgpu-core, at most 1000
  Permille greedy{0};      // of offline tasks, at most 1000, a pool of its own
  std::uint32_t tasks = 0;
  std::uint32_t online = 0;
  std::uint32_t offline = 0;
  std::uint32_t tasksMax = 0;
  std::uint32_t model = 0;  // number of its model's name; the ledger keeps the names
  Policy policy = Policy::BestEffort;
  CardMark mark = CardMark::Ready;
  CardPlace place{};
  bool exclusive = false;
  bool healthy = true;

  bool operator==(const CardRoom&) const = default;
  Bytes memLeft() const { return mem + overcommitted - memBound; }     // for all
  Bytes firmLeft() const { return mem - (memBound - pageableBound); }  // for what stays
  // For who asks for nothing pageable. None, where a card came back smaller than what is bound on
  // it, which stays.
  Bytes memFree() const { return std::max(std::min(memLeft(), firmLeft()), Bytes(0)); }
  Tenancy tenancy() const {
    if (tasks == 0) return Tenancy::Free;
    return online + offline > 0 ? Tenancy::Hybrid : Tenancy::Ordinary;
  }
};

// What one card is to give. `whole`: the whole of it, whatever `mem` says.
struct CardAsk {
  TaskClass taskClass = TaskClass::Ordinary;
  Bytes mem{0};
  Permille share{0};
  bool whole = false;
  Bytes pageable{0};  // of `mem`

  auto operator<=>(const CardAsk&) const = default;
};
CardAsk cardAsk(const LedgerAsk& normal);  // of what normalAsk() gave

// The size that a card is sold as: what drivers report (15,109 MiB) rounded up (16 GiB).
std::int64_t nominalGib(Bytes mem);
// How many tasks a card of a node takes.
struct TaskLimit {
  std::uint32_t configured = 0;  // 0: nominal GiB / 4 of each card
  std::uint32_t least = 1;       // and of a small card so many
};
// Where Kubernetes has no say: several tasks fit a card of any size.
inline constexpr std::uint32_t kLeastTasksAlone = 4;
std::uint32_t tasksMaxOf(Bytes mem, TaskLimit limit);

inline bool isHybrid(TaskClass taskClass) {
  return taskClass != TaskClass::Ordinary;
}
// What is left of the pool that a task of this class takes its share from.
inline Permille poolFree(const CardRoom& card, TaskClass taskClass) {
  return kWholeCard - (taskClass == TaskClass::Offline ? card.greedy : card.ordinary);
}

// The verdict on one card: Fits, or the first rule that forbids it, most lasting first.
Reason fitOf(const CardRoom& card, const CardAsk& ask);
// How much is missing of what the reason names (bytes, permille, tasks), 0 where it is no amount.
std::int64_t shortfall(const CardRoom& card, const CardAsk& ask, Reason reason);
// The same for a person: what the card has, in a few words.
std::string describe(const CardRoom& card, const CardAsk& ask, Reason reason);
// Adds to the card's sums what a task takes of it. sign: 1 takes, -1 gives back.
void account(CardRoom& card, const CardAsk& ask, std::int64_t sign);

// Amounts as people read them: "2 GiB", "1.5 GiB", "700 MiB".
std::string sizeText(Bytes mem);
std::string percentText(Permille share);

}  // namespace qgpu
