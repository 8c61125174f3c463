#include "services/base/net/socket_file.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/fd.h"

namespace qgpu {

namespace {

// Where not, errno says why. A full backlog (EAGAIN) or another type of socket (EPROTOTYPE) shows
// life as well.
bool connects(const sockaddr_un& address, int type) {
  const Fd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return false;
  const int rc =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_un));
  return rc == 0 || errno == EAGAIN || errno == EPROTOTYPE;
}

}  // namespace

Result<sockaddr_un> socketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::InvalidArgument, "\"" + path + "\" is no socket path: 1 to " +
                                                std::to_string(sizeof address.sun_path - 1) +
                                                " characters; shorten --run-dir");
  }
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

Status clearSocketFile(const std::string& path, int type) {
  const auto why = [&] { return path + ": " + std::strerror(errno); };
  const Result<sockaddr_un> address = socketAddress(path);
  if (!address) return address.error();
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? ok() : fail(ErrorCode::Unavailable, why());
  }
  if (!S_ISSOCK(found.st_mode)) {
    return fail(ErrorCode::AlreadyExists,
                path + " exists and is no socket: move it away or choose another --run-dir");
  }
  if (connects(*address, type)) {
    return fail(ErrorCode::AlreadyExists,
                "another daemon listens on " + path + ": stop it or choose another --run-dir");
  }
  if (errno == ENOENT) return ok();  // its daemon has removed it just now
  if (errno != ECONNREFUSED) return fail(ErrorCode::Unavailable, why());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail(ErrorCode::Unavailable, "can't remove the stale " + why());
  }
  return ok();
}

}  // namespace qgpu
