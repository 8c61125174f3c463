#include "tests/e2e/kubernetes/kubelet_cgroups.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qgpu::e2e {
namespace {

std::string rootName() {
  return "qgpu" + std::to_string(::getpid());
}

}  // namespace

std::string KubeletCgroups::mount() {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("groups", place_.path().c_str(), "cgroup2", 0, nullptr) != 0) {
    return std::string("cgroups of its own: ") + std::strerror(errno);
  }
  mounted_ = true;
  return "";
}

KubeletCgroups::~KubeletCgroups() {
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    EXPECT_TRUE(::rmdir(folder->c_str()) == 0 || errno == ENOENT) << *folder;
  }
  if (mounted_) ::umount2(place_.path().c_str(), MNT_DETACH);
}

void KubeletCgroups::make(const std::string& uid, const std::vector<std::string>& folders) {
  std::string path = place_.path();
  for (const std::string& folder : folders) {
    path += "/" + folder;
    if (::mkdir(path.c_str(), 0755) == 0) {
      made_.push_back(path);
    } else {
      EXPECT_EQ(errno, EEXIST) << path;
    }
  }
  pods_[uid] = path;
}

void KubeletCgroups::makeBurstable(const std::string& uid) {
  make(uid, {rootName(), "kubepods", "burstable", "pod" + uid});
}

void KubeletCgroups::makeGuaranteed(const std::string& uid) {
  std::string escaped = uid;
  std::replace(escaped.begin(), escaped.end(), '-', '_');
  const std::string slices = rootName() + "-kubepods";
  make(uid, {rootName() + ".slice", slices + ".slice", slices + "-pod" + escaped + ".slice"});
}

void KubeletCgroups::remove(const std::string& uid) {
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    if (folder->starts_with(pods_.at(uid))) {
      EXPECT_EQ(::rmdir(folder->c_str()), 0) << *folder;
    }
  }
}

std::string KubeletCgroups::pathOf(const std::string& uid) const {
  return pods_.at(uid).substr(place_.path().size());
}

std::vector<std::string> KubeletCgroups::inPod(const std::string& uid,
                                               const std::vector<std::string>& argv) {
  const std::string container = pods_.at(uid) + "/c" + std::to_string(made_.size());
  EXPECT_EQ(::mkdir(container.c_str(), 0755), 0) << container;
  made_.push_back(container);
  std::vector<std::string> all = {
      "/bin/sh", "-c", "echo $$ >" + container + "/cgroup.procs && exec \"$@\"", "container"};
  all.insert(all.end(), argv.begin(), argv.end());
  return all;
}

}  // namespace qgpu::e2e
