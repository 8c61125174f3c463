#include "services/attach/attach_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace qgpu {
namespace {

constexpr int kBacklog = 128;
constexpr std::size_t kDescriptorsMax = 4;   // that one record may bring; more are closed

sockaddr_un addressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

Fd makeSocket() {
  return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// As much as fits; the record is all zeros, so that its NUL is there.
template <std::size_t N>
void copyText(char (&to)[N], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

// In the same time whatever the difference is.
bool sameToken(const char* left, const char* right) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < QGPU_TOKEN_LEN; i++) {
    difference |= static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]);
  }
  return difference == 0;
}

// Owns every descriptor that a record brought; the first one is kept, the others are closed.
Fd takeDescriptors(msghdr& message) {
  Fd first;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; i++) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      Fd owned(fd);
      if (!first) first = std::move(owned);
    }
  }
  return first;
}

bool sendRecord(int connection, const qgpu_welcome& welcome, const int* fds, std::size_t count) {
  iovec part{const_cast<qgpu_welcome*>(&welcome), sizeof welcome};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds, count * sizeof(int));
  }
  const ssize_t sent = ::sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(sizeof welcome);
}

qgpu_class classOf(schema::TaskClass taskClass) {
  switch (taskClass) {
    case schema::TaskClass::ONLINE: return QGPU_ONLINE;
    case schema::TaskClass::OFFLINE: return QGPU_OFFLINE;
    default: return QGPU_ORDINARY;
  }
}

qgpu_suspend suspendOf(schema::Suspend suspend) {
  switch (suspend) {
    case schema::Suspend::FREEZE: return QGPU_SUSPEND_FREEZE;
    case schema::Suspend::RM: return QGPU_SUSPEND_RM;
    default: return QGPU_SUSPEND_GATE;
  }
}

}  // namespace

AttachServer::AttachServer(Loop& loop, Outlet& outlet, TaskTable& tasks, GatePort& port,
                           ActorId node, const std::vector<Card>& cards,
                           std::vector<ActorId> cardActors, AttachServerOptions options)
    : loop_(loop),
      outlet_(outlet),
      tasks_(tasks),
      port_(port),
      node_(node),
      cards_(cards),
      cardActors_(std::move(cardActors)),
      options_(std::move(options)),
      path_(options_.runDir + "/attach.sock"),
      incarnation_(options_.incarnation) {
  QGPU_CHECK(cards_.size() == cardActors_.size(), "every card has an actor");
  // A process that has come back rings when it reads its new page.
  port_.onRing([this] {
    if (recovering_) recoveryMoved();
  });
}

AttachServer::~AttachServer() {
  for (auto& [id, hello] : hellos_) loop_.cancel(hello.timer);
  loop_.cancel(recoveryTimer_);
  port_.onRing({});
  while (!tasks_.empty()) erase(tasks_.begin()->first);
  if (listen_) ::unlink(path_.c_str());
}

// --- listening ---

Status AttachServer::claimSocket() {
  struct stat found{};
  if (path_.size() >= sizeof(sockaddr_un::sun_path)) {
    return fail(ErrorCode::InvalidArgument, path_ + ": longer than a socket's path may be (107)");
  }
  if (::lstat(path_.c_str(), &found) != 0) return ok();
  if (!S_ISSOCK(found.st_mode)) {
    return fail(ErrorCode::AlreadyExists, path_ + " is not a socket; move it away");
  }
  const Fd probe = makeSocket();
  const sockaddr_un address = addressOf(path_);
  const int rc = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address),
                           sizeof address);
  if (rc != 0 && (errno == ECONNREFUSED || errno == ENOENT)) {
    ::unlink(path_.c_str());   // left by a daemon that is gone
    return ok();
  }
  return fail(ErrorCode::AlreadyExists,
              path_ + ": another qgpu-manager serves it; stop it or choose another --run-dir");
}

Status AttachServer::listen() {
  Status claimed = claimSocket();
  if (!claimed) return claimed;
  Status opened = list_.open(options_.runDir);
  if (!opened) return opened;
  Fd socket = makeSocket();
  const sockaddr_un address = addressOf(path_);
  if (!socket ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path_.c_str(), 0666) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return fail(ErrorCode::Unavailable, path_ + ": " + std::strerror(errno));
  }
  listen_ = std::move(socket);
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Status read = readAttachedList();
  if (!read) return read;
  listenWatch_ = loop_.fds().watchLevel(listen_.get(), EPOLLIN,
                                        [this](std::uint32_t) { acceptSome(); });
  recoveryTimer_ = loop_.after(options_.recovery, [this] { endRecovery(); });
  return ok();
}

void AttachServer::acceptSome() {
  for (int i = 0; i < kAcceptsPerTurn; i++) {
    Fd connection(::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      startHello(std::move(connection));
    } else if (errno == EMFILE || errno == ENFILE) {
      return acceptWithoutDescriptors();
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

// Out of descriptors the socket would stay readable for ever: turn the next one away instead.
void AttachServer::acceptWithoutDescriptors() {
  spare_.reset();
  Fd connection(::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  connection.reset();
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  counters_.refused++;
}

void AttachServer::startHello(Fd connection) {
  if (silent_.size() >= kHellosMax) {
    // An honest guest has said its hello by now; the oldest silence makes room.
    counters_.evicted++;
    dropHello(*silent_.begin());
  }
  const std::uint64_t id = ++lastId_;
  silent_.insert(id);
  Hello& hello = hellos_[id];
  hello.id = id;
  hello.connection = std::move(connection);
  hello.timer = loop_.after(options_.helloWithin, [this, id] { dropHello(id); });
  hello.watch = loop_.fds().watchLevel(hello.connection.get(), EPOLLIN | EPOLLRDHUP,
                                       [this, id](std::uint32_t) { onHello(id); });
}

void AttachServer::dropHello(std::uint64_t id) {
  const auto found = hellos_.find(id);
  if (found == hellos_.end()) return;
  loop_.cancel(found->second.timer);
  found->second.watch.reset();
  silent_.erase(id);
  hellos_.erase(found);
}

// --- the handshake ---

void AttachServer::onHello(std::uint64_t id) {
  Hello& hello = hellos_.at(id);
  if (!receive(hello)) return;
  hello.watch.reset();
  decide(id);
}

// True once a record of the right size and kind is there. Anything else ends the connection.
bool AttachServer::receive(Hello& hello) {
  char bytes[sizeof(qgpu_hello) + 1];
  iovec part{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(hello.connection.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n > 0) hello.page = takeDescriptors(message);
  if (n == static_cast<ssize_t>(sizeof(qgpu_hello))) {
    std::memcpy(&hello.said, bytes, sizeof hello.said);
    if (hello.said.magic == QGPU_ATTACH_MAGIC && hello.said.version != 0) return true;
    refuse(hello.id, "this is not a hello of libqgpu");
  } else if (n > 0) {
    refuse(hello.id, "a hello has " + std::to_string(sizeof(qgpu_hello)) + " bytes");
  } else {
    dropHello(hello.id);
  }
  return false;
}

GuestTask* AttachServer::byToken(const char* token) const {
  GuestTask* found = nullptr;
  for (const auto& [id, task] : tasks_) {
    if (sameToken(task->token.data(), token)) found = task.get();
  }
  return found;
}

// After a restart: for the node to tell of the task, or for the processes that bring its page.
bool AttachServer::mustWait(const Hello& hello, const GuestTask* task) const {
  if (!recovering_) return false;
  return task == nullptr || (hello.said.reattach == 0 && expects(task->id));
}

void AttachServer::decide(std::uint64_t id) {
  Hello& hello = hellos_.at(id);
  GuestTask* task = byToken(hello.said.token);
  if (mustWait(hello, task)) return wait(hello, task, false);
  if (task == nullptr) {
    return refuse(id, "no task has this token: it has ended, or QGPU_TOKEN is wrong");
  }
  if (task->pages.closed()) return refuse(id, "the task was unbound or evicted");
  Result<Peer> peer = identify(hello, *task);
  if (!peer) return refuse(id, peer.error().message);
  if (hello.said.incarnation_seen >= incarnation_) {
    const Status asked = askIncarnationAbove(hello.said.incarnation_seen);
    if (!asked) return refuse(id, asked.error().message);
    return wait(hello, task, true);
  }
  const Result<std::uint32_t> slot = giveSlot(hello, *task, *peer);
  if (!slot) return refuse(id, slot.error().message);
  attach(hello, *task, std::move(*peer), *slot);
  dropHello(id);
  recoveryMoved();
}

// Its time to wait is bounded by the timer of its connection.
void AttachServer::wait(Hello& hello, const GuestTask* task, bool raises) {
  if (!hello.waits && waitingHellos() >= kWaitingMax) {
    return refuse(hello.id, std::to_string(kWaitingMax) + " processes wait for the manager; "
                            "try again once it has recovered");
  }
  silent_.erase(hello.id);
  hello.waits = true;
  hello.raises = raises;
  hello.task = task == nullptr ? 0 : task->id;
}

// The store was an older copy, or the guest lies: either way its next page must not look to it
// like one that it had before.
Status AttachServer::askIncarnationAbove(std::uint32_t seen) {
  const std::uint32_t top = std::min(
      kIncarnationSeenMax, options_.incarnation + std::min(kIncarnationRaise,
                                                           UINT32_MAX - options_.incarnation));
  if (seen >= top) {
    return fail(ErrorCode::Denied,
                "this process says it met incarnation " + std::to_string(seen) +
                    " of the manager, beyond " + std::to_string(top) + "; start it anew");
  }
  if (seen <= incarnationAsked_) return ok();
  incarnationAsked_ = seen;
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    message.initIncarnationSeen().setValue(seen);
  });
  return ok();
}

void AttachServer::incarnationChosen(schema::Incarnation::Reader chosen) {
  if (chosen.getValue() <= incarnation_) return;
  incarnation_ = chosen.getValue();
  for (auto& [id, task] : tasks_) task->pages.setIncarnation(incarnation_);
  recoveryMoved();
}

Result<AttachServer::Peer> AttachServer::identify(const Hello& hello,
                                                  const GuestTask& task) const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(hello.connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.pid <= 0) {
    return fail(ErrorCode::Denied,
                "the manager can't see this process; it must run in the host's pid namespace");
  }
  Peer peer;
  peer.entry.pid = static_cast<std::uint32_t>(credentials.pid);
  peer.entry.start = hello.said.start_time;
  peer.entry.task = task.id;
  peer.entry.cards = task.cards;
  if (hello.said.start_time != 0) {
    Result<Fd> opened = openProcess(peer.entry.pid, peer.entry.start);
    if (!opened) return opened.error();
    peer.pidfd = std::move(*opened);
  }
  if (!peer.pidfd) {
    return fail(ErrorCode::Denied, "process " + std::to_string(credentials.pid) +
                                       " is dead or did not start when its hello says");
  }
  return peer;
}

GuestProcess* AttachServer::processOf(GuestTask& task, const AttachedEntry& entry) const {
  for (auto& [slot, process] : task.processes) {
    if (process->entry.pid == entry.pid && process->entry.start == entry.start) {
      return process.get();
    }
  }
  return nullptr;
}

Result<std::uint32_t> AttachServer::giveSlot(Hello& hello, GuestTask& task, const Peer& peer) {
  if (hello.said.reattach != 0) return giveSlotAgain(hello, task, peer);
  if (const GuestProcess* before = processOf(task, peer.entry)) {
    if (before->connection && !task.pages.slotDead(before->slot)) {
      return fail(ErrorCode::Conflict, "this process is attached already");
    }
    // It executed another program: the memory of the old one is gone, and so is its slot's claim.
    forgetProcess(task, before->slot);
  }
  return task.pages.takeSlot(hello.said.pid, peer.entry.start);
}

Result<std::uint32_t> AttachServer::giveSlotAgain(Hello& hello, GuestTask& task,
                                                  const Peer& peer) {
  if (!hello.page) return fail(ErrorCode::InvalidArgument, "a re-attach brings its report page");
  const bool first = task.pages.usedSlots() == 0;
  const Status adopted = task.pages.adoptReport(std::move(hello.page));
  if (!adopted) return adopted.error();
  if (const GuestProcess* before = processOf(task, peer.entry)) {
    if (before->slot == hello.said.slot) return before->slot;
    return fail(ErrorCode::Denied, "this process has another slot");
  }
  if (first) keepSlotsOfExpected(task);
  const Status claimed = task.pages.claimSlot(hello.said.slot, hello.said.pid, peer.entry.start);
  if (!claimed) return claimed.error();
  return hello.said.slot;
}

// The page of an earlier manager came back: slots whose process lives are kept for it, the others
// give their bytes back.
void AttachServer::keepSlotsOfExpected(GuestTask& task) {
  const std::uint64_t marked = task.pages.markedSlots();
  for (std::uint32_t slot = 0; slot < QGPU_SLOTS; slot++) {
    if ((marked >> slot & 1u) == 0) continue;
    Expected* owner = nullptr;
    for (auto& [key, expected] : expected_) {
      const bool its = expected.entry.task == task.id && expected.slot == QGPU_SLOTS &&
                       expected.entry.start == task.pages.slotStart(slot);
      if (its) owner = &expected;
    }
    if (owner != nullptr) {
      owner->slot = slot;
      task.pages.reserveSlot(slot);
    } else {
      task.pages.freeSlot(slot);
    }
  }
}

bool AttachServer::welcome(const Hello& hello, const GuestTask& task, std::uint32_t slot) const {
  qgpu_welcome record{};
  record.magic = QGPU_ATTACH_MAGIC;
  record.version = QGPU_ABI_VERSION;
  record.task = task.id;
  record.slot = slot;
  record.incarnation = incarnation_;
  record.cards = static_cast<std::uint32_t>(std::min(task.cards.size(), std::size(record.device)));
  for (std::uint32_t i = 0; i < record.cards; i++) record.device[i] = cards_[task.cards[i]].device;
  const Card& first = cards_[task.cards.front()];
  copyText(record.platform, first.platform);
  // A simulated card is no device that the driver of the guest could name.
  if (!first.platform.empty()) copyText(record.model, first.model);
  const int fds[] = {task.pages.gateFd(), task.pages.reportFd(), task.pages.doorbellFd()};
  return sendRecord(hello.connection.get(), record, fds, std::size(fds));
}

void AttachServer::attach(Hello& hello, GuestTask& task, Peer peer, std::uint32_t slot) {
  const bool known = task.processes.contains(slot);
  if (!welcome(hello, task, slot)) {
    // Gone before it had its answer. If it lives and comes again, it starts anew.
    if (!known) task.pages.freeSlot(slot);
    return;
  }
  (hello.said.reattach != 0 ? counters_.reattached : counters_.attached)++;
  dropExpected(peer.entry);
  std::unique_ptr<GuestProcess>& process = task.processes[slot];
  if (!known) {
    process = std::make_unique<GuestProcess>();
    process->entry = peer.entry;
    process->slot = slot;
    process->pidfd = std::move(peer.pidfd);
    process->death = loop_.fds().watchLevel(
        process->pidfd.get(), EPOLLIN,
        [this, id = task.id, slot](std::uint32_t) { onDeath(id, slot); });
    list_.add(process->entry);
  }
  process->freezeSignal = hello.said.freeze_signal;
  process->incarnation = incarnation_;
  process->returned = hello.said.reattach != 0;
  process->threads = ThreadIds(peer.entry.pid, hello.said.pid);
  process->talk.reset();
  process->connection = std::move(hello.connection);
  process->talk = loop_.fds().watchLevel(
      process->connection.get(), EPOLLIN | EPOLLRDHUP,
      [this, id = task.id, slot](std::uint32_t) { onTalk(id, slot); });
  if (!known) {
    outlet_.sendUrgent(task.actor, [&](schema::Envelope::Builder message) {
      auto attached = message.initProcessAttached();
      attached.setTask(task.id);
      attached.setPid(process->entry.pid);
      attached.setSlot(slot);
    });
  }
  port_.processAttached(task);
}

void AttachServer::refuse(std::uint64_t id, const std::string& reason) {
  counters_.refused++;
  qgpu_welcome record{};
  record.magic = QGPU_ATTACH_MAGIC;
  record.version = QGPU_ABI_VERSION;
  record.refused = 1;
  record.incarnation = incarnation_;
  copyText(record.reason, reason);
  sendRecord(hellos_.at(id).connection.get(), record, nullptr, 0);
  dropHello(id);
}

// --- attached processes ---

// A guest has nothing more to say: a record or the end both close the connection, and the process
// stays attached as long as it lives (HAZARDS 7).
void AttachServer::onTalk(std::uint64_t task, std::uint32_t slot) {
  GuestProcess& process = *tasks_.at(task)->processes.at(slot);
  process.talk.reset();
  process.connection.reset();
}

void AttachServer::forgetProcess(GuestTask& task, std::uint32_t slot) {
  list_.remove(task.processes.at(slot)->entry);
  task.pages.freeSlot(slot);
  const std::uint32_t pid = task.processes.at(slot)->entry.pid;
  task.processes.erase(slot);
  outlet_.sendUrgent(task.actor, [&](schema::Envelope::Builder message) {
    auto gone = message.initProcessGone();
    gone.setTask(task.id);
    gone.setPid(pid);
    gone.setSlot(slot);
    gone.setLast(task.processes.empty());
  });
}

void AttachServer::onDeath(std::uint64_t id, std::uint32_t slot) {
  GuestTask& task = *tasks_.at(id);
  forgetProcess(task, slot);
  port_.processGone(task);
  eraseIfKilled(id);
  if (recovering_) recoveryMoved();
}

// --- after a restart ---

Status AttachServer::readAttachedList() {
  for (AttachedEntry& entry : list_.read()) {
    Result<Fd> opened = openProcess(entry.pid, entry.start);
    if (!opened) return opened.error();
    if (!*opened) {
      list_.remove(entry);
      continue;
    }
    const std::uint64_t key = ++lastId_;
    Expected& expected = expected_[key];
    expected.entry = std::move(entry);
    expected.pidfd = std::move(*opened);
    expected.death = loop_.fds().watchLevel(
        expected.pidfd.get(), EPOLLIN, [this, key](std::uint32_t) { onExpectedDeath(key); });
  }
  return ok();
}

void AttachServer::onExpectedDeath(std::uint64_t key) {
  const auto found = expected_.find(key);
  const Expected& expected = found->second;
  const auto task = tasks_.find(expected.entry.task);
  if (expected.slot != QGPU_SLOTS && task != tasks_.end()) {
    task->second->pages.freeSlot(expected.slot);
  }
  const std::uint64_t id = expected.entry.task;
  list_.remove(expected.entry);
  expected_.erase(found);
  eraseIfKilled(id);
  recoveryMoved();
}

// It is attached again. The slot that was kept for it is its own now, or is given back.
void AttachServer::dropExpected(const AttachedEntry& entry) {
  for (auto it = expected_.begin(); it != expected_.end(); ++it) {
    const Expected& expected = it->second;
    if (expected.entry.pid != entry.pid || expected.entry.start != entry.start) continue;
    const auto task = tasks_.find(expected.entry.task);
    const bool kept = expected.slot != QGPU_SLOTS && task != tasks_.end();
    if (kept && task->second->pages.slotDead(expected.slot)) {
      task->second->pages.freeSlot(expected.slot);
    }
    expected_.erase(it);
    return;
  }
}

bool AttachServer::expects(std::uint64_t task) const {
  return std::any_of(expected_.begin(), expected_.end(), [task](const auto& pair) {
    return pair.second.entry.task == task;
  });
}

// It has its new page but reads the old one still, so a hold would not stop it.
bool AttachServer::awaits(const GuestTask& task, const GuestProcess& process) const {
  return process.returned && task.pages.obeys(process.slot) != process.incarnation;
}

// Cards that a process may be using which no hold of ours reaches yet; none after the recovery.
std::vector<bool> AttachServer::awaitedCards() const {
  std::vector<bool> awaited(cards_.size(), false);
  if (!recovering_) return awaited;
  const auto mark = [&](const std::vector<std::uint32_t>& cards) {
    for (const std::uint32_t card : cards) {
      if (card < awaited.size()) awaited[card] = true;
    }
  };
  for (const auto& [key, expected] : expected_) mark(expected.entry.cards);
  for (const auto& [id, task] : tasks_) {
    for (const auto& [slot, process] : task->processes) {
      if (awaits(*task, *process)) mark(task->cards);
    }
  }
  return awaited;
}

// Who gets its answer moves the recovery on in turn; thousands may wait, so that is a loop.
void AttachServer::recoveryMoved() {
  moved_ = true;
  if (moving_) return;
  moving_ = true;
  while (std::exchange(moved_, false)) {
    const std::vector<bool> awaited = awaitedCards();
    for (auto& [id, task] : tasks_) announceIfReady(*task, awaited);
    for (const std::uint64_t id : endedWaits()) {
      if (hellos_.contains(id)) decide(id);
    }
  }
  moving_ = false;
}

// As mustWait() says it, but without a look at every task's token for each of them.
std::vector<std::uint64_t> AttachServer::endedWaits() const {
  std::vector<std::uint64_t> ended;
  if (waitingHellos() == 0) return ended;
  std::set<std::uint64_t> expecting;
  for (const auto& [key, expected] : expected_) expecting.insert(expected.entry.task);
  for (const auto& [id, hello] : hellos_) {
    if (!hello.waits) continue;
    const bool held = hello.task == 0 || (hello.said.reattach == 0 &&
                                          expecting.contains(hello.task));
    const bool waits = hello.raises ? hello.said.incarnation_seen >= incarnation_
                                    : recovering_ && held;
    if (!waits) ended.push_back(id);
  }
  return ended;
}

void AttachServer::endRecovery() {
  recoveryTimer_ = 0;
  recovering_ = false;
  recoveryMoved();
}

// --- the node's words ---

void AttachServer::known(schema::TaskKnown::Reader known) {
  const std::uint64_t id = known.getTask();
  const auto tellFailure = [&](const std::string& why) {
    outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
      auto opened = message.initGateOpened();
      opened.setTask(id);
      opened.setFailed(why);
    });
  };
  if (const auto found = tasks_.find(id); found != tasks_.end()) {
    found->second->announced = false;   // said again, answered again
    return announceIfReady(*found->second, awaitedCards());
  }
  if (known.getToken().size() != QGPU_TOKEN_LEN) return tellFailure("its token has a wrong length");
  if (tasks_.size() >= kTasksMax) return tellFailure("too many tasks on this node");
  std::vector<std::uint32_t> cards;
  for (const std::uint32_t card : known.getCards()) {
    if (card >= cards_.size()) return tellFailure("no card " + std::to_string(card));
    cards.push_back(card);
  }
  if (cards.empty()) return tellFailure("it has no card");
  Result<Fd> owner = Fd();
  if (known.getOwnerPid() != 0) owner = openProcess(known.getOwnerPid(), known.getOwnerStart());
  if (!owner) return tellFailure(owner.error().message);
  const schema::Suspend suspend = cards_[cards.front()].suspend;
  TaskPagesSpec spec;
  spec.task = id;
  spec.taskClass = classOf(known.getClass());
  spec.suspend = suspendOf(suspend);
  spec.incarnation = incarnation_;
  spec.quota = Bytes(static_cast<std::int64_t>(known.getQuotaBytes()));
  spec.window = suspend == schema::Suspend::GATE && cards.size() == 1 ? options_.window : Nanos(0);
  spec.orphanGrace = options_.orphanGrace;
  Result<TaskPages> pages = TaskPages::create(spec);
  if (!pages) return tellFailure(pages.error().message);

  auto task = std::make_unique<GuestTask>(std::move(*pages));
  task->id = id;
  task->token.assign(known.getToken().begin(), known.getToken().size());
  task->taskClass = spec.taskClass;
  task->freeze = suspend == schema::Suspend::FREEZE && spec.taskClass != QGPU_ONLINE;
  task->actor = static_cast<ActorId>(known.getActor());
  for (const std::uint32_t card : cards) task->cardActors.push_back(cardActors_[card]);
  task->cards = std::move(cards);
  GuestTask& kept = *tasks_.emplace(id, std::move(task)).first->second;
  for (auto& [key, hello] : hellos_) {
    const bool its = hello.waits && hello.task == 0 &&
                     sameToken(hello.said.token, kept.token.data());
    if (its) hello.task = id;
  }
  port_.added(kept);
  if (known.getOwnerPid() != 0) watchOwner(kept, std::move(*owner));
  recoveryMoved();
}

// Online tasks never wait (A2). The others wait until who may be using their card is known.
void AttachServer::announceIfReady(GuestTask& task, const std::vector<bool>& awaited) {
  if (task.announced) return;
  const bool waits = std::any_of(task.cards.begin(), task.cards.end(),
                                 [&](std::uint32_t card) { return awaited[card]; });
  if (task.taskClass != QGPU_ONLINE && waits) return;
  task.announced = true;
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    message.initGateOpened().setTask(task.id);
  });
}

void AttachServer::closed(schema::TaskClosed::Reader closed) {
  const auto found = tasks_.find(closed.getTask());
  if (found == tasks_.end()) return;
  GuestTask& task = *found->second;
  port_.close(task);
  if (!closed.getKill()) return;
  if (task.processes.empty() && !expects(task.id)) return erase(task.id);
  kill(task);
}

void AttachServer::kill(GuestTask& task) {
  const auto signalAll = [this](GuestTask& whom, int signal) {
    for (auto& [slot, process] : whom.processes) signalProcess(process->pidfd, signal);
    for (auto& [key, expected] : expected_) {
      if (expected.entry.task == whom.id) signalProcess(expected.pidfd, signal);
    }
  };
  if (task.killing) return;
  task.killing = true;
  signalAll(task, SIGTERM);
  task.killTimer = loop_.after(options_.killGrace, [this, signalAll, id = task.id] {
    const auto found = tasks_.find(id);
    if (found == tasks_.end()) return;
    found->second->killTimer = 0;
    signalAll(*found->second, SIGKILL);
  });
}

// Once the last of its processes is dead, those included that had not come back.
void AttachServer::eraseIfKilled(std::uint64_t id) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end() || !found->second->killing) return;
  if (found->second->processes.empty() && !expects(id)) erase(id);
}

void AttachServer::erase(std::uint64_t id) {
  GuestTask& task = *tasks_.at(id);
  loop_.cancel(task.killTimer);
  port_.removed(task);
  tasks_.erase(id);
}

void AttachServer::watchOwner(GuestTask& task, Fd owner) {
  task.owner = std::move(owner);
  if (!task.owner) return ownerGone(task);
  task.ownerWatch = loop_.fds().watchLevel(task.owner.get(), EPOLLIN, [this, &task](std::uint32_t) {
    task.ownerWatch.reset();
    ownerGone(task);
  });
}

void AttachServer::ownerGone(GuestTask& task) {
  task.owner.reset();
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    auto gone = message.initOwnerGone();
    gone.setTask(task.id);
    gone.setReason("the process that the task was bound for is dead");
  });
}

}  // namespace qgpu
