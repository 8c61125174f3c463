#pragma once
// The shared memory of one task on its card: the gate page that only the manager writes, the
// report page that the task's processes write, and the doorbell.
//
// Nothing read from a report page is believed. Every counter is bounded against what was seen
// before, so that a scribbled page harms its owner alone (C7); what was nonsense is remembered as
// a fault of the task. Pages that come from outside are mapped only when they are a memfd with
// exactly our seals and size, so no truncation and no foreign file system reaches the loop
// (HAZARDS 9). Belongs to the card loop's thread; no locks.

#include <cstdint>
#include <string>

#include "runtime/fd.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/attach/pages/platform.h"
#include "services/attach/roster/roster.h"
#include "services/wire/gate_abi.h"

namespace qgpu {

inline constexpr std::size_t kGatePageBytes = 4096;
inline constexpr std::size_t kReportPageBytes = (sizeof(qgpu_report_page) + 4095) / 4096 * 4096;
static_assert(sizeof(qgpu_gate_page) <= kGatePageBytes);
static_assert(QGPU_SLOTS == 64, "slots are kept in one 64-bit mask");

// An owned shared mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* at, std::size_t size) : at_(at), size_(size) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  template <typename T>
  T* as() const {
    return static_cast<T*>(at_);
  }
  explicit operator bool() const { return at_ != nullptr; }

 private:
  void* at_ = nullptr;
  std::size_t size_ = 0;
};

// What a task's pages are made for. Times in ns, memory in bytes.
struct TaskPagesSpec {
  std::uint64_t task = 0;
  qgpu_class taskClass = QGPU_ORDINARY;
  qgpu_suspend suspend = QGPU_SUSPEND_GATE;
  std::uint32_t incarnation = 0;
  Bytes quota{0};
  Nanos window{0};  // 0: no limit of work in flight
  Nanos orphanGrace{0};
  bool timeslices = false;       // as timeslices.h says; else what the driver gives
  Bytes pageable{0};             // of the quota, what may leave the card
  Nanos needWait{0};             // an allocation that the card refused is tried again for so long
  std::uint32_t layoutSeen = 0;  // Card::layoutSeen
};

// The state of all live processes of a task, read once and bounded.
struct GateSample {
  std::uint32_t inFlight = 0;  // launches let through and not known to be finished
  std::uint32_t waiting = 0;   // threads at the gate or at the window
  std::uint64_t admitted = 0;  // raw sum since the slots were taken; a change: work came
  std::uint64_t retired = 0;   // grows by what was retired since the last sample
  Nanos lastSubmit{0};         // 0: never; at most `now`
  Nanos lastRetire{0};
  bool stopped = true;     // each process with work in flight is frozen or parked
  bool anyParked = false;  // ... and of one of them the oldest work can't run
  Nanos frozenAt{0};       // the last of these stops, at most `now`
  std::uint64_t died = 0;  // mask of slots whose robust futex newly says OWNER_DIED
  bool anyAlive = false;   // some slot is taken by a process that lives, as far as known
  bool busy() const { return inFlight != 0 || waiting != 0; }
};

// What the processes of a task used, those that ended included: bytes now and at most, launches,
// and ns of kernels as profiling measured them.
struct UseSample {
  std::uint64_t memBytes = 0;
  std::uint64_t memPeak = 0;
  std::uint64_t launches = 0;
  std::uint64_t gpuNs = 0;
  std::uint64_t refused = 0;       // allocations, since they would pass the quota
  std::uint64_t pageableHeld = 0;  // on the card and off it; none of it is in memBytes
  std::uint64_t pageableOut = 0;
  bool operator==(const UseSample&) const = default;
};

// What the task has of its card and off it, each within its part of the quota. What is pageable is
// not in UseSample::memBytes.
struct PagingSums {
  std::uint64_t firm = 0;  // what never leaves
  std::uint64_t held = 0;  // pageable, on the card and off it ...
  std::uint64_t out = 0;   // ... of these, off it ...
  std::uint64_t more = 0;  // ... and for so much above the limit its threads wait
  bool operator==(const PagingSums&) const = default;
};
// What one process says of it: its last answer (services/wire/paging.h), and what the card refused
// it though its quota has room, since when.
struct SlotPaging {
  std::uint32_t epoch = 0;
  std::uint32_t answer = 0;
  std::uint64_t out = 0;
  std::uint64_t need = 0;
  std::uint64_t needSince = 0;  // at most now
  // It has none of such memory and may never have: one that has says so before its first.
  bool takesNoPart() const { return epoch == 0 && answer == 0 && need == 0; }
  bool operator==(const SlotPaging&) const = default;
};

// What was nonsense in a report page; bits of TaskPages::faults().
enum PageFault : std::uint32_t {
  kFaultBackwards = 1u << 0,  // a counter ran backwards
  kFaultInFlight = 1u << 1,   // more in flight than QGPU_MAX_INFLIGHT, or retired > admitted
  kFaultFuture = 1u << 2,     // a stamp of the future
  kFaultThreads = 1u << 3,    // more driver threads than there is room for
  kFaultBytes = 1u << 4,      // more bytes than the quota, twice in a row
  kFaultHeader = 1u << 5,     // the page's own header was overwritten
};

// GuestTask owns it. AttachServer makes it, the roster asks and gives slots through RosterPages,
// the gate port does the rest.
class TaskPages final : public RosterPages {
 public:
  // New pages, with the gate shut and every slot free. Fails with Unavailable when the machine has
  // no memory or descriptors left. `around` outlives the pages.
  static Result<TaskPages> create(const TaskPagesSpec& spec, PagePlatform& around);

  // --- descriptors to hand to a guest; they stay owned here ---
  int gateFd() const { return gateRead_.get(); }  // O_RDONLY
  int reportFd() const { return report_.get(); }
  int doorbellFd() const { return doorbell_.get(); }

  // Takes the page that a guest brought back after a restart of the manager, or that was found with
  // one. The first one replaces the unused page made by create(); later ones must be the same file.
  // Refused with Denied (seals, size, type, other task) or Conflict (a different page is in use).
  Status adoptReport(Fd page);
  bool adopted() const override { return adopted_; }

  // --- slots: see RosterPages ---
  Result<std::uint32_t> takeSlot(std::uint32_t pid, std::uint64_t startTime) override;
  Status claimSlot(std::uint32_t slot, std::uint32_t pid, std::uint64_t startTime) override;
  void freeSlot(std::uint32_t slot) override;
  void reserveSlot(std::uint32_t slot) override {
    setUsed(used_ | bit(slot));
    ignored_ |= bit(slot);
  }
  std::uint64_t markedSlots() const override;
  std::uint32_t slotPid(std::uint32_t slot) const override;
  std::uint64_t slotStart(std::uint32_t slot) const override;
  std::uint32_t obeys(std::uint32_t slot) const override;
  std::uint64_t usedSlots() const override { return used_; }
  bool slotUsed(std::uint32_t slot) const { return (used_ & bit(slot)) != 0; }
  // The slot's process can't run any more though its memory is not torn down yet, or has not come
  // back: it counts nothing.
  bool slotDead(std::uint32_t slot) const override { return (ignored_ & bit(slot)) != 0; }

  // --- the gate ---
  void setIncarnation(std::uint32_t incarnation) override;
  // Exchanges the gate word, sequentially consistent, and stamps it. Returns the stamp.
  Nanos storeGate(std::uint32_t epoch, std::uint32_t flags);
  // Wakes that many waiters. One is enough for an open gate: each woken guest thread wakes the
  // next (HAZARDS 15).
  void wake(int waiters);
  // Says that the manager lives; `now` is loop time. Guests compare it with the orphan grace.
  void heartbeat(Nanos now);
  void setWindow(Nanos window);  // of work in flight; 0: no limit
  // --- memory that leaves the card: stored, and then all who wait for it wake ---
  void storePaging(std::uint64_t word);  // of paging::pack()
  void storePageableLimit(Bytes limit);
  // Before a process reads the page, where no card's word stands in it: what is off the card under
  // a manager of before stays off it until such a word, whose epochs are others; and what was firm
  // under one that overcommitted nothing stays firm.
  void keepAway();
  Bytes pageable() const { return pageable_; }

  // Launches fail from now on; waiters wake, see it and wake the next.
  void close(Nanos now);
  bool closed() const { return closed_; }
  // The word that was stored last.
  std::uint32_t gateWord() const { return word_; }

  // --- reading the report page ---
  // `now` bounds the stamps. Only one that is later than the clock itself is a fault. Slots that
  // were seen dead before count nothing.
  GateSample sample(Nanos now);
  // The counters, each bounded by what was seen of it before.
  UseSample use();
  // Called about once a second. A racing reservation shows for a moment before it is taken back,
  // so only bytes above the quota in two calls in a row are a fault.
  void judgeQuota();
  // Launches of this slot that are not known to be finished; at most QGPU_MAX_INFLIGHT.
  std::uint32_t inFlight(std::uint32_t slot) { return readInFlight(slot); }
  std::uint32_t driverThreads(std::uint32_t slot);  // bounded; 0: none identified
  // What each process says is read before the sums: these are stored before the answer that they
  // belong to.
  SlotPaging slotPaging(std::uint32_t slot);
  std::uint64_t firmLeft() const;  // of the quota of what stays
  PagingSums pagingSums();
  std::uint32_t driverThread(std::uint32_t slot, std::uint32_t index) const;
  // Bits of PageFault, of all that was seen since create().
  std::uint32_t faults() const { return faults_; }
  Bytes quota() const { return quota_; }
  // The same for a person.
  static std::string faultText(std::uint32_t faults);

 private:
  // What was believed of a slot so far.
  struct Seen {
    std::uint64_t retired = 0;
    std::uint64_t launches = 0;
    std::uint64_t gpuNs = 0;
    std::uint64_t refused = 0;
    std::int64_t lastSubmit = 0;
    std::int64_t lastRetire = 0;
    std::uint64_t admittedBefore = 0;  // for an earlier manager; not work that came since
    Nanos stampBefore{0};
  };

  explicit TaskPages(PagePlatform& around) : around_(&around) {}
  static std::uint64_t bit(std::uint32_t slot) { return std::uint64_t{1} << slot; }
  qgpu_slot& slot(std::uint32_t i) const { return reportMap_.as<qgpu_report_page>()->slot[i]; }
  std::uint64_t bytes() const;
  void clearSlot(std::uint32_t i);
  void setUsed(std::uint64_t slots);  // and the timeslice for so many processes
  void lowerPageable();
  void sampleSlot(std::uint32_t i, Nanos now, GateSample& out);
  std::uint32_t readInFlight(std::uint32_t i);
  Nanos readStamp(std::uint64_t raw, std::int64_t& seen, Nanos now);
  std::uint64_t grown(std::uint64_t raw, std::uint64_t& seen);

  PagePlatform* around_;
  std::uint64_t task_ = 0;
  Bytes quota_{0};
  Bytes pageable_{0};
  Fd gateRead_;
  Fd report_;
  Fd doorbell_;
  Mapping gateMap_;
  Mapping reportMap_;
  bool timeslices_ = false;
  bool adopted_ = false;
  bool closed_ = false;
  bool overQuota_ = false;
  std::uint32_t word_ = 0;
  std::uint64_t used_ = 0;     // slots with a process
  std::uint64_t ignored_ = 0;  // of these, the ones whose owner is known to be dead
  std::uint32_t faults_ = 0;
  std::uint64_t memPeak_ = 0;
  std::uint64_t retiredTotal_ = 0;
  std::uint64_t launchesTotal_ = 0;  // also of processes that are gone
  std::uint64_t gpuNsTotal_ = 0;
  std::uint64_t refusedTotal_ = 0;
  Seen seen_[QGPU_SLOTS];
};

}  // namespace qgpu
