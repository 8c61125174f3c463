#include "services/base/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace qgpu {

Result<RunDir> RunDir::claim(const std::string& path, const std::string& daemon) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(path, error);
  if (made) ::chmod(path.c_str(), 0755);   // whatever the umask says
  if (error) {
    return fail(ErrorCode::Unavailable, "can't make the run dir " + path + ": " + error.message() +
                                            "; choose another with --run-dir");
  }
  struct stat folder {};
  const bool ours = ::lstat(path.c_str(), &folder) == 0 && S_ISDIR(folder.st_mode) &&
                    folder.st_uid == ::geteuid() && (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (!ours) {
    return fail(ErrorCode::Denied, "the run dir " + path +
                                       " must be a folder of this user that nobody else may write "
                                       "to, since tokens pass through its sockets; chown and "
                                       "chmod 755 it, or choose another with --run-dir");
  }
  const std::string name = path + "/" + daemon + ".lock";
  const int lock = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) {
    return fail(ErrorCode::Unavailable, "can't write to the run dir " + path + ": " +
                                            std::strerror(errno) +
                                            "; choose another with --run-dir");
  }
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return fail(ErrorCode::Conflict, "another qgpu-" + daemon + " serves the run dir " + path +
                                         "; stop it, or choose another with --run-dir");
  }
  return RunDir(path, lock);
}

RunDir::RunDir(RunDir&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

RunDir::~RunDir() {
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace qgpu
