#include "services/guest/gate/attach.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "services/guest/gate/channels.h"
#include "services/guest/gate/fork_handlers.h"
#include "services/guest/gate/freeze.h"
#include "services/guest/gate/gate.h"
#include "services/guest/gate/test_hooks.h"
#include "services/guest/gate/token.h"
#include "services/wire/loans.h"
#include "services/wire/places.h"

namespace qgpu::guest {

Session session;

namespace {

constexpr std::uint64_t kFirstBackoffNs = 5 * kNsPerMs;
constexpr std::uint64_t kMaxBackoffNs = 200 * kNsPerMs;
constexpr std::uint64_t kMaxRefusedBackoffNs = 5'000 * kNsPerMs;  // it may be long, or for ever
constexpr std::uint64_t kUnreadBackoffNs = 1'000 * kNsPerMs;
constexpr std::uint64_t kDefaultAttachTimeoutMs = 5'000;  // the default orphan grace
constexpr int kWelcomeTimeoutMs = 1'000;
constexpr int kLowestFd = 200;  // out of the way of programs that count their descriptors

// Whose this process is, as its environment said at the first attach. A program may change its
// environment later, also while the link thread would read it.
struct Identity {
  std::atomic<bool> known{false};
  const char* token = nullptr;
  char socket[sizeof(sockaddr_un::sun_path)] = {};
};
Identity identity;

Mutex attachMutex;
int connection = -1;  // of the link thread, and of the attaching thread before it starts
int reportFd = -1;
std::uint32_t incarnationSeen = 0;
std::uint32_t linkReady = 0;  // futex: the link thread holds the owner word
bool forkHandled = false;
ForkHandlers childHandlers;

// The kernel walks this list when the link thread dies and marks the owner word (HAZARDS 7).
robust_list robustEntry;
robust_list_head robustHead;

enum class Outcome { kAttached, kRetry, kRefused };

int moveUp(int fd) {
  if (fd < 0) return fd;
  int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestFd);
  if (high < 0) return fd;
  close(fd);
  return high;
}

int connectSocket() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, identity.socket, sizeof identity.socket);
  int fd = moveUp(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (fd < 0) return -1;
  timeval limit{kWelcomeTimeoutMs / 1000, (kWelcomeTimeoutMs % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Field 22 of /proc/self/stat; the name before it may hold spaces and parentheses.
std::uint64_t ownStartTime() {
  char text[1024];
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* p = strrchr(text, ')');
  for (int field = 2; p && field < 22; ++field) p = strchr(p + 1, ' ');
  return p ? strtoull(p + 1, nullptr, 10) : 0;
}

bool sendHello(int fd, bool again) {
  qgpu_hello hello{};
  hello.magic = QGPU_ATTACH_MAGIC;
  hello.version = QGPU_ABI_VERSION;
  hello.pid = static_cast<std::uint32_t>(getpid());
  hello.start_time = ownStartTime();
  memcpy(hello.token, identity.token, QGPU_TOKEN_LEN);
  hello.incarnation_seen = incarnationSeen;
  hello.freeze_signal = freezeSignal();
  hello.knows = QGPU_KNOWS_PAGING;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&hello, sizeof hello};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (again) {
    hello.reattach = 1;
    hello.slot = session.welcome.slot;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &reportFd, sizeof(int));
  }
  return sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

// Fills fds[3] (gate, report, doorbell); every descriptor that came is in fds or closed.
bool receiveWelcome(int fd, qgpu_welcome& welcome, int fds[3]) {
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  iovec part{&welcome, sizeof welcome};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return false;
  int count = 0;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    std::size_t bytes = h->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int got;
      memcpy(&got, CMSG_DATA(h) + at, sizeof got);
      if (count < 3) {
        fds[count++] = moveUp(got);
      } else {
        close(got);
      }
    }
  }
  welcome.reason[QGPU_REASON_LEN - 1] = 0;
  welcome.platform[QGPU_NAME_LEN - 1] = 0;
  welcome.model[QGPU_MODEL_LEN - 1] = 0;
  return n >= static_cast<ssize_t>(QGPU_WELCOME_LEAST) && welcome.magic == QGPU_ATTACH_MAGIC &&
         welcome.slot < QGPU_SLOTS && (welcome.refused || count == 3);
}

const qgpu_gate_page* mapGate(int fd, void* at) {
  void* map = mmap(at, sizeof(qgpu_gate_page), PROT_READ, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
  return map == MAP_FAILED ? nullptr : static_cast<const qgpu_gate_page*>(map);
}

bool gateIsSound(int fd) {
  const qgpu_gate_page* page = mapGate(fd, nullptr);
  if (!page) return false;
  bool sound = page->magic == QGPU_GATE_MAGIC && page->version == QGPU_ABI_VERSION;
  munmap(const_cast<qgpu_gate_page*>(page), sizeof *page);
  return sound;
}

bool mapFirstPages(const qgpu_welcome& welcome, const int fds[3]) {
  void* map =
      mmap(nullptr, sizeof(qgpu_report_page), PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
  if (map == MAP_FAILED) return false;
  auto* report = static_cast<qgpu_report_page*>(map);
  const qgpu_gate_page* gate = nullptr;
  if (report->magic == QGPU_REPORT_MAGIC && report->slots == QGPU_SLOTS) {
    gate = mapGate(fds[0], nullptr);
  }
  if (!gate) {
    munmap(map, sizeof(qgpu_report_page));
    return false;
  }
  session.gate = gate;
  session.report = report;
  session.slot = &report->slot[welcome.slot];
  session.online = gate->task_class == QGPU_ONLINE;
  session.welcome = welcome;
  session.slot->pid = static_cast<std::uint32_t>(getpid());
  session.slot->start_time = ownStartTime();
  return true;
}

// The new page takes the old one's address in one step. Waiters of the old page are woken through
// a second map of it, after the change, so that none goes to sleep on it in between.
void swapGatePage(int fd) {
  auto* old = const_cast<qgpu_gate_page*>(session.gate);
  void* alias = mremap(old, 0, sizeof *old, MREMAP_MAYMOVE);  // old size 0: a second map
  if (!mapGate(fd, old)) say("cannot map the new gate page: %s", strerror(errno));
  if (alias == MAP_FAILED) return;
  futexWake(&static_cast<qgpu_gate_page*>(alias)->gate, INT32_MAX);
  munmap(alias, sizeof *old);
}

bool adopt(const qgpu_welcome& welcome, int fds[3], bool again) {
  if (!gateIsSound(fds[0])) return false;
  if (!again) {
    if (!mapFirstPages(welcome, fds)) return false;
    reportFd = fds[1];
    fds[1] = -1;
  } else {
    if (welcome.slot != session.welcome.slot) return false;
    swapGatePage(fds[0]);
    const std::uint64_t kept = loans::load(session.gate->loans_kept);
    loans::countUnkept(*session.report, kept, welcome.slot);
  }
  int bell = session.doorbell.exchange(fds[2]);
  fds[2] = -1;
  if (bell >= 0) close(bell);
  // After the swap of page and doorbell: who answers the old page's word late rings the new bell.
  forgetRings();
  if (welcome.incarnation > incarnationSeen) incarnationSeen = welcome.incarnation;
  session.attachedNs.store(nowNs());
  session.orphan.store(0);
  return true;
}

// Launches read the new page by now, and what there is to be held was told. The manager counts on
// holds from now, so it is rung.
void obey(const qgpu_welcome& welcome) {
  shared(session.slot->obeys).store(welcome.incarnation);
  ringDoorbell();
}

Outcome attachOnce(bool again, qgpu_welcome& welcome) {
  int fd = connectSocket();
  if (fd < 0) return Outcome::kRetry;
  int fds[3] = {-1, -1, -1};
  Outcome outcome = Outcome::kRetry;
  if (sendHello(fd, again) && receiveWelcome(fd, welcome, fds)) {
    if (welcome.refused) {
      outcome = Outcome::kRefused;
    } else if (adopt(welcome, fds, again)) {
      outcome = Outcome::kAttached;
      connection = fd;
      fd = -1;
      tellChannels(connection, again);
      obey(welcome);
    }
  }
  for (int left : fds) {
    if (left >= 0) close(left);
  }
  if (fd >= 0) close(fd);
  return outcome;
}

void claimOwnerWord() {
  robustEntry.next = reinterpret_cast<robust_list*>(&robustHead);
  robustHead.list.next = &robustEntry;
  robustHead.list_op_pending = nullptr;
  robustHead.futex_offset =
      reinterpret_cast<char*>(&session.slot->owner) - reinterpret_cast<char*>(&robustEntry);
  syscall(SYS_set_robust_list, &robustHead, sizeof robustHead);
  shared(session.slot->owner).store(threadId());
}

// A lost manager's holds end; one that is heard again on the same connection rules again.
void watchHeartbeat() {
  bool lost = managerLost();
  if (lost == (session.orphan.load() != 0)) return;
  session.orphan.store(lost);
  if (lost) futexWake(&session.gate->gate, INT32_MAX);
}

bool connectionEnded(int timeoutMs) {
  pollfd watch{connection, POLLIN, 0};
  if (poll(&watch, 1, timeoutMs) <= 0) return false;
  char record[64];
  ssize_t n = recv(connection, record, sizeof record, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

// When the link thread asks a manager that it lost to take it back.
struct Return {
  std::uint64_t backoffNs = kFirstBackoffNs;
  std::uint64_t nextNs = 0;  // no attempt before
  bool refusalSaid = false;  // since it was attached the last time
};

void tryToReturn(Return& again) {
  qgpu_welcome welcome{};
  const Outcome outcome = attachOnce(true, welcome);
  if (outcome == Outcome::kAttached) {
    again = Return();
    return;
  }
  const bool refused = outcome == Outcome::kRefused;
  if (refused && !again.refusalSaid) {
    say("the manager does not take this process back: %s; it runs on without turns and asks again",
        welcome.reason);
    again.refusalSaid = true;
  }
  const std::uint64_t most = refused ? kMaxRefusedBackoffNs : kMaxBackoffNs;
  if (again.backoffNs > most) again.backoffNs = most;
  again.nextNs = nowNs() + again.backoffNs;
  again.backoffNs *= 2;
}

// How often the heartbeat is looked at.
std::uint64_t linkTickNs() {
  const std::uint64_t tick = loadRelaxed(session.gate->orphan_grace_ns) / 4;
  if (tick < 10 * kNsPerMs) return 10 * kNsPerMs;
  return tick > 250 * kNsPerMs ? 250 * kNsPerMs : tick;
}

void* linkThread(void*) {
  claimOwnerWord();
  shared(linkReady).store(1);
  futexWake(&linkReady, INT32_MAX);
  Return again;
  for (;;) {
    const std::uint64_t tick = linkTickNs(), now = nowNs();
    if (connection >= 0) {
      if (connectionEnded(static_cast<int>(tick / kNsPerMs))) {
        // One that lives and does not read must not keep this program's threads for ever.
        if (!stopTelling()) again.nextNs = nowNs() + kUnreadBackoffNs;
        close(connection);
        connection = -1;
      }
    } else if (now >= again.nextNs) {
      tryToReturn(again);
    } else {
      const std::uint64_t left = again.nextNs - now;
      sleepNs(left < tick ? left : tick);
    }
    watchHeartbeat();
    keepChannels(session.orphan.load() != 0);
    withdrawIfSignalWasTaken();
  }
}

void becomeUnattachedInChild() {
  session.generation.fetch_add(1);
  attachMutex.renewInChild();
  if (connection >= 0) close(connection);
  if (reportFd >= 0) close(reportFd);
  int bell = session.doorbell.exchange(-1);
  if (bell >= 0) close(bell);
  connection = reportFd = -1;
  linkReady = 0;
  session.state.store(State::kUnattached);
  session.orphan.store(0);
  if (session.gate) munmap(const_cast<qgpu_gate_page*>(session.gate), sizeof(qgpu_gate_page));
  if (session.report) munmap(session.report, sizeof(qgpu_report_page));
  session.gate = nullptr;
  session.report = nullptr;
  session.slot = nullptr;
  childHandlers.run();
}

std::uint64_t attachTimeoutNs() {
  const char* text = testSetting("QGPU_ATTACH_TIMEOUT_MS");
  std::uint64_t ms = text ? strtoull(text, nullptr, 10) : kDefaultAttachTimeoutMs;
  return ms * kNsPerMs;
}

bool startLink() {
  if (!forkHandled) {
    pthread_atfork(nullptr, nullptr, becomeUnattachedInChild);
    forkHandled = true;
  }
  if (!startThread(linkThread)) return false;
  while (!loadShared(linkReady)) futexWait(&linkReady, 0, kNsPerSecond);
  return true;
}

// Says why where there is none.
bool readToken() {
  const char* token = findToken();
  if (!token) {
    const char* path = getenv("QGPU_TOKEN_FILE");
    say("no token in QGPU_TOKEN_FILE=%s; no device", path ? path : kTenantTokens);
    return false;
  }
  identity.token = token;
  if (strlen(token) == QGPU_TOKEN_LEN) return true;
  say("%s has %zu characters, wanted %u; no device (start it with qgpuctl run)",
      getenv("QGPU_TOKEN") ? "QGPU_TOKEN" : "the file of QGPU_TOKEN_FILE", strlen(token),
      QGPU_TOKEN_LEN);
  return false;
}

// A fork's child may find nothing in its environment any more: it is then who its parent was.
bool readIdentity() {
  const char* path = findSocket();
  if (path && strlen(path) >= sizeof identity.socket) {
    say("QGPU_SOCKET has %zu characters, a socket's path has at most %zu; no device", strlen(path),
        sizeof identity.socket - 1);
    return false;
  }
  if (path) strcpy(identity.socket, path);
  if (!readToken()) return false;
  identity.known.store(true);
  return true;
}

bool attachFirst() {
  if (!readIdentity()) return false;
  const std::uint64_t end = nowNs() + attachTimeoutNs();
  std::uint64_t backoff = kFirstBackoffNs;
  for (;;) {
    qgpu_welcome welcome{};
    Outcome outcome = attachOnce(false, welcome);
    if (outcome == Outcome::kAttached) break;
    if (outcome == Outcome::kRefused) {
      say("the manager refused this process: %s; no device", welcome.reason);
      return false;
    }
    if (nowNs() + backoff > end) {
      say("no manager at %s; no device (is qgpu-manager running?)", identity.socket);
      return false;
    }
    sleepNs(backoff);
    backoff = backoff * 2 > kMaxBackoffNs ? kMaxBackoffNs : backoff * 2;
  }
  if (startLink()) return true;
  static_cast<void>(stopTelling());
  close(connection);
  connection = -1;
  say("cannot start a thread; no device");
  return false;
}

}  // namespace

bool tokenGiven() {
  if (identity.known.load(std::memory_order_relaxed)) return true;
  return tokenNamed() && findSocket();
}

bool ensureAttached() {
  if (session.state.load() == State::kAttached) return true;
  Lock lock(attachMutex);
  if (session.state.load() == State::kUnattached) {
    session.state.store(attachFirst() ? State::kAttached : State::kFailed);
  }
  return session.state.load() == State::kAttached;
}

std::uint32_t slotOf(std::uint32_t pid) {
  std::uint32_t slot = pid != 0 ? 0 : QGPU_SLOTS;
  while (slot < QGPU_SLOTS && loadRelaxed(session.report->slot[slot].pid) != pid) ++slot;
  return slot;
}

bool managerLost() {
  std::uint64_t beat = loadRelaxed(session.gate->heartbeat_ns);
  std::uint64_t attached = session.attachedNs.load(std::memory_order_relaxed);
  if (beat < attached) beat = attached;
  std::uint64_t now = nowNs();
  return now > beat && now - beat > loadRelaxed(session.gate->orphan_grace_ns);
}

void ringDoorbell() {
  const int saved = errno;
  const std::uint64_t one = 1;
  int fd = session.doorbell.load(std::memory_order_relaxed);
  if (fd >= 0) syscall(SYS_write, fd, &one, sizeof one);
  errno = saved;
}

void onForkInChild(void (*handler)()) {
  if (childHandlers.add(handler)) return;
  say("more than %d parts of the library want to hear of a fork", ForkHandlers::kMost);
  abort();
}

}  // namespace qgpu::guest
