#include "services/kubernetes/agent/pod_cgroups.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

namespace qgpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRoot = "kubepods";
constexpr std::string_view kSlice = ".slice";
constexpr std::string_view kUnified = "cgroup2";
constexpr std::size_t kUidMax = 64;
constexpr const char* kQosFolders[] = {"", "burstable", "besteffort"};  // guaranteed has none

// The n-th of the words of a line, from 0; empty: there are fewer.
std::string_view word(std::string_view line, std::size_t n) {
  for (; n > 0 && !line.empty(); --n) {
    line.remove_prefix(std::min(line.find(' '), line.size() - 1) + 1);
  }
  return line.substr(0, line.find(' '));
}

// Spaces and the like are written as \040.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size();
    if (!escape) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>(std::strtol(std::string(text.substr(i + 1, 3)).c_str(), nullptr, 8));
    i += 3;
  }
  return plain;
}

// Of systemd's driver what its slices begin with; of cgroupfs nothing.
std::optional<std::string> prefixOf(std::string_view kubepods) {
  if (kubepods == kRoot) return "";
  const std::string tail = std::string(kRoot) + std::string(kSlice);
  const bool nested = kubepods.ends_with("-" + tail);
  if (kubepods != tail && !nested) return {};
  return std::string(kubepods.substr(0, kubepods.size() - kSlice.size()));
}

// The folders in one; none where it is not there.
Result<std::vector<fs::path>> foldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code unknown;
    if (at->is_directory(unknown)) folders.push_back(at->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail(ErrorCode::Unavailable, folder.string() + ": " + error.message());
  }
  return folders;
}

// A folder that kubelet puts pods into: one of each class of service.
struct PodsFolder {
  fs::path path;
  std::string prefix;  // of systemd's slices in it, with their '-'; empty: driver cgroupfs
  std::string nameOf(std::string uid) const {
    if (prefix.empty()) return "pod" + uid;
    std::replace(uid.begin(), uid.end(), '-', '_');
    return prefix + "pod" + uid + std::string(kSlice);
  }
};

void addPodsFolders(const fs::path& kubepods, const std::string& prefix,
                    std::vector<PodsFolder>& to) {
  for (const std::string qos : kQosFolders) {
    const std::string slices = prefix + (qos.empty() ? "" : "-" + qos);
    const std::string name = prefix.empty() ? qos : slices + std::string(kSlice);
    to.push_back({qos.empty() ? kubepods : kubepods / name, prefix.empty() ? "" : slices + "-"});
  }
}

Result<std::vector<PodsFolder>> podsFolders(const std::vector<std::string>& mounts) {
  std::vector<PodsFolder> found;
  for (const std::string& mount : mounts) {
    auto tops = foldersIn(mount);
    if (!tops) return tops.error();
    for (const fs::path& top : *tops) {
      if (const auto prefix = prefixOf(top.filename().string())) {
        addPodsFolders(top, *prefix, found);
        continue;
      }
      auto below = foldersIn(top);
      if (!below) return below.error();
      for (const fs::path& folder : *below) {
        if (const auto prefix = prefixOf(folder.filename().string())) {
          addPodsFolders(folder, *prefix, found);
        }
      }
    }
  }
  return found;
}

bool isUid(std::string_view text) {
  return !text.empty() && text.size() <= kUidMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-';
         });
}

// Where a file system is mounted whose type and options, each between commas, are wanted.
template <typename Wanted>
std::vector<std::string> mountsWhere(std::string_view mountinfo, const Wanted& wanted) {
  constexpr std::size_t kMountPoint = 4, kType = 0, kSuperOptions = 2;  // the last two from " - "
  std::vector<std::string> mounts;
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const std::string_view behind = line.substr(dash + 3);
    const std::string options = "," + std::string(word(behind, kSuperOptions)) + ",";
    if (wanted(word(behind, kType), options)) mounts.push_back(unescaped(word(line, kMountPoint)));
  }
  return mounts;
}

}  // namespace

std::vector<std::string> cgroupMounts(std::string_view mountinfo) {
  return mountsWhere(mountinfo, [](std::string_view type, const std::string& options) {
    const bool devices = type == "cgroup" && options.find(",devices,") != options.npos;
    return devices || type == kUnified;
  });
}

std::vector<std::string> unifiedMounts(std::string_view mountinfo) {
  return mountsWhere(mountinfo,
                     [](std::string_view type, const std::string&) { return type == kUnified; });
}

std::vector<std::string> podFolders(const std::vector<std::string>& mounts, std::string_view uid) {
  std::vector<std::string> folders;
  const auto all = podsFolders(mounts);
  if (!all || !isUid(uid)) return folders;
  for (const PodsFolder& pods : *all) {
    const fs::path folder = pods.path / pods.nameOf(std::string(uid));
    std::error_code error;
    if (fs::is_directory(folder, error)) folders.push_back(folder.string());
  }
  return folders;
}

Result<std::vector<std::string>> allPodFolders(const std::vector<std::string>& mounts) {
  std::vector<std::string> folders;
  const auto all = podsFolders(mounts);
  if (!all) return all.error();
  for (const PodsFolder& pods : *all) {
    auto below = foldersIn(pods.path);
    if (!below) return below.error();
    for (const fs::path& folder : *below) {
      if (folder.filename().string().starts_with(pods.prefix + "pod")) {
        folders.push_back(folder.string());
      }
    }
  }
  return folders;
}

}  // namespace qgpu
