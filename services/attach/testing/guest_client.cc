#include "services/attach/testing/guest_client.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "runtime/loop.h"
#include "services/base/process.h"

namespace qgpu {
namespace {

template <typename T>
std::atomic_ref<T> shared(T& word) {
  return std::atomic_ref<T>(word);
}

// A loop-free futex wait that leaves the word alone: the page is mapped read-only.
void futexWait(const std::uint32_t* word, std::uint32_t value, int timeoutMs) {
  timespec limit{timeoutMs / 1000, (timeoutMs % 1000) * 1'000'000L};
  ::syscall(SYS_futex, word, FUTEX_WAIT, value, timeoutMs < 0 ? nullptr : &limit, nullptr, 0);
}

Error osError(const char* what) {
  return fail(ErrorCode::Unavailable, std::string(what) + ": " + std::strerror(errno));
}

Result<Mapping> mapPage(int fd, std::size_t bytes, int protection) {
  void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return osError("mmap");
  return Mapping(at, bytes);
}

}  // namespace

qgpu_hello GuestClient::hello(const std::string& token) {
  qgpu_hello hello{};
  hello.magic = QGPU_ATTACH_MAGIC;
  hello.version = QGPU_ABI_VERSION;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.start_time = processStart(hello.pid).value_or(0);
  std::memcpy(hello.token, token.data(), std::min<std::size_t>(token.size(), QGPU_TOKEN_LEN));
  return hello;
}

GuestClient::GuestClient(GuestClient&& other) noexcept
    : connection_(std::move(other.connection_)),
      gateFd_(std::move(other.gateFd_)),
      reportFd_(std::move(other.reportFd_)),
      doorbell_(std::move(other.doorbell_)),
      gate_(std::move(other.gate_)),
      report_(std::move(other.report_)),
      welcome_(other.welcome_),
      obeysAtOnce_(other.obeysAtOnce_),
      rungFor_(other.rungFor_.load()) {}

Result<GuestClient> GuestClient::begin(const std::string& socket, const qgpu_hello& hello,
                                       int page) {
  GuestClient client;
  client.connection_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.data(),
              std::min(socket.size(), sizeof address.sun_path - 1));
  if (::connect(client.connection_.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof address) != 0) {
    return osError("connect");
  }
  iovec part{const_cast<qgpu_hello*>(&hello), sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (page >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &page, sizeof page);
  }
  if (::sendmsg(client.connection_.get(), &message, MSG_NOSIGNAL) < 0) return osError("sendmsg");
  return client;
}

Status GuestClient::finish(int timeoutMs) {
  pollfd wait{connection_.get(), POLLIN, 0};
  if (::poll(&wait, 1, timeoutMs) != 1) return fail(ErrorCode::Unavailable, "no answer");
  iovec part{&welcome_, sizeof welcome_};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(connection_.get(), &message, MSG_CMSG_CLOEXEC);
  if (n != static_cast<ssize_t>(sizeof welcome_)) return fail(ErrorCode::Unavailable, "closed");
  if (welcome_.refused != 0) return fail(ErrorCode::Denied, welcome_.reason);
  const cmsghdr* c = CMSG_FIRSTHDR(&message);
  if (c == nullptr || c->cmsg_len != CMSG_LEN(3 * sizeof(int))) {
    return fail(ErrorCode::Corrupt, "a welcome without its three descriptors");
  }
  int fds[3];
  std::memcpy(fds, CMSG_DATA(c), sizeof fds);
  gateFd_.reset(fds[0]);
  reportFd_.reset(fds[1]);
  doorbell_.reset(fds[2]);
  Result<Mapping> gate = mapPage(fds[0], kGatePageBytes, PROT_READ);
  Result<Mapping> report = mapPage(fds[1], kReportPageBytes, PROT_READ | PROT_WRITE);
  if (!gate) return gate.error();
  if (!report) return report.error();
  gate_ = std::move(*gate);
  report_ = std::move(*report);
  if (obeysAtOnce_) obey();
  return ok();
}

void GuestClient::obey() {
  shared(slot().obeys).store(welcome_.incarnation, std::memory_order_seq_cst);
  ring();
}

Result<GuestClient> GuestClient::attach(const std::string& socket, const std::string& token) {
  Result<GuestClient> client = begin(socket, hello(token), -1);
  if (!client) return client;
  const Status finished = client->finish(10'000);
  if (!finished) return finished.error();
  return client;
}

void GuestClient::holdOwner() {
  std::atomic<bool> held{false};
  std::uint32_t* owner = &slot().owner;
  std::thread([owner, &held] {
    static thread_local robust_list_head head;
    head.list.next = &head.list;
    head.futex_offset = 0;
    head.list_op_pending = reinterpret_cast<robust_list*>(owner);
    shared(*owner).store(static_cast<std::uint32_t>(::syscall(SYS_gettid)));
    ::syscall(SYS_set_robust_list, &head, sizeof head);
    held.store(true);
    for (;;) ::pause();
  }).detach();
  while (!held.load()) std::this_thread::yield();
}

std::uint32_t GuestClient::gateWord() const {
  auto& word = const_cast<std::uint32_t&>(gatePage().gate);
  return shared(word).load(std::memory_order_seq_cst);
}

void GuestClient::awaitPaging(std::uint32_t epoch, int timeoutMs) const {
  futexWait(reinterpret_cast<const std::uint32_t*>(&gatePage().paging) + 1, epoch, timeoutMs);
}

bool GuestClient::admit(int timeoutMs) {
  for (;;) {
    shared(slot().admitted).fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t word = gateWord();
    if ((word & QGPU_GATE_OPEN) != 0) {
      const auto now = static_cast<std::uint64_t>(monotonicNow().value);
      shared(slot().last_submit_ns).store(now);
      shared(slot().launches).fetch_add(1, std::memory_order_relaxed);
      if ((word & QGPU_GATE_NOTIFY) != 0 && rungFor_.exchange(word) != word) ring();
      return true;
    }
    shared(slot().admitted).fetch_sub(1, std::memory_order_seq_cst);
    if (gatePage().closed != 0 || !waitAtGate(word, timeoutMs)) return false;
  }
}

// False when nothing changed in time.
bool GuestClient::waitAtGate(std::uint32_t word, int timeoutMs) {
  shared(slot().waiting).fetch_add(1, std::memory_order_seq_cst);
  if (rungFor_.exchange(word) != word) ring();
  futexWait(&gatePage().gate, word, timeoutMs);
  shared(slot().waiting).fetch_sub(1, std::memory_order_seq_cst);
  // The manager wakes one; each woken thread wakes the next (HAZARDS 15).
  ::syscall(SYS_futex, &gatePage().gate, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  if (timeoutMs < 0 || gateWord() != word) return true;
  rungFor_ = ~0u;  // its next wait is news again, as libqgpu.so's is
  return false;
}

void GuestClient::retire() {
  shared(slot().last_retire_ns).store(static_cast<std::uint64_t>(monotonicNow().value));
  const std::uint64_t retired = shared(slot().retired).fetch_add(1, std::memory_order_seq_cst) + 1;
  const bool last = shared(slot().admitted).load(std::memory_order_seq_cst) == retired;
  const std::uint32_t gate = gateWord();
  const bool told = (gate & QGPU_GATE_OPEN) == 0 || (gate & QGPU_GATE_CONTENDED) != 0;
  if (last && told) ring();
}

void GuestClient::ring() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(doorbell_.get(), &one, sizeof one);
}

}  // namespace qgpu
