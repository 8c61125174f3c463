// One hello: who the kernel says that it is, the page that it brought, and its answer.
#include <algorithm>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "services/attach/attach_server.h"
#include "services/attach/sockets/connection.h"

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

Result<RosterPlatform::Peer> AttachServer::identify(std::uint64_t id) {
  Hello& hello = hellos_.at(id);
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(hello.connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.pid <= 0) {
    return fail(ErrorCode::Denied,
                "the manager can't see this process; it must run in the host's pid namespace");
  }
  const bool knows = (hello.said.knows & QGPU_KNOWS_PAGING) != 0 || hello.said.reattach != 0;
  if (!knows && tasks_.at(hello.task)->pages.pageable() > Bytes(0)) {
    return fail(ErrorCode::Denied,
                "the libqgpu.so of this process is older than memory that leaves the card: use a "
                "newer one, or bind the task without pageable memory");
  }
  const Peer peer{static_cast<std::uint32_t>(credentials.pid), hello.said.start_time};
  hello.pidfd.reset();
  if (peer.start != 0) {
    Result<Fd> opened = openProcess(peer.pid, peer.start);
    if (!opened) return opened.error();
    hello.pidfd = std::move(*opened);
  }
  if (!hello.pidfd) {
    return fail(ErrorCode::Denied, "process " + std::to_string(peer.pid) +
                                       " is dead or did not start when its hello says");
  }
  return peer;
}

Status AttachServer::adoptPage(std::uint64_t id) {
  Hello& hello = hellos_.at(id);
  if (!hello.page) return fail(ErrorCode::InvalidArgument, "a re-attach brings its report page");
  return tasks_.at(hello.task)->pages.adoptReport(std::move(hello.page));
}

bool AttachServer::welcome(std::uint64_t id, std::uint32_t slot) {
  const Hello& hello = hellos_.at(id);
  GuestTask& task = *tasks_.at(hello.task);
  task.pages.keepAway();
  qgpu_welcome record{};
  record.magic = QGPU_ATTACH_MAGIC;
  record.version = QGPU_ABI_VERSION;
  record.task = task.id;
  record.slot = slot;
  record.incarnation = roster_.incarnation();
  record.cards = static_cast<std::uint32_t>(std::min(task.cards.size(), std::size(record.device)));
  for (std::uint32_t i = 0; i < record.cards; i++) {
    record.device[i] = cards_[task.cards[i]].device;
    copyUuid(record.uuid[i], cards_[task.cards[i]].id);
  }
  const Card& first = cards_[task.cards.front()];
  copyText(record.platform, first.platform);
  // A simulated card is no device that the driver of the guest could name.
  if (!first.platform.empty()) copyText(record.model, first.model);
  // Its driver opens the card's nodes as soon as it hears of this.
  if (options_.guard != nullptr && !options_.guard->letIn(hello.pidfd, task.id, task.cards)) {
    return false;
  }
  const int fds[] = {task.pages.gateFd(), task.pages.reportFd(), task.pages.doorbellFd()};
  return sendWelcome(hello.connection, record, fds, std::size(fds));
}

void AttachServer::attached(std::uint64_t id, const AttachedEntry& who, std::uint32_t slot,
                            bool isNew) {
  Hello& hello = hellos_.at(id);
  GuestTask& task = *tasks_.at(who.task);
  std::unique_ptr<GuestProcess>& process = task.processes[slot];
  if (isNew) {
    process = std::make_unique<GuestProcess>();
    process->entry = who;
    process->slot = slot;
    process->pidfd = std::move(hello.pidfd);
    process->death = loop_.fds().watchLevel(
        process->pidfd.get(), EPOLLIN,
        [this, task = who.task, slot](std::uint32_t) { roster_.died(task, slot); });
    list_.add(process->entry);
    suspenders_.attached(task, *process);
  }
  process->freezeSignal = hello.said.freeze_signal;
  process->threads = ThreadIds(who.pid, hello.said.pid);
  process->talk.reset();
  letGo(std::exchange(process->connection, std::move(hello.connection)));
  process->talk =
      loop_.fds().watchLevel(process->connection.get(), EPOLLIN | EPOLLRDHUP,
                             [this, task = who.task, slot](std::uint32_t) { onTalk(task, slot); });
  drop(id);
  if (isNew) messages_.processAttached(task, who.pid, slot);
  port_.processAttached(task);
}

bool AttachServer::connected(std::uint64_t task, std::uint32_t slot) {
  return static_cast<bool>(tasks_.at(task)->processes.at(slot)->connection);
}

void AttachServer::drop(std::uint64_t id) {
  const auto found = hellos_.find(id);
  if (found == hellos_.end()) return;
  loop_.cancel(found->second.timer);
  letGo(std::move(found->second.connection));
  hellos_.erase(found);
}

void AttachServer::refuse(std::uint64_t id, const std::string& reason) {
  sendRefusal(hellos_.at(id).connection, roster_.incarnation(), reason.c_str());
  drop(id);
}

}  // namespace qgpu
