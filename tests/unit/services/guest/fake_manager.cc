#include "tests/unit/services/guest/fake_manager.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/check.h"
#include "services/wire/loans.h"

namespace qgpu::testing {
namespace {

constexpr int kBeatMs = 20;

void need(bool held) {
  QGPU_CHECK(held, "a test machine gives memfds, sockets and a folder");
}

template <typename T>
T load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}
template <typename T>
void store(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_SEQ_CST);
}

int makeMemory(const char* name, std::size_t bytes) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  need(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  return fd;
}

template <typename T>
T* mapShared(int fd) {
  void* map = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  need(map != MAP_FAILED);
  return static_cast<T*>(map);
}

// As the pages have it.
std::uint64_t nowNs() {
  return static_cast<std::uint64_t>(monotonicNs());
}

}  // namespace

FakeManager::FakeManager(Options options) : options_(std::move(options)) {
  doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  reportFd_ = makeMemory("qgpu-report", sizeof(qgpu_report_page));
  report_ = mapShared<qgpu_report_page>(reportFd_);
  report_->magic = QGPU_REPORT_MAGIC;
  report_->version = QGPU_ABI_VERSION;
  report_->slots = QGPU_SLOTS;
  report_->task = 7;
  need(fcntl(reportFd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  restart(options_.gate);
}

FakeManager::~FakeManager() {
  if (listener_ >= 0) die();
  munmap(report_, sizeof *report_);
  for (qgpu_gate_page* page : oldGates_) munmap(page, sizeof *page);
  munmap(gate_, sizeof *gate_);
  for (int fd : {doorbell_, gateFd_, gateReadFd_, reportFd_}) ::close(fd);
}

void FakeManager::setTimeslice(std::uint64_t us) {
  options_.timesliceUs = us;
  store(gate_->timeslice_us, us);
}

void FakeManager::makeGatePage(std::uint32_t gate) {
  if (gate_) oldGates_.push_back(gate_);
  if (gateFd_ >= 0) ::close(gateFd_);
  if (gateReadFd_ >= 0) ::close(gateReadFd_);
  gateFd_ = makeMemory("qgpu-gate", sizeof(qgpu_gate_page));
  gate_ = mapShared<qgpu_gate_page>(gateFd_);
  gate_->magic = QGPU_GATE_MAGIC;
  gate_->version = QGPU_ABI_VERSION;
  gate_->task_class = options_.taskClass;
  gate_->suspend = options_.suspend;
  gate_->incarnation = ++incarnation_;
  gate_->quota_bytes = options_.quotaBytes;
  gate_->window_ns = options_.windowNs;
  gate_->orphan_grace_ns = options_.orphanGraceNs;
  gate_->timeslice_us = options_.timesliceUs;
  gate_->loans_kept = options_.loansKept;
  gate_->pageable_bytes = options_.pageableBytes;
  gate_->pageable_limit = options_.pageableLimit;
  gate_->need_wait_ns = options_.needWaitNs;
  gate_->layout_seen = options_.layoutSeen;
  epoch_ = 0;  // an incarnation counts its own epochs
  gate_->gate = gate | ++epoch_ << QGPU_GATE_SEQ_SHIFT;
  gate_->heartbeat_ns = nowNs();
  const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  need(fcntl(gateFd_, F_ADD_SEALS, seals) == 0);
  std::string again = "/proc/self/fd/" + std::to_string(gateFd_);
  gateReadFd_ = open(again.c_str(), O_RDONLY | O_CLOEXEC);
  need(gateReadFd_ >= 0);
}

std::uint32_t FakeManager::setPaging(paging::Phase phase, std::uint32_t permille) {
  store(gate_->paging, paging::pack({++pagingEpoch_, phase, permille}));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&gate_->paging) + 1, FUTEX_WAKE, INT32_MAX,
          nullptr, nullptr, 0);
  return pagingEpoch_;
}

void FakeManager::setPageableLimit(std::uint64_t bytes) {
  store(gate_->pageable_limit, bytes);
}

paging::Answer FakeManager::answerTo(std::uint32_t epoch, std::uint32_t slot) {
  const std::uint64_t said = load(report_->slot[slot].paging_answer);
  return said >> 32 == epoch ? static_cast<paging::Answer>(said & 0xffffffff)
                             : paging::Answer::None;
}

void FakeManager::restart(std::uint32_t gate) {
  makeGatePage(gate);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, path_.c_str());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  need(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  need(listen(listener_, 64) == 0);
  wake_ = eventfd(0, EFD_CLOEXEC);
  stop_ = false;
  thread_ = std::thread([this] { serve(); });
}

void FakeManager::die() {
  stop_ = true;
  const std::uint64_t one = 1;
  need(write(wake_, &one, sizeof one) == sizeof one);
  thread_.join();
  for (int* fd : {&listener_, &wake_}) {
    ::close(*fd);
    *fd = -1;
  }
  unlink(path_.c_str());
  for (Guest& guest : guests_) ::close(guest.fd);
  guests_.clear();
}

void FakeManager::serve() {
  while (!stop_) {
    std::vector<pollfd> watch = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (reading_) {
      for (const Guest& guest : guests_) watch.push_back({guest.fd, POLLIN, 0});
    }
    poll(watch.data(), watch.size(), kBeatMs);
    if (beating_) store(gate_->heartbeat_ns, nowNs());
    if (reading_) std::erase_if(guests_, [&](const Guest& guest) { return !take(guest); });
    if (!(watch[0].revents & POLLIN)) continue;
    int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) welcome(fd);
  }
}

// Reads what a guest told; false: it is gone.
bool FakeManager::take(const Guest& guest) {
  for (;;) {
    qgpu_note note{};
    const ssize_t n = recv(guest.fd, &note, sizeof note, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return true;
    if (n != static_cast<ssize_t>(sizeof note) || note.magic != QGPU_NOTE_MAGIC) {
      ::close(guest.fd);
      return false;
    }
    std::lock_guard lock(mutex_);
    notes_.push_back({guest.slot, guest.connection, note});
  }
}

void FakeManager::welcome(int fd) {
  qgpu_hello hello{};
  alignas(cmsghdr) char in[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&hello, sizeof hello};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = in;
  message.msg_controllen = sizeof in;
  bool whole = recvmsg(fd, &message, MSG_CMSG_CLOEXEC) == static_cast<ssize_t>(sizeof hello);
  cmsghdr* brought = CMSG_FIRSTHDR(&message);
  int page = -1;
  if (brought) memcpy(&page, CMSG_DATA(brought), sizeof page);
  // A page that is brought back is believed only if it is exactly what was handed out (HAZARDS 9).
  struct stat given, own;
  bool same = page >= 0 && fstat(page, &given) == 0 && fstat(reportFd_, &own) == 0 &&
              given.st_ino == own.st_ino;
  if (page >= 0) ::close(page);
  if (!whole || hello.magic != QGPU_ATTACH_MAGIC || (hello.reattach && !same)) {
    ::close(fd);
    return;
  }
  qgpu_welcome reply{};
  reply.magic = QGPU_ATTACH_MAGIC;
  reply.version = QGPU_ABI_VERSION;
  reply.task = 7;
  reply.slot = hello.reattach ? hello.slot : nextSlot_++;
  reply.incarnation = incarnation_;
  reply.cards = static_cast<std::uint32_t>(options_.devices.size());
  for (std::size_t i = 0; i < options_.devices.size(); ++i) reply.device[i] = options_.devices[i];
  for (std::size_t i = 0; i < options_.uuidBytes.size(); ++i) {
    memset(reply.uuid[i], options_.uuidBytes[i], QGPU_UUID_LEN);
  }
  strncpy(reply.platform, options_.platform.c_str(), QGPU_NAME_LEN - 1);
  strncpy(reply.model, options_.model.c_str(), QGPU_MODEL_LEN - 1);
  {
    std::lock_guard lock(mutex_);
    reply.refused = options_.refusal.empty() ? 0 : 1;
    strncpy(reply.reason, options_.refusal.c_str(), QGPU_REASON_LEN - 1);
    if (reply.refused) refusals_.push_back(nowNs());
  }
  int fds[3] = {gateReadFd_, reportFd_, doorbell_};
  alignas(cmsghdr) char out[CMSG_SPACE(sizeof fds)] = {};
  iovec answer{&reply, options_.welcomeBytes};
  msghdr send{};
  send.msg_iov = &answer;
  send.msg_iovlen = 1;
  if (!reply.refused) {
    send.msg_control = out;
    send.msg_controllen = sizeof out;
    cmsghdr* header = CMSG_FIRSTHDR(&send);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(header), fds, sizeof fds);
  }
  {
    std::lock_guard lock(mutex_);
    lastHello_ = hello;
  }
  // Counted first: a test may look as soon as its program has the answer.
  if (!reply.refused) (hello.reattach ? reattaches_ : attaches_).fetch_add(1);
  sendmsg(fd, &send, MSG_NOSIGNAL);
  if (reply.refused) {
    ::close(fd);
  } else {
    guests_.push_back({fd, reply.slot, attaches_ + reattaches_});
  }
}

std::uint32_t FakeManager::setGate(std::uint32_t bits) {
  std::uint32_t word = bits | ++epoch_ << QGPU_GATE_SEQ_SHIFT;
  __atomic_exchange_n(&gate_->gate, word, __ATOMIC_SEQ_CST);
  store(gate_->gate_stored_ns, nowNs());
  if (bits & QGPU_GATE_OPEN) syscall(SYS_futex, &gate_->gate, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  return word;
}

void FakeManager::freeze() {
  setGate(QGPU_GATE_FROZEN);
  sendFreezeSignals();
}

void FakeManager::sendFreezeSignals() {
  for (qgpu_slot& s : report_->slot) {
    for (std::uint32_t i = 0; i < load(s.driver_threads) && i < QGPU_DRIVER_THREADS; ++i) {
      syscall(SYS_tgkill, s.pid, s.tids[i], lastHello().freeze_signal);
    }
  }
}

void FakeManager::close() {
  store(gate_->closed, std::uint64_t{1});
  setGate(0);
  syscall(SYS_futex, &gate_->gate, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void FakeManager::setQuota(std::uint64_t bytes) {
  store(gate_->quota_bytes, bytes);
}
std::int64_t FakeManager::heartbeatNs() const {
  return static_cast<std::int64_t>(load(gate_->heartbeat_ns));
}

void FakeManager::setWindow(std::uint64_t ns) {
  store(gate_->window_ns, ns);
}

std::uint64_t FakeManager::inFlight() const {
  std::uint64_t sum = 0;
  for (const qgpu_slot& s : report_->slot) {
    std::uint64_t retired = load(s.retired), admitted = load(s.admitted);
    // Both of one moment: whoever reads may be kept from it between the two.
    while (load(s.retired) != retired) {
      retired = load(s.retired);
      admitted = load(s.admitted);
    }
    sum += admitted - retired;
  }
  return sum;
}

std::uint32_t FakeManager::waiting() const {
  std::uint32_t sum = 0;
  for (const qgpu_slot& s : report_->slot) sum += load(s.waiting);
  return sum;
}

std::uint64_t FakeManager::bytes() const {
  return loans::total(*report_, ~0ull);
}

void FakeManager::reap(std::uint32_t index) {
  loans::slotEnds(*report_, index);
  store(slot(index).bytes, std::uint64_t{0});
}

std::uint32_t FakeManager::frozen() const {
  std::uint32_t sum = 0;
  for (const qgpu_slot& s : report_->slot) sum += load(s.frozen);
  return sum;
}

std::uint32_t FakeManager::driverThreads() const {
  std::uint32_t sum = 0;
  for (const qgpu_slot& s : report_->slot) sum += load(s.driver_threads);
  return sum;
}

std::uint64_t FakeManager::rings() {
  std::uint64_t count = 0;
  if (read(doorbell_, &count, sizeof count) == sizeof count) rings_ += count;
  return rings_;
}

void FakeManager::refuse(const std::string& reason) {
  std::lock_guard lock(mutex_);
  options_.refusal = reason;
}

std::vector<std::uint64_t> FakeManager::refusals() {
  std::lock_guard lock(mutex_);
  return refusals_;
}

std::vector<FakeManager::Note> FakeManager::notes() {
  std::lock_guard lock(mutex_);
  return notes_;
}

qgpu_hello FakeManager::lastHello() {
  std::lock_guard lock(mutex_);
  return lastHello_;
}

}  // namespace qgpu::testing
