#include "runtime/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qgpu {
namespace {

Error failed(const std::string& what) {
  return fail(ErrorCode::Unavailable, what + ": " + std::strerror(errno));
}

}  // namespace

bool writeAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

Status writeAnew(const std::string& path, const std::string& text, unsigned mode) {
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return failed(fresh);
  const bool written = ::fchmod(fd, mode) == 0 && writeAll(fd, text);
  Status status = written ? ok() : Status(failed(fresh));
  ::close(fd);
  if (status && ::rename(fresh.c_str(), path.c_str()) != 0) status = failed(path);
  if (!status) ::unlink(fresh.c_str());
  return status;
}

}  // namespace qgpu
