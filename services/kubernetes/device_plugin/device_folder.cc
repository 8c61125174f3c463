#include "services/kubernetes/device_plugin/device_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace qgpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDev = "/dev";
constexpr mode_t kFolder = 0755;
constexpr mode_t kPermissions = 07777;

Error failed(const std::string& path) {
  return fail(ErrorCode::Unavailable, path + ": " + std::strerror(errno));
}

Status copyNode(const std::string& from, const std::string& to) {
  struct stat node {};
  if (::stat(from.c_str(), &node) != 0 || !S_ISCHR(node.st_mode)) {
    return fail(ErrorCode::NotFound, from + " is no device node");
  }
  // The mode once more: our umask took its part of the first.
  const bool made = ::mknod(to.c_str(), S_IFCHR, node.st_rdev) == 0 &&
                    ::chown(to.c_str(), node.st_uid, node.st_gid) == 0 &&
                    ::chmod(to.c_str(), node.st_mode & kPermissions) == 0;
  if (made) return ok();
  // The same words for every folder, so that they are said once.
  const std::string fix = errno == EPERM ? "; qgpu-manager needs CAP_MKNOD" : "";
  return fail(ErrorCode::Unavailable,
              "no copy of " + from + " can be made: " + std::strerror(errno) + fix);
}

}  // namespace

Status fillDeviceFolder(const std::string& folder, const std::string& hostRoot,
                        const std::vector<std::string>& nodes) {
  if (::mkdir(folder.c_str(), kFolder) != 0 && errno != EEXIST) return failed(folder);
  if (::chmod(folder.c_str(), kFolder) != 0) return failed(folder);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::remove_all(entry.path(), error) == static_cast<std::uintmax_t>(-1)) {
      return fail(ErrorCode::Unavailable, entry.path().string() + ": " + error.message());
    }
  }
  for (const std::string& node : nodes) {
    const std::string to = folder + node.substr(std::string_view(kDev).size());
    const std::string inner = to.substr(0, to.rfind('/'));
    if (::mkdir(inner.c_str(), kFolder) != 0 && errno != EEXIST) return failed(inner);
    if (::chmod(inner.c_str(), kFolder) != 0) return failed(inner);
    if (Status copied = copyNode(hostRoot + node, to); !copied) return copied;
  }
  return ok();
}

}  // namespace qgpu
