#pragma once
// The bugs that can be planted into the simulated product, and the marks of rare paths. A bug is a
// name here and an `if (QGPU_PLANTED(name))` at the place where someone could have written it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace qgpu::sim {

// Each with the invariant that it breaks, by whose checker alone it counts as found: X(name,
// invariant). "rest": no invariant, but the world never comes to rest.
#define QGPU_BUGS(X)               \
  X(SendBeforeCommit, "D2")        \
  X(FullDiskTakenForSuccess, "D1") \
  X(SyncSkipped, "D1")             \
  X(LostWakeUpAfterFailure, "D4")  \
  X(RefusedSendDropped, "rest")    \
  X(RequestForgotten, "P6")        \
  X(NoAudit, "C7")                 \
  X(CloseKeepsCard, "P9")          \
  X(MemoryOverbooked, "P1")        \
  X(MemoryNotReturned, "P4")       \
  X(PartialMultiCard, "P5")        \
  X(TaskIdReused, "P6")            \
  X(GrantWhileOnline, "A3")        \
  X(SettleTimerSkipped, "A11")     \
  X(UnusedCreditKept, "A4")        \
  X(ShareRoundedUp, "A4")          \
  X(OnlineIdleTooEarly, "A3")      \
  X(OnlineIdleFromSubmit, "A3")    \
  X(ParkedHolderNotHeld, "A3")     \
  X(QuarantineGranted, "A11")      \
  X(DebtForgotten, "A9")           \
  X(NoGrantAfterDeath, "A7")       \
  X(TimeCountedTwice, "A9")        \
  X(EpochNotGrowing, "A10")        \
  X(DeathUntold, "A11")            \
  X(SettledTooEarly, "A1")         \
  X(EnableTrusted, "A1")           \
  X(UndoneKept, "rest")            \
  X(EnabledOnce, "rest")           \
  X(FutureBelieved, "C7")          \
  X(DeadBytesKept, "A14")          \
  X(ExpectedIgnored, "A1")         \
  X(DisobedientIgnored, "A1")      \
  X(KeptSlotGiven, "A14")

// Of a cluster: in the scheduler, the member and what the node does for it; in the seat and the
// store of several schedulers, and the last one in how the world puts a scheduler together.
#define QGPU_CLUSTER_BUGS(X)    \
  X(PlacedBeforeFence, "C3")    \
  X(LeaseIgnored, "C1")         \
  X(TermNotStored, "C1")        \
  X(TermReused, "C1")           \
  X(SubmitTakenAgain, "P6")     \
  X(AnsweredTwice, "C2")        \
  X(UnknownTaskKept, "C4")      \
  X(EndedRoomKept, "P4")        \
  X(EndUntold, "P9")            \
  X(SubmitNotStored, "D2")      \
  X(StaleEpochBound, "P3")      \
  X(CordonIgnored, "P8")        \
  X(CpuOverbooked, "P8")        \
  X(InfeasibleWhenFull, "P7")   \
  X(WaitersNotWoken, "P10")     \
  X(RoundNotUndone, "C2")       \
  X(AddressStored, "A13")       \
  X(EndedBeforeNode, "C4")      \
  X(GroupTorn, "P11")           \
  X(GroupToldEarly, "P11")      \
  X(SeatBelieved, "C1")         \
  X(SeatTakenAnyway, "C1")      \
  X(AnyoneTakenForEnded, "C1")  \
  X(ChangeUnguarded, "C1")      \
  X(TurnIgnored, "D1")          \
  X(UnsureTakenForUndone, "D1") \
  X(LoadedTooEarly, "D1")

// Of memory that leaves a card: in the manager's decisions and in the library's.
#define QGPU_PAGING_BUGS(X)    \
  X(BackAtFirstAnswer, "M1")   \
  X(IdleByCallsAlone, "M2")    \
  X(LimitBelievedAtOnce, "M3") \
  X(OthersForgotten, "M3")     \
  X(RoomPromisedTwice, "M3")   \
  X(RoomTakenPiecewise, "M4")  \
  X(ReleasedUncopied, "M5")    \
  X(NeedWaitsForever, "M6")    \
  X(DeadlineForgotten, "M6")   \
  X(OrphanGoesOn, "M7")        \
  X(OrphanWaits, "M7")         \
  X(FirmLeaves, "M8")

// Each with whether every 5,000 seeds must hit it: X(name, Must) or X(name, Rare).
#define QGPU_MARKS(X)          \
  X(CommitFailed, Must)        \
  X(StorageBack, Must)         \
  X(SnapshotTaken, Must)       \
  X(OutboxRefused, Must)       \
  X(MoveRefused, Must)         \
  X(RequestRepeated, Must)     \
  X(IncarnationRaised, Must)   \
  X(CardDrained, Must)         \
  X(GatherTimedOut, Must)      \
  X(IntroducedLate, Rare)      \
  X(KillDue, Must)             \
  X(OwnerGone, Must)           \
  X(SeveralCards, Must)        \
  X(HolderDied, Must)          \
  X(LateHoldSettled, Must)     \
  X(ChannelsOff, Must)         \
  X(ChannelsEnded, Must)       \
  X(DriverBusy, Must)          \
  X(TakenOffAgain, Must)       \
  X(ReturnedAtWork, Rare)      \
  X(Overrun, Must)             \
  X(QuarantineOver, Must)      \
  X(OnlineHoldsRunning, Must)  \
  X(OnlineHoldsParked, Must)   \
  X(OnlineWhileSettling, Must) \
  X(OnlineHastens, Must)       \
  X(PolicyDuringSlice, Must)   \
  X(StaleSettled, Must)        \
  X(BellDisarmed, Must)        \
  X(SettledParked, Rare)       \
  X(SettledStuck, Rare)        \
  X(Thawed, Must)              \
  X(CounterBackwards, Must)    \
  X(BytesAboveQuota, Must)     \
  X(GateWithheld, Must)        \
  X(HelloWaited, Must)         \
  X(SlotKept, Must)            \
  X(DiedUnreturned, Must)

// Marks of seeds of clusters.
#define QGPU_CLUSTER_MARKS(X) \
  X(NodeSuspected, Must)      \
  X(NodeLost, Must)           \
  X(SchedulerSlept, Must)     \
  X(PlacedAfterLoss, Must)    \
  X(LostWhilePinned, Must)    \
  X(BackFromLoss, Must)       \
  X(SessionTakenOver, Must)   \
  X(StaleWords, Must)         \
  X(RestartedMidBind, Must)   \
  X(RestartedMidEnd, Must)    \
  X(AssumeExpired, Rare)      \
  X(EndOrderedAgain, Must)    \
  X(RoundUndone, Must)        \
  X(OrphanEnded, Must)        \
  X(RefusedByNode, Must)      \
  X(Evicted, Must)            \
  X(EvictedRoomTaken, Must)   \
  X(MovedByDrain, Must)       \
  X(EndedByDrain, Must)       \
  X(GroupGivenBack, Must)     \
  X(OlderEpochHere, Rare)     \
  X(OverRefused, Must)        \
  X(TokenAskedAgain, Must)    \
  X(LeaseOver, Must)          \
  X(LeaseBack, Must)          \
  X(OrderMetLeaseOver, Rare)  \
  X(HelloAwaitedBind, Must)   \
  X(ForwardExpired, Must)     \
  X(ForwardCutOff, Must)      \
  X(EndNotStored, Must)       \
  X(SeatLost, Must)           \
  X(SeatOfTheEnded, Must)     \
  X(SeatFoundAgain, Must)     \
  X(CommitUnsure, Must)       \
  X(ChangeFoundDone, Must)

// Marks of seeds of memory that leaves a card.
#define QGPU_PAGING_MARKS(X) \
  X(DrainGivenUp, Must)      \
  X(LimitTrimmed, Must)      \
  X(MoreOutThanBefore, Must) \
  X(StayCutShort, Must)      \
  X(TurnedBack, Must)        \
  X(LeftInPart, Must)        \
  X(FreedWhileOut, Must)     \
  X(OrphanWentOn, Must)      \
  X(EndedForNeed, Must)      \
  X(NeedRefused, Must)

enum class Bug : std::uint8_t {
#define X(name, invariant) name,
  QGPU_BUGS(X) QGPU_CLUSTER_BUGS(X) QGPU_PAGING_BUGS(X)
#undef X
      kNone
};

enum class Mark : std::uint8_t {
#define X(name, kind) name,
  QGPU_MARKS(X) QGPU_CLUSTER_MARKS(X) QGPU_PAGING_MARKS(X)
#undef X
      kCount
};

// One simulated world at a time runs in a process; these belong to it.
inline Bug plantedBug = Bug::kNone;
inline std::array<std::uint64_t, static_cast<std::size_t>(Mark::kCount)> marksHit{};

}  // namespace qgpu::sim

#define QGPU_PLANTED(bug) (::qgpu::sim::plantedBug == ::qgpu::sim::Bug::bug)
#define QGPU_MARK(path) (++::qgpu::sim::marksHit[static_cast<std::size_t>(::qgpu::sim::Mark::path)])
