#include "services/attach/sockets/attach_listener.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "services/attach/pages/task_pages.h"
#include "services/attach/sockets/connection.h"
#include "services/base/net/socket_file.h"

namespace qgpu {
namespace {

constexpr int kBacklog = 128;
constexpr std::size_t kArrivingTasksMax = 8'192;  // told apart

}  // namespace

AttachListener::AttachListener(Loop& loop, const TokenBook& book, AttachListenerOptions options,
                               LetIn letIn)
    : loop_(loop),
      book_(book),
      options_(std::move(options)),
      letIn_(std::move(letIn)),
      comers_(options_.comersAtOnce, options_.comerEach, kComersMax),
      arrivals_(options_.arrivalsAtOnce, options_.arrivalEach, kArrivingTasksMax) {}

AttachListener::~AttachListener() {
  while (!hellos_.empty()) drop(hellos_.begin()->first);
  if (listen_) ::unlink(options_.path.c_str());
}

Status AttachListener::listen() {
  const Result<sockaddr_un> address = socketAddress(options_.path);
  if (!address) return address.error();
  Status claimed = clearSocketFile(options_.path, SOCK_SEQPACKET);
  if (!claimed) return claimed;
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(options_.path.c_str(), 0666) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return fail(ErrorCode::Unavailable, options_.path + ": " + std::strerror(errno));
  }
  listen_ = std::move(socket);
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  listenWatch_ =
      loop_.fds().watchLevel(listen_.get(), EPOLLIN, [this](std::uint32_t) { acceptSome(); });
  return ok();
}

void AttachListener::acceptSome() {
  for (int i = 0; i < kAcceptsPerTurn; i++) {
    Fd connection(::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      admit(std::move(connection));
    } else if (errno == EMFILE || errno == ENFILE) {
      return acceptWithoutDescriptors();
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

// Out of descriptors the socket would stay readable for ever: turn the next one away instead.
void AttachListener::acceptWithoutDescriptors() {
  spare_.reset();
  letGo(Fd(::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  counters_.turnedAway++;
}

void AttachListener::admit(Fd connection) {
  counters_.accepted++;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return letGo(std::move(connection));
  }
  const bool counted = comers_.take(peer.uid, loop_.now());
  if (counted && silent_.size() >= kHellosMax) {
    // An honest guest has said its hello by now; the oldest silence makes room.
    counters_.evicted++;
    drop(*silent_.begin());
  }
  const std::uint64_t id = ++lastId_;
  silent_.insert(id);
  Hello& hello = hellos_[id];
  hello.id = id;
  hello.uid = peer.uid;
  hello.counted = counted;
  hello.connection = std::move(connection);
  if (!counted) {
    onHello(id);
    if (!silent_.contains(id)) return;
    counters_.turnedAway++;
    return drop(id);
  }
  hello.timer = loop_.after(options_.helloWithin, [this, id] { drop(id); });
  hello.watch = loop_.fds().watchLevel(hello.connection.get(), EPOLLIN | EPOLLRDHUP,
                                       [this, id](std::uint32_t) { onHello(id); });
}

void AttachListener::drop(std::uint64_t id) {
  const auto found = hellos_.find(id);
  if (found == hellos_.end()) return;
  loop_.cancel(found->second.timer);
  found->second.watch.reset();
  letGo(std::move(found->second.connection));
  silent_.erase(id);
  hellos_.erase(found);
}

void AttachListener::refuse(std::uint64_t id, const std::string& reason) {
  counters_.refused++;
  sendRefusal(hellos_.at(id).connection, options_.incarnation, reason.c_str());
  drop(id);
}

void AttachListener::onHello(std::uint64_t id) {
  Hello& hello = hellos_.at(id);
  if (hear(hello)) answer(hello);
}

// True once a record of the right size and kind is there. Anything else ends the connection.
bool AttachListener::hear(Hello& hello) {
  char bytes[sizeof(qgpu_hello) + 1];
  const NextRecord next = peekRecord(hello.connection, bytes, sizeof bytes);
  if (next.what == NextRecord::What::None) return false;
  if (next.what == NextRecord::What::Over) {
    drop(hello.id);
  } else if (next.bytes != sizeof(qgpu_hello)) {
    refuse(hello.id, "a hello has " + std::to_string(sizeof(qgpu_hello)) + " bytes");
  } else {
    std::memcpy(&hello.said, bytes, sizeof hello.said);
    if (hello.said.magic == QGPU_ATTACH_MAGIC && hello.said.version != 0) return true;
    refuse(hello.id, "this is not a hello of libqgpu");
  }
  return false;
}

void AttachListener::answer(Hello& hello) {
  const TokenBook::Found found = book_.find(hello.said.token);
  if (found.task != 0) return goOn(hello, found.task);
  if (found.mayCome) return wait(hello);
  refuse(hello.id, "no task has this token: it has ended, or QGPU_TOKEN is wrong");
}

// Its time to wait is bounded by the timer of its connection.
void AttachListener::wait(Hello& hello) {
  if (!silent_.contains(hello.id)) return;
  if (waiting() >= kWaitingMax) return refuse(hello.id, tooManyWait());
  silent_.erase(hello.id);
  hello.watch.reset();
  if (hello.timer != 0) return;
  hello.timer = loop_.after(options_.helloWithin, [this, id = hello.id] { drop(id); });
}

void AttachListener::goOn(Hello& hello, std::uint64_t task) {
  const bool its = arrivals_.take(task, loop_.now());
  if (its && hello.counted) comers_.giveBack(hello.uid);
  if (!its) {
    counters_.turnedAway++;
    return drop(hello.id);
  }
  counters_.letIn++;
  Arrival arrival;
  arrival.said = hello.said;
  arrival.task = task;
  arrival.page = takeMemoryFile(hello.connection, kReportPageBytes);
  hello.watch.reset();
  arrival.connection = std::move(hello.connection);
  drop(hello.id);
  letIn_(std::move(arrival));
}

void AttachListener::tokenCame(const std::string& token) {
  std::vector<std::uint64_t> its;
  for (const auto& [id, hello] : hellos_) {
    if (!silent_.contains(id) && TokenBook::same(hello.said.token, token.c_str())) {
      its.push_back(id);
    }
  }
  for (const std::uint64_t id : its) answer(hellos_.at(id));
}

void AttachListener::bookComplete() {
  std::vector<std::uint64_t> all;
  for (const auto& [id, hello] : hellos_) {
    if (!silent_.contains(id)) all.push_back(id);
  }
  for (const std::uint64_t id : all) answer(hellos_.at(id));
}

}  // namespace qgpu
