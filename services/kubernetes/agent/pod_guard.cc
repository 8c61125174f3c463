#include "services/kubernetes/agent/pod_guard.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "services/kubernetes/agent/pod_cgroups.h"

namespace qgpu {
namespace {

std::string mountsNow() {
  std::ifstream file("/proc/self/mountinfo");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

PodGuard::PodGuard(Guard& guard) : guard_(guard), mounts_(cgroupMounts(mountsNow())) {}

Status PodGuard::judge(const std::string& uid, std::uint64_t task) {
  const std::vector<std::string> folders = podFolders(mounts_, uid);
  if (folders.empty()) {
    std::string where;
    for (const std::string& mount : mounts_) where += (where.empty() ? "" : ", ") + mount;
    return fail(ErrorCode::NotFound,
                "the guard finds no cgroup of pod " + uid + " below " +
                    (where.empty() ? "any mount" : where) +
                    ": kubelet makes one unless cgroupsPerQOS is off, and a manager in a "
                    "container needs the host's /sys/fs/cgroup; --guard=off goes without");
  }
  // Pods whose cgroups are gone leave their room to others.
  if (const auto all = allPodFolders(mounts_)) guard_.keepGroups(*all);
  for (const std::string& folder : folders) {
    if (Status judged = guard_.judgeGroup(folder, task); !judged) return judged;
  }
  return ok();
}

bool PodGuard::hasNewPods() {
  auto all = allPodFolders(mounts_);
  if (!all) return false;
  std::sort(all->begin(), all->end());
  const std::vector<std::string> before = std::exchange(seen_, std::move(*all));
  return !std::includes(before.begin(), before.end(), seen_.begin(), seen_.end());
}

}  // namespace qgpu
