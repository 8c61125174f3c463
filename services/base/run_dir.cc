#include "services/base/run_dir.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace qgpu {
namespace {

// The first folder on the way to `path` that is not there; empty where all are.
std::string missingFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::path so = "/";
  for (const auto& part : std::filesystem::absolute(path, error).parent_path()) {
    so /= part;
    const auto type = std::filesystem::status(so, error).type();
    if (type == std::filesystem::file_type::not_found) return so.string();
  }
  return "";
}

}  // namespace

Result<RunDir> RunDir::claim(const std::string& path, const std::string& daemon) {
  std::error_code error;
  const bool made = std::filesystem::create_directory(path, error);
  if (const std::string missing = error ? missingFolder(path) : ""; !missing.empty()) {
    return fail(ErrorCode::NotFound, "there is no folder " + missing + " for the run dir " + path +
                                         "; make it, or choose another with --run-dir");
  }
  if (made) ::chmod(path.c_str(), 0755);  // whatever the umask says
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
