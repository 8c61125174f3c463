#include "services/attach/pages/task_pages.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "runtime/planted.h"
#include "services/attach/pages/timeslices.h"
#include "services/wire/loans.h"
#include "services/wire/paging.h"

namespace qgpu {
namespace {

constexpr int kGateSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kReportSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::int64_t kStampSlackNs = 1'000'000;            // later than that is looked into
constexpr std::uint32_t kWaitingThreadsMax = 1u << 20;       // more is nonsense
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 62;  // sums stop here

std::uint64_t load(std::uint64_t& word) {
  return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_seq_cst);
}
std::uint32_t load(std::uint32_t& word) {
  return std::atomic_ref<std::uint32_t>(word).load(std::memory_order_seq_cst);
}
template <typename T>
void store(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_seq_cst);
}

Error osFailure(const char* what) {
  return fail(ErrorCode::Unavailable, std::string(what) + ": " + std::strerror(errno) +
                                          "; raise the limit of open files or free memory");
}

struct SharedMemory {
  Fd fd;
  Mapping map;
};

Result<SharedMemory> makeShared(const char* name, std::size_t bytes, int seals) {
  SharedMemory made;
  made.fd.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.fd) return osFailure("memfd_create");
  if (::ftruncate(made.fd.get(), static_cast<off_t>(bytes)) != 0) return osFailure("ftruncate");
  // Mapped for writing before the seals: F_SEAL_FUTURE_WRITE refuses it afterwards.
  void* at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, made.fd.get(), 0);
  if (at == MAP_FAILED) return osFailure("mmap of a shared page");
  made.map = Mapping(at, bytes);
  if (::fcntl(made.fd.get(), F_ADD_SEALS, seals) != 0) return osFailure("sealing a shared page");
  return made;
}

// A descriptor of the same file that can only read. The seals are what keeps a guest from
// reopening it for writing.
Result<Fd> reopenReadOnly(const Fd& fd) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd.get());
  Fd reopened(::open(path, O_RDONLY | O_CLOEXEC));
  if (!reopened) return osFailure("reopening the gate page read-only (is /proc mounted?)");
  return reopened;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)), size_(other.size_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(at_, other.at_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (at_ != nullptr) ::munmap(at_, size_);
}

Result<TaskPages> TaskPages::create(const TaskPagesSpec& spec, PagePlatform& around) {
  Result<SharedMemory> gate = makeShared("qgpu-gate", kGatePageBytes, kGateSeals);
  if (!gate) return gate.error();
  Result<SharedMemory> report = makeShared("qgpu-report", kReportPageBytes, kReportSeals);
  if (!report) return report.error();
  Result<Fd> readOnly = reopenReadOnly(gate->fd);
  if (!readOnly) return readOnly.error();
  TaskPages pages(around);
  pages.doorbell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!pages.doorbell_) return osFailure("eventfd");
  pages.gateRead_ = std::move(*readOnly);
  pages.report_ = std::move(report->fd);
  pages.gateMap_ = std::move(gate->map);
  pages.reportMap_ = std::move(report->map);
  pages.task_ = spec.task;
  pages.quota_ = spec.quota;
  pages.pageable_ = spec.pageable;

  auto* page = pages.gateMap_.as<qgpu_gate_page>();
  page->magic = QGPU_GATE_MAGIC;
  page->version = QGPU_ABI_VERSION;
  page->task_class = spec.taskClass;
  page->suspend = spec.suspend;
  page->incarnation = spec.incarnation;
  page->quota_bytes = static_cast<std::uint64_t>(spec.quota.value);
  page->window_ns = static_cast<std::uint64_t>(spec.window.value);
  page->orphan_grace_ns = static_cast<std::uint64_t>(spec.orphanGrace.value);
  pages.timeslices_ = spec.timeslices;
  pages.setUsed(0);
  page->loans_kept = QGPU_LOANS;
  page->pageable_bytes = static_cast<std::uint64_t>(spec.pageable.value);
  page->need_wait_ns = static_cast<std::uint64_t>(spec.needWait.value);
  page->layout_seen = spec.layoutSeen;
  pages.heartbeat(around.now());
  auto* header = pages.reportMap_.as<qgpu_report_page>();
  header->magic = QGPU_REPORT_MAGIC;
  header->version = QGPU_ABI_VERSION;
  header->slots = QGPU_SLOTS;
  header->task = spec.task;
  return pages;
}

Status TaskPages::adoptReport(Fd page) {
  struct stat theirs {
  }, ours{};
  struct statfs fs {};
  // Seals first: only a file in memory has some, and any other may take its time to answer fstat.
  if (::fcntl(page.get(), F_GET_SEALS) != kReportSeals) {
    return fail(ErrorCode::Denied, "the report page is not one that a manager handed out");
  }
  if (::fstat(page.get(), &theirs) != 0 || ::fstatfs(page.get(), &fs) != 0 ||
      ::fstat(report_.get(), &ours) != 0) {
    return fail(ErrorCode::Denied, "the report page can't be examined");
  }
  if (theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino) return ok();
  if (fs.f_type != TMPFS_MAGIC || theirs.st_size != static_cast<off_t>(kReportPageBytes)) {
    return fail(ErrorCode::Denied, "the report page is not one that a manager handed out");
  }
  void* at = ::mmap(nullptr, kReportPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    page.get(), 0);
  if (at == MAP_FAILED) return fail(ErrorCode::Denied, "the report page can't be mapped");
  Mapping map(at, kReportPageBytes);
  auto* header = map.as<qgpu_report_page>();
  if (load(header->magic) != QGPU_REPORT_MAGIC || load(header->version) != QGPU_ABI_VERSION ||
      load(header->slots) != QGPU_SLOTS || load(header->task) != task_) {
    return fail(ErrorCode::Denied, "the report page belongs to another task or version");
  }
  if (adopted_ || used_ != 0) {
    return fail(ErrorCode::Conflict,
                "another report page of this task is in use; attach anew without a page");
  }
  store(header->loans_kept_before, 0u);  // an earlier manager's promise, if it made one
  reportMap_ = std::move(map);
  report_ = std::move(page);
  adopted_ = true;
  return ok();
}

// Under a manager that overcommitted nothing all of it was firm, and stays so.
void TaskPages::lowerPageable() {
  const Bytes most(
      static_cast<std::int64_t>(static_cast<std::uint64_t>(quota_.value) -
                                std::min(bytes(), static_cast<std::uint64_t>(quota_.value))));
  if (pageable_ <= most) return;
  pageable_ = most;
  store(gateMap_.as<qgpu_gate_page>()->pageable_bytes, static_cast<std::uint64_t>(most.value));
}

void TaskPages::keepAway() {
  if (pageable_ == Bytes(0) || load(gateMap_.as<qgpu_gate_page>()->paging) != 0) return;
  lowerPageable();
  bool out = false;
  std::uint32_t epoch = 0;
  for (std::uint32_t i = 0; i < QGPU_SLOTS; i++) {
    out = out || load(slot(i).pageable_out) != 0;
    epoch = std::max(epoch, static_cast<std::uint32_t>(load(slot(i).paging_answer) >> 32));
  }
  if (!out) return;
  storePaging(paging::pack({epoch + 1, paging::Phase::Out, 0}));
}

void TaskPages::clearSlot(std::uint32_t i) {
  loans::slotEnds(*reportMap_.as<qgpu_report_page>(), i);  // before its bytes are gone
  auto* words = reinterpret_cast<std::uint64_t*>(&slot(i));
  for (std::size_t w = 0; w < sizeof(qgpu_slot) / sizeof *words; w++) {
    store(words[w], std::uint64_t{0});
  }
  seen_[i] = Seen{};
}

void TaskPages::setUsed(std::uint64_t slots) {
  used_ = slots;
  if (!timeslices_) return;
  auto* page = gateMap_.as<qgpu_gate_page>();
  const auto taskClass = static_cast<qgpu_class>(page->task_class);
  store(page->timeslice_us, timesliceUsOf(taskClass, std::popcount(used_)));
}

Result<std::uint32_t> TaskPages::takeSlot(std::uint32_t pid, std::uint64_t startTime) {
  if (used_ == ~std::uint64_t{0}) {
    return fail(ErrorCode::NoRoom, "64 processes of this task are attached already; end one");
  }
  const auto i = static_cast<std::uint32_t>(std::countr_one(used_));
  clearSlot(i);
  store(slot(i).pid, pid);
  store(slot(i).start_time, startTime);
  setUsed(used_ | bit(i));
  ignored_ &= ~bit(i);
  return i;
}

Status TaskPages::claimSlot(std::uint32_t i, std::uint32_t pid, std::uint64_t startTime) {
  if (i >= QGPU_SLOTS) {
    return fail(ErrorCode::InvalidArgument, "slot " + std::to_string(i) + " does not exist");
  }
  if (slotUsed(i) && !slotDead(i)) {
    return fail(ErrorCode::Conflict, "slot " + std::to_string(i) + " is another process's");
  }
  if (load(slot(i).pid) != pid || load(slot(i).start_time) != startTime) {
    return fail(ErrorCode::Denied, "slot " + std::to_string(i) + " is not of this process");
  }
  setUsed(used_ | bit(i));
  ignored_ &= ~bit(i);
  // What it did for an earlier manager stays part of what is reported.
  seen_[i] = Seen{};
  seen_[i].retired = load(slot(i).retired);
  // `retired` and not `admitted`: a launch that is taken back later may be part of the latter.
  seen_[i].admittedBefore = seen_[i].retired;
  if (load(slot(i).admitted) == seen_[i].retired) {
    const auto now = static_cast<std::uint64_t>(around_->now().value);
    const std::uint64_t stamp =
        std::max(load(slot(i).last_submit_ns), load(slot(i).last_retire_ns));
    seen_[i].stampBefore = Nanos(static_cast<std::int64_t>(std::min(stamp, now)));
  }
  return ok();
}

void TaskPages::freeSlot(std::uint32_t i) {
  if (slotUsed(i)) (void)use();  // its last counters, before they are gone
  if (QGPU_PLANTED(DeadBytesKept)) return;
  clearSlot(i);
  setUsed(used_ & ~bit(i));
  ignored_ &= ~bit(i);
}

std::uint64_t TaskPages::markedSlots() const {
  std::uint64_t marked = 0;
  for (std::uint32_t i = 0; i < QGPU_SLOTS; i++) {
    if (load(slot(i).pid) != 0 || load(slot(i).bytes) != 0) marked |= bit(i);
  }
  return marked;
}

std::uint32_t TaskPages::slotPid(std::uint32_t i) const {
  return load(slot(i).pid);
}

std::uint64_t TaskPages::slotStart(std::uint32_t i) const {
  return load(slot(i).start_time);
}

std::uint32_t TaskPages::obeys(std::uint32_t i) const {
  return load(slot(i).obeys);
}

void TaskPages::setIncarnation(std::uint32_t incarnation) {
  store(gateMap_.as<qgpu_gate_page>()->incarnation, incarnation);
}

Nanos TaskPages::storeGate(std::uint32_t epoch, std::uint32_t flags) {
  auto* page = gateMap_.as<qgpu_gate_page>();
  word_ = (epoch << QGPU_GATE_SEQ_SHIFT) | flags;
  store(page->epoch, epoch);
  std::atomic_ref<std::uint32_t>(page->gate).exchange(word_, std::memory_order_seq_cst);
  const Nanos now = around_->stored(task_, *page);
  store(page->gate_stored_ns, static_cast<std::uint64_t>(now.value));
  return now;
}

void TaskPages::wake(int waiters) {
  around_->wake(task_, *gateMap_.as<qgpu_gate_page>(), waiters);
}

void TaskPages::heartbeat(Nanos now) {
  store(gateMap_.as<qgpu_gate_page>()->heartbeat_ns, static_cast<std::uint64_t>(now.value));
}

void TaskPages::setWindow(Nanos window) {
  store(gateMap_.as<qgpu_gate_page>()->window_ns, static_cast<std::uint64_t>(window.value));
}

void TaskPages::storePaging(std::uint64_t word) {
  auto* page = gateMap_.as<qgpu_gate_page>();
  store(page->paging, word);
  around_->wakePaging(*page);
}

void TaskPages::storePageableLimit(Bytes limit) {
  auto* page = gateMap_.as<qgpu_gate_page>();
  store(page->pageable_limit, static_cast<std::uint64_t>(limit.value));
  around_->wakePaging(*page);
}

void TaskPages::close(Nanos now) {
  if (closed_) return;
  closed_ = true;
  auto* page = gateMap_.as<qgpu_gate_page>();
  store(page->closed, static_cast<std::uint64_t>(std::max<std::int64_t>(now.value, 1)));
  // Work that is frozen stays so: its card is somebody else's.
  storeGate((word_ >> QGPU_GATE_SEQ_SHIFT) + 1, word_ & QGPU_GATE_FROZEN);
  wake(1);
}

std::uint32_t TaskPages::readInFlight(std::uint32_t i) {
  // `retired` first: with a shut gate, equality then means that nothing was in flight in between.
  const std::uint64_t retired = load(slot(i).retired);
  const std::uint64_t admitted = load(slot(i).admitted);
  Seen& seen = seen_[i];
  if (retired < seen.retired) {
    QGPU_MARK(CounterBackwards);
    faults_ |= kFaultBackwards;
  }
  if (retired > seen.retired) {
    retiredTotal_ += std::min<std::uint64_t>(retired - seen.retired, QGPU_MAX_INFLIGHT);
  }
  seen.retired = retired;
  if (admitted < retired) {
    faults_ |= kFaultInFlight;
    return 0;
  }
  if (admitted - retired > QGPU_MAX_INFLIGHT) {
    faults_ |= kFaultInFlight;
    return QGPU_MAX_INFLIGHT;
  }
  return static_cast<std::uint32_t>(admitted - retired);
}

Nanos TaskPages::readStamp(std::uint64_t raw, std::int64_t& seen, Nanos now) {
  const auto limit = static_cast<std::uint64_t>(now.value);
  const auto beyond = [raw](Nanos clock) {
    return raw > static_cast<std::uint64_t>(clock.value) + kStampSlackNs;
  };
  // The guest may have run since `now` while this thread waited for its CPU, so the clock is asked
  // again. A stamp of the future read as "now" would be news at every look, and keep its card and
  // this loop busy for nothing.
  if (beyond(now) && beyond(around_->now())) {
    faults_ |= kFaultFuture;
    if (!QGPU_PLANTED(FutureBelieved)) return Nanos(seen);
  }
  seen = std::max(seen, static_cast<std::int64_t>(std::min(raw, limit)));
  return Nanos(seen);
}

void TaskPages::sampleSlot(std::uint32_t i, Nanos now, GateSample& out) {
  qgpu_slot& s = slot(i);
  if ((load(s.owner) & FUTEX_OWNER_DIED) != 0) {
    ignored_ |= bit(i);
    out.died |= bit(i);
    return;
  }
  out.anyAlive = true;
  const std::uint32_t inFlight = readInFlight(i);
  const std::uint32_t waiting = std::min(load(s.waiting), kWaitingThreadsMax);
  out.inFlight = std::min(out.inFlight + inFlight, QGPU_MAX_INFLIGHT);
  out.waiting = std::min(out.waiting + waiting, kWaitingThreadsMax);
  Seen& seen = seen_[i];
  const std::uint64_t admitted = load(s.admitted);
  out.admitted += admitted - std::min(admitted, seen.admittedBefore);
  const Nanos submit = readStamp(load(s.last_submit_ns), seen.lastSubmit, now);
  const Nanos retire = readStamp(load(s.last_retire_ns), seen.lastRetire, now);
  if (submit > seen.stampBefore) out.lastSubmit = std::max(out.lastSubmit, submit);
  if (retire > seen.stampBefore) out.lastRetire = std::max(out.lastRetire, retire);
  if (inFlight == 0) return;
  const std::uint32_t threads = driverThreads(i);
  if (threads != 0 && load(s.frozen) >= threads) {
    const std::uint64_t at = std::min(load(s.frozen_ns), static_cast<std::uint64_t>(now.value));
    out.frozenAt = std::max(out.frozenAt, Nanos(static_cast<std::int64_t>(at)));
  } else if (load(s.parked) != 0) {
    out.anyParked = true;
  } else {
    out.stopped = false;
  }
}

GateSample TaskPages::sample(Nanos now) {
  GateSample out;
  for (std::uint64_t rest = used_ & ~ignored_; rest != 0; rest &= rest - 1) {
    sampleSlot(static_cast<std::uint32_t>(std::countr_zero(rest)), now, out);
  }
  out.retired = retiredTotal_;
  return out;
}

std::uint64_t TaskPages::grown(std::uint64_t raw, std::uint64_t& seen) {
  if (raw < seen) {
    faults_ |= kFaultBackwards;
    return 0;
  }
  const std::uint64_t by = std::min(raw - seen, kCountMax - std::min(seen, kCountMax));
  seen = raw;
  return by;
}

std::uint64_t TaskPages::bytes() const {
  return loans::total(*reportMap_.as<qgpu_report_page>(), used_);
}

void TaskPages::judgeQuota() {
  const bool over = bytes() > static_cast<std::uint64_t>((quota_ - pageable_).value);
  if (over && overQuota_) {
    QGPU_MARK(BytesAboveQuota);
    faults_ |= kFaultBytes;
  }
  overQuota_ = over;
}

UseSample TaskPages::use() {
  UseSample out;
  const auto quota = static_cast<std::uint64_t>(quota_.value);
  for (std::uint64_t rest = used_; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::uint32_t>(std::countr_zero(rest));
    qgpu_slot& s = slot(i);
    memPeak_ = std::max(memPeak_, std::min(load(s.bytes_peak), quota));
    const std::uint64_t launches = launchesTotal_ + grown(load(s.launches), seen_[i].launches);
    const std::uint64_t gpuNs = gpuNsTotal_ + grown(load(s.gpu_ns), seen_[i].gpuNs);
    launchesTotal_ = std::min(launches, kCountMax);
    gpuNsTotal_ = std::min(gpuNs, kCountMax);
    const std::uint64_t refused = refusedTotal_ + grown(load(s.refused), seen_[i].refused);
    refusedTotal_ = std::min(refused, kCountMax);
  }
  out.memBytes = std::min(bytes(), quota);
  memPeak_ = std::max(memPeak_, out.memBytes);
  out.memPeak = memPeak_;
  out.launches = launchesTotal_;
  out.gpuNs = gpuNsTotal_;
  out.refused = refusedTotal_;
  if (pageable_ > Bytes(0)) {
    const PagingSums paging = pagingSums();
    out.pageableHeld = paging.held;
    out.pageableOut = paging.out;
  }
  auto* header = reportMap_.as<qgpu_report_page>();
  if (load(header->magic) != QGPU_REPORT_MAGIC || load(header->task) != task_) {
    faults_ |= kFaultHeader;
  }
  return out;
}

std::uint64_t TaskPages::firmLeft() const {
  const auto firm = static_cast<std::uint64_t>((quota_ - pageable_).value);
  return firm - std::min(firm, bytes());
}

SlotPaging TaskPages::slotPaging(std::uint32_t i) {
  qgpu_slot& s = slot(i);
  SlotPaging out;
  const std::uint64_t answer = load(s.paging_answer);
  out.epoch = static_cast<std::uint32_t>(answer >> 32);
  out.answer = static_cast<std::uint32_t>(answer);
  out.out = std::min(load(s.pageable_out), static_cast<std::uint64_t>(pageable_.value));
  out.need = std::min(load(s.need_bytes), firmLeft());
  if (out.need == 0) return out;
  const std::uint64_t since = load(s.need_since_ns);
  // What is to come is no time; it must not read as another one at each look.
  out.needSince = since <= static_cast<std::uint64_t>(around_->now().value) ? since : 0;
  return out;
}

PagingSums TaskPages::pagingSums() {
  PagingSums out;
  const auto most = static_cast<std::uint64_t>(pageable_.value);
  const auto add = [most](std::uint64_t& sum, std::uint64_t& word) {
    sum = std::min(sum + std::min(load(word), most), most);
  };
  for (std::uint64_t rest = used_; rest != 0; rest &= rest - 1) {
    qgpu_slot& s = slot(static_cast<std::uint32_t>(std::countr_zero(rest)));
    add(out.held, s.pageable_held);
    add(out.out, s.pageable_out);
    if (slotDead(static_cast<std::uint32_t>(std::countr_zero(rest)))) continue;
    add(out.more, s.pageable_more);
  }
  out.out = std::min(out.out, out.held);
  out.more = std::min(out.more, most - out.held);
  out.firm = std::min(bytes(), static_cast<std::uint64_t>((quota_ - pageable_).value));
  return out;
}

std::uint32_t TaskPages::driverThreads(std::uint32_t i) {
  const std::uint32_t threads = load(slot(i).driver_threads);
  if (threads <= QGPU_DRIVER_THREADS) return threads;
  faults_ |= kFaultThreads;
  return 0;
}

std::uint32_t TaskPages::driverThread(std::uint32_t i, std::uint32_t index) const {
  return load(slot(i).tids[index]);
}

std::string TaskPages::faultText(std::uint32_t faults) {
  static constexpr const char* kTexts[] = {
      "a counter ran backwards",        "launches in flight made no sense",
      "a time stamp was in the future", "too many driver threads",
      "more bytes than the quota",      "the page header was overwritten",
  };
  std::string text;
  for (std::size_t i = 0; i < std::size(kTexts); i++) {
    if ((faults >> i & 1u) == 0) continue;
    if (!text.empty()) text += "; ";
    text += kTexts[i];
  }
  return text;
}

}  // namespace qgpu
