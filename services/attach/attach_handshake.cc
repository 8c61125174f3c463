// The handshake: what a process says in its hello, who the kernel says it is, and its answer.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "services/attach/attach_server.h"
#include "services/attach/connection.h"

namespace qgpu {
namespace {

// Of an id as NVML writes it, "GPU-" and 32 digits with dashes between; any other leaves zeros.
void copyUuid(std::uint8_t (&to)[QGPU_UUID_LEN], const std::string& id) {
  std::uint8_t uuid[QGPU_UUID_LEN] = {};
  std::size_t digits = 0;
  if (!id.starts_with("GPU-")) return;
  for (const char c : std::string_view(id).substr(4)) {
    if (c == '-') continue;
    const bool isDigit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (!isDigit || digits == 2 * QGPU_UUID_LEN) return;
    const auto value = static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    const unsigned before = uuid[digits / 2];
    uuid[digits / 2] = static_cast<std::uint8_t>(before << 4 | value);
    ++digits;
  }
  if (digits == 2 * QGPU_UUID_LEN) std::memcpy(to, uuid, sizeof uuid);
}

// As much as fits; the record is all zeros, so that its NUL is there.
template <std::size_t N>
void copyText(char (&to)[N], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

}  // namespace

// After a restart: for the processes that bring the page of its task.
bool AttachServer::mustWait(const Hello& hello) const {
  return recovering_ && hello.said.reattach == 0 && expects(hello.task);
}

void AttachServer::decide(std::uint64_t id) {
  Hello& hello = hellos_.at(id);
  const auto found = tasks_.find(hello.task);
  if (found == tasks_.end()) return refuse(id, "the task has ended");
  if (mustWait(hello)) return wait(hello, false);
  GuestTask* task = found->second.get();
  if (task->pages.closed()) return refuse(id, "the task was unbound or evicted");
  Result<Peer> peer = identify(hello, *task);
  if (!peer) return refuse(id, peer.error().message);
  if (hello.said.incarnation_seen >= incarnation_) {
    const Status asked = askIncarnationAbove(hello.said.incarnation_seen);
    if (!asked) return refuse(id, asked.error().message);
    return wait(hello, true);
  }
  const Result<std::uint32_t> slot = giveSlot(hello, *task, *peer);
  if (!slot) return refuse(id, slot.error().message);
  attach(hello, *task, std::move(*peer), *slot);
  dropHello(id);
  recoveryMoved();
}

// Its time to wait is bounded by the timer of its connection.
void AttachServer::wait(Hello& hello, bool raises) {
  if (waitingHellos() > kWaitingMax) return refuse(hello.id, tooManyWait());
  hello.waits = true;
  hello.raises = raises;
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
  const Status counted = allCounted(task, peer.entry);
  if (!counted) return counted.error();
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

bool AttachServer::welcome(const Hello& hello, const GuestTask& task, std::uint32_t slot) const {
  qgpu_welcome record{};
  record.magic = QGPU_ATTACH_MAGIC;
  record.version = QGPU_ABI_VERSION;
  record.task = task.id;
  record.slot = slot;
  record.incarnation = incarnation_;
  record.cards = static_cast<std::uint32_t>(std::min(task.cards.size(), std::size(record.device)));
  for (std::uint32_t i = 0; i < record.cards; i++) {
    record.device[i] = cards_[task.cards[i]].device;
    copyUuid(record.uuid[i], cards_[task.cards[i]].id);
  }
  const Card& first = cards_[task.cards.front()];
  copyText(record.platform, first.platform);
  // A simulated card is no device that the driver of the guest could name.
  if (!first.platform.empty()) copyText(record.model, first.model);
  const int fds[] = {task.pages.gateFd(), task.pages.reportFd(), task.pages.doorbellFd()};
  return sendWelcome(hello.connection, record, fds, std::size(fds));
}

void AttachServer::attach(Hello& hello, GuestTask& task, Peer peer, std::uint32_t slot) {
  const bool known = task.processes.contains(slot);
  const bool again = hello.said.reattach != 0;
  if (!welcome(hello, task, slot) && !again) {
    // Gone before it had its answer, and so before it had the pages. It starts anew.
    if (!known) task.pages.freeSlot(slot);
    return;
  }
  // Who came back has its bytes in this slot for as long as it lives (A14). If it took no answer,
  // its connection ends at once, and it comes again.
  (again ? counters_.reattached : counters_.attached)++;
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
    suspenders_.attached(task, *process);
  }
  process->freezeSignal = hello.said.freeze_signal;
  process->incarnation = incarnation_;
  process->returned = again;
  process->threads = ThreadIds(peer.entry.pid, hello.said.pid);
  process->talk.reset();
  letGo(std::exchange(process->connection, std::move(hello.connection)));
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
  sendRefusal(hellos_.at(id).connection, incarnation_, reason.c_str());
  dropHello(id);
}

}  // namespace qgpu
