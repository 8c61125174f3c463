// The report page of a hostile tenant, as the manager reads it. Layout: a sequence of calls, each a
// byte that names it and its arguments; most write into the page as a guest would, the others are
// what the attach server and the gate port do with it. Time moves only where an input says so.
//
// Promises: C7 and A10 (all that is read is bounded: work in flight, waiters, stamps, bytes, driver
// threads; totals only grow, whatever the page says), A14 (a freed slot holds nothing), HAZARDS 9
// (a page that is not ours is never taken), and what the manager itself keeps of slots stays right.

#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>

#include "services/attach/pages/task_pages.h"
#include "services/wire/loans.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

constexpr std::uint64_t kTask = 7;
constexpr Bytes kQuota = mebibytes(64);
constexpr int kCallsMax = 512;

class StillWorld final : public PagePlatform {
 public:
  Nanos now() override { return at; }
  Nanos stored(std::uint64_t, const qgpu_gate_page&) override { return at; }
  void wake(std::uint64_t, qgpu_gate_page&, int) override {}
  Nanos at = seconds(1000);
};

TaskPages makePages(StillWorld& world, std::uint64_t task) {
  TaskPagesSpec spec;
  spec.task = task;
  spec.quota = kQuota;
  spec.incarnation = 3;
  Result<TaskPages> made = TaskPages::create(spec, world);
  require(made.ok(), "this machine has memory for a page");
  return std::move(*made);
}

// Our own map of a report page: the tenant's.
class Tenant {
 public:
  explicit Tenant(int fd)
      : at_(::mmap(nullptr, kReportPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
    require(at_ != MAP_FAILED, "a tenant maps its page");
  }
  Tenant(const Tenant&) = delete;
  ~Tenant() { ::munmap(at_, kReportPageBytes); }
  qgpu_report_page& page() { return *static_cast<qgpu_report_page*>(at_); }
  qgpu_slot& slot(std::uint32_t i) { return page().slot[i % QGPU_SLOTS]; }
  void write(std::size_t at, std::span<const std::uint8_t> bytes) {
    const std::size_t from = at % kReportPageBytes;
    const std::size_t size = std::min(bytes.size(), kReportPageBytes - from);
    if (size != 0) std::memcpy(static_cast<char*>(at_) + from, bytes.data(), size);
  }

 private:
  void* at_;
};

class Game {
 public:
  explicit Game(Input in) : in_(in) {}

  void play() {
    for (int calls = 0; calls < kCallsMax && !in_.empty(); ++calls) call();
    sample();
    use();
  }

 private:
  enum class Call : std::uint8_t {
    Write,
    Number,
    Fill,
    Copy,
    Time,
    Sample,
    Use,
    Judge,
    Threads,
    Take,
    Claim,
    Free,
    Reserve,
    Adopt,
    Store,
    Close,
    Count,
  };

  void call() {
    const auto call = static_cast<Call>(in_.byte() % static_cast<std::uint8_t>(Call::Count));
    switch (call) {
      case Call::Write: {
        const std::size_t at = in_.number<std::uint16_t>();
        return tenant_->write(at, in_.bytes(in_.byte()));
      }
      case Call::Number:
        return number();
      case Call::Fill:
        return fill();
      case Call::Copy: {
        const qgpu_slot from = tenant_->slot(in_.byte());
        tenant_->slot(in_.byte()) = from;
        return;
      }
      case Call::Time:
        world_.at += Nanos(in_.number<std::uint32_t>());
        return;
      case Call::Sample:
        return sample();
      case Call::Use:
        return use();
      case Call::Judge:
        return pages_.judgeQuota();
      case Call::Threads:
        return threads();
      case Call::Take:
        return take();
      case Call::Claim:
        return claim();
      case Call::Free:
        return freeSlot();
      case Call::Reserve:
        return reserve();
      case Call::Adopt:
        return adopt();
      case Call::Store:
        return storeGate();
      case Call::Close:
        pages_.close(world_.at);
        require(pages_.closed() && (pages_.gateWord() & QGPU_GATE_OPEN) == 0, "closed is shut");
        return;
      case Call::Count:
        return;
    }
  }

  // One counter, where it matters: near what it was, near the clock, or anything.
  void number() {
    qgpu_slot& slot = tenant_->slot(in_.byte());
    std::uint64_t* const fields[] = {&slot.admitted,       &slot.retired,    &slot.last_submit_ns,
                                     &slot.last_retire_ns, &slot.launches,   &slot.gpu_ns,
                                     &slot.bytes,          &slot.bytes_peak, &slot.frozen_ns,
                                     &slot.start_time};
    std::uint64_t& field = *fields[in_.byte() % std::size(fields)];
    const auto by = static_cast<std::uint64_t>(std::int64_t{in_.number<std::int16_t>()});
    switch (in_.byte() & 3U) {
      case 0:
        field += by;
        break;
      case 1:
        field = static_cast<std::uint64_t>(world_.at.value) + by;
        break;
      case 2:
        field = by;
        break;
      default:
        field = in_.number<std::uint64_t>();
        break;
    }
  }

  void fill() {
    qgpu_slot& slot = tenant_->slot(in_.byte());
    std::memset(static_cast<void*>(&slot), in_.byte(), sizeof slot);
  }

  void sample() {
    const GateSample s = pages_.sample(world_.at);
    require(s.inFlight <= QGPU_MAX_INFLIGHT && s.waiting <= 1U << 20, "work is bounded");
    require(s.lastSubmit >= Nanos(0) && s.lastSubmit <= world_.at, "no submit is in the future");
    require(s.lastRetire >= Nanos(0) && s.lastRetire <= world_.at, "nor a retirement");
    require(s.frozenAt >= Nanos(0) && s.frozenAt <= world_.at, "nor a stop");
    require(s.retired >= retired_ &&
                s.retired - retired_ <= std::uint64_t{QGPU_SLOTS} * QGPU_MAX_INFLIGHT,
            "what retired only grows, by what can have been in flight");
    require((s.died & ~pages_.usedSlots()) == 0 && (s.died & died_) == 0,
            "an owner dies once, in a slot of its own");
    require(!s.anyAlive || pages_.usedSlots() != 0, "who lives has a slot");
    require(s.busy() == (s.inFlight != 0 || s.waiting != 0), "busy is having work");
    retired_ = s.retired;
    died_ |= s.died;
    for (std::uint32_t i = 0; i < QGPU_SLOTS; ++i) {
      require(((died_ >> i) & 1U) == 0 || pages_.slotDead(i), "the dead stay dead");
    }
    checkFaults();
  }

  void use() {
    const UseSample u = pages_.use();
    const auto quota = static_cast<std::uint64_t>(kQuota.value);
    require(u.memBytes <= u.memPeak && u.memPeak <= quota, "A14: bytes within the quota");
    require(u.memPeak >= peak_ && u.launches >= launches_ && u.gpuNs >= gpuNs_, "totals only grow");
    require(u.launches <= std::uint64_t{1} << 62 && u.gpuNs <= std::uint64_t{1} << 62,
            "totals are bounded");
    peak_ = u.memPeak;
    launches_ = u.launches;
    gpuNs_ = u.gpuNs;
    checkFaults();
  }

  void checkFaults() {
    require((pages_.faults() & faults_) == faults_, "a fault is remembered");
    faults_ = pages_.faults();
    require(TaskPages::faultText(faults_).empty() == (faults_ == 0), "a fault has a name");
  }

  void threads() {
    const std::uint32_t slot = in_.byte() % QGPU_SLOTS;
    const std::uint32_t count = pages_.driverThreads(slot);
    require(count <= QGPU_DRIVER_THREADS, "driver threads are bounded");
    for (std::uint32_t i = 0; i < count; ++i) static_cast<void>(pages_.driverThread(slot, i));
    static_cast<void>(pages_.obeys(slot));
    static_cast<void>(pages_.slotStart(slot));
    static_cast<void>(pages_.markedSlots());
  }

  void take() {
    const std::uint64_t before = pages_.usedSlots();
    const Result<std::uint32_t> slot = pages_.takeSlot(in_.byte(), in_.byte());
    require(slot.ok() == (before != ~std::uint64_t{0}), "a slot is given while there is one");
    if (!slot) return;
    require(((before >> *slot) & 1U) == 0 && !pages_.slotDead(*slot), "a slot is given once");
    require(tenant_->slot(*slot).bytes == 0 && tenant_->slot(*slot).admitted == 0,
            "A14: a slot is given clear");
    died_ &= ~(std::uint64_t{1} << *slot);
  }

  void claim() {
    const std::uint32_t slot = in_.byte();
    const bool live = slot < QGPU_SLOTS && pages_.slotUsed(slot) && !pages_.slotDead(slot);
    const bool claimed = pages_.claimSlot(slot, in_.byte(), in_.byte()).ok();
    require(!claimed || (slot < QGPU_SLOTS && !live), "nobody claims another's slot");
    if (claimed) died_ &= ~(std::uint64_t{1} << slot);
  }

  void freeSlot() {
    const std::uint32_t slot = in_.byte() % QGPU_SLOTS;
    pages_.freeSlot(slot);
    require(!pages_.slotUsed(slot) && tenant_->slot(slot).bytes == 0,
            "A14: the bytes of the dead return");
    for (const qgpu_loan& loan : tenant_->page().loan) {
      require(loans::borrowerOf(loan.state) != slot, "A14: and what they borrowed");
    }
    died_ &= ~(std::uint64_t{1} << slot);
  }

  void reserve() {
    const std::uint32_t slot = in_.byte() % QGPU_SLOTS;
    if (!pages_.slotUsed(slot)) pages_.reserveSlot(slot);
  }

  // As the gate port does, which leaves closed tasks alone.
  void storeGate() {
    const std::uint32_t epoch = in_.number<std::uint32_t>();
    const std::uint32_t flags = in_.byte() & 0xfU;
    if (pages_.closed()) return;
    require(pages_.storeGate(epoch, flags) == world_.at, "a store has its time");
    require(pages_.gateWord() == (epoch << QGPU_GATE_SEQ_SHIFT | flags), "a word is as stored");
  }

  // A page that comes from outside: ours again, another of this task or of another, or a fake.
  void adopt() {
    const auto duplicate = [](int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); };
    const std::uint8_t kind = in_.byte() % 5;
    const bool fresh = pages_.usedSlots() == 0 && !adopted_;
    if (kind == 0) {
      require(pages_.adoptReport(duplicate(pages_.reportFd())).ok(), "a page may come twice");
    } else if (kind <= 2) {
      TaskPages other = makePages(world_, kind == 1 ? kTask : kTask + 1);
      Tenant scribbler(other.reportFd());
      scribbler.write(in_.number<std::uint16_t>(), in_.bytes(in_.byte()));
      const qgpu_report_page& page = scribbler.page();
      const bool ours = page.magic == QGPU_REPORT_MAGIC && page.version == QGPU_ABI_VERSION &&
                        page.slots == QGPU_SLOTS && page.task == kTask;
      const bool taken = pages_.adoptReport(duplicate(other.reportFd())).ok();
      require(taken == (ours && fresh), "HAZARDS 9: one page of this task, before any other");
      adopted_ = adopted_ || taken;
      if (taken) tenant_.emplace(other.reportFd());
    } else {
      Fd fake(kind == 3 ? ::memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                        : ::open("/dev/null", O_RDWR | O_CLOEXEC));
      require(!pages_.adoptReport(std::move(fake)).ok(), "HAZARDS 9: a fake is refused");
    }
  }

  Input in_;
  StillWorld world_;
  TaskPages pages_ = makePages(world_, kTask);
  std::optional<Tenant> tenant_{std::in_place, pages_.reportFd()};
  bool adopted_ = false;
  std::uint64_t died_ = 0;
  std::uint64_t retired_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t gpuNs_ = 0;
  std::uint32_t faults_ = 0;
};

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  Game(Input(data, size)).play();
  return 0;
}
