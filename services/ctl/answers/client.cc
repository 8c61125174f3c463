#include "services/ctl/answers/client.h"

#include <algorithm>
#include <cstring>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "services/base/platform.h"

namespace qgpu::ctl {
namespace {

// Where an answer is longer, the buffer has to be moved; what it does not fill costs nothing.
constexpr std::size_t kUsualAnswer = 1U << 20U;
constexpr std::size_t kChunk = 64U << 10U;

ErrorCode errorNamed(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    if (name == errorName(static_cast<ErrorCode>(i))) return static_cast<ErrorCode>(i);
  }
  return ErrorCode::Internal;
}

Document documentOf(std::string_view json, std::size_t behind) {
  Document document(json.size());
  if (readJson(json, document, behind)) return document;
  Document none;
  none.beginObject().endObject();
  return none;
}

Error lost(const std::string& socket, const char* why) {
  return fail(ErrorCode::Unavailable, "the daemon at " + socket + " " + why);
}

}  // namespace

Nanos now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return seconds(t.tv_sec) + Nanos(t.tv_nsec);
}

Answer::Answer(Document document) : document_(std::make_unique<Document>(std::move(document))) {
  const std::optional<bool> good = root()["ok"].flag();
  if (!good) {
    status_ = fail(ErrorCode::Corrupt, "the daemon's answer is no JSON document of its kind");
  } else if (!*good) {
    status_ = fail(errorNamed(textOf(root(), "code")), textOf(root(), "error"));
  }
}

Answer::Answer(std::string_view json, std::size_t behind) : Answer(documentOf(json, behind)) {}

Result<Answer> answerTo(Asker& asker, const Ask& ask, Nanos limit) {
  Result<Answer> answer = asker.ask(ask, limit);
  if (answer && !answer->status()) return answer->status().error();
  return answer;
}

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  received_.clear();
  searched_ = 0;
}

Status Client::connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::InvalidArgument, "\"" + socket_ + "\" is too long for a socket's path");
  }
  socket_.copy(address.sun_path, sizeof address.sun_path - 1);
  close();
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ >= 0 && ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    return ok();
  }
  const int error = errno;
  close();
  return fail(ErrorCode::Unavailable,
              "no daemon answers at " + socket_ + " (" + std::strerror(error) + ")");
}

// A daemon that refuses us may close before it took the line; what it said is still read.
void Client::write(const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

Result<Answer> Client::askLine(const std::string& line, Nanos limit) {
  const bool fresh = fd_ < 0;
  if (fresh) {
    if (Status status = connect(); !status) return status.error();
  }
  write(line + "\n");
  Result<Answer> answer = nextLine(limit);
  if (answer || fresh || fd_ >= 0) return answer;
  // The connection was from an earlier call and the daemon was restarted since.
  return askLine(line, limit);
}

Result<Answer> Client::nextLine(Nanos limit) {
  const Nanos end = limit == kNever ? kNever : now() + limit;
  while (true) {
    const std::size_t newline = received_.find('\n', searched_);
    if (newline != std::string::npos) {
      Answer line(std::string_view(received_).substr(0, newline), received_.capacity() - newline);
      received_.erase(0, newline + 1);
      searched_ = 0;
      return line;
    }
    searched_ = received_.size();
    if (fd_ < 0) return lost(socket_, "is gone");
    const Nanos left = end == kNever ? seconds(3600) : end - now();
    pollfd wanted{fd_, POLLIN, 0};
    const auto ms = static_cast<int>(std::max<std::int64_t>(left.value / millis(1).value, 0));
    const int ready = ::poll(&wanted, 1, ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && end != kNever && now() >= end) {
      close();
      return lost(socket_, "does not answer");
    }
    if (ready <= 0) continue;
    const std::size_t before = received_.size();
    received_.reserve(std::max(kUsualAnswer, before + kChunk + kJsonPadding));
    received_.resize(before + kChunk);
    const ssize_t n = ::recv(fd_, received_.data() + before, kChunk, 0);
    received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || received_.size() > kAnswerMax) {
      close();
      return lost(socket_, "closed the connection");
    }
  }
}

std::string binaryFolder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::size_t slash = self.rfind('/');
  return slash == std::string::npos ? "." : self.substr(0, slash);
}

std::string startLine(const std::string& socket) {
  const bool cluster = socket.ends_with("scheduler.sock");
  const std::string name = cluster ? "qgpu-scheduler" : "qgpu-manager";
  std::string program = binaryFolder() + "/" + name;
  if (::access(program.c_str(), X_OK) != 0) program = name;
  const std::size_t slash = socket.rfind('/');
  const std::string folder = socket.substr(0, slash);
  const bool standard =
      folder == kMachineRunDir || folder == defaultRunDir(Platform::ofThisProcess());
  if (standard || slash == std::string::npos) return program + " &";
  return program + " --run-dir=" + folder + " --dbfile=" + folder +
         (cluster ? "/scheduler.db &" : "/meta.db &");
}

}  // namespace qgpu::ctl
