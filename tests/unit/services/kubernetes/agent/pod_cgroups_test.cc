// A pod's cgroup is found whatever kubelet's driver, its root, and the pod's class of service.

#include "services/kubernetes/agent/pod_cgroups.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include "tests/testing/temp_folder.h"

namespace qgpu::pod_cgroups_test {
namespace {

using testing::TempFolder;

constexpr const char* kUid = "2f1c9e1a-0b3d-4c55-9e0f-1d2c3b4a5f60";
constexpr const char* kEscaped = "2f1c9e1a_0b3d_4c55_9e0f_1d2c3b4a5f60";
constexpr const char* kStatic = "0123456789abcdef0123456789abcdef";  // kubelet's own hash
constexpr const char* kOther = "99999999-0b3d-4c55-9e0f-1d2c3b4a5f60";

struct PodCgroups : ::testing::Test {
  TempFolder mount{"cgroups"};

  std::string make(const std::string& folder) const {
    std::filesystem::create_directories(mount / folder);
    return mount / folder;
  }
  std::vector<std::string> find(std::string_view uid) const {
    return podFolders({mount.path()}, uid);
  }
  std::vector<std::string> all() const {
    auto folders = allPodFolders({mount.path()});
    EXPECT_TRUE(folders) << folders.error().message;
    std::sort(folders->begin(), folders->end());
    return *folders;
  }
};

using Folders = std::vector<std::string>;

// A folder of the pod, with everything around it that kubelet makes, and its container below.
struct Place {
  const char* name;
  std::string folder;
  std::string uid = kUid;
};

struct PodPlace : PodCgroups, ::testing::WithParamInterface<Place> {};

TEST_P(PodPlace, IsFoundAndNoOtherPods) {
  const Place& place = GetParam();
  make("system.slice/kubelet.service");
  const std::string folder = make(place.folder);
  make(place.folder + "/cri-containerd-0.scope");
  EXPECT_EQ(find(place.uid), Folders{folder});
  EXPECT_EQ(find(kOther), Folders());
  EXPECT_EQ(all(), Folders{folder});
}

const std::string kSlices = "kubepods.slice/kubepods-";
const std::string kNested = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-";

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, PodPlace,
    ::testing::Values(
        Place{"GuaranteedBySystemd", kSlices + "pod" + kEscaped + ".slice"},
        Place{"BurstableBySystemd",
              kSlices + "burstable.slice/kubepods-burstable-pod" + kEscaped + ".slice"},
        Place{"BestEffortBySystemd",
              kSlices + "besteffort.slice/kubepods-besteffort-pod" + kEscaped + ".slice"},
        Place{"Guaranteed", std::string("kubepods/pod") + kUid},
        Place{"Burstable", std::string("kubepods/burstable/pod") + kUid},
        Place{"BestEffort", std::string("kubepods/besteffort/pod") + kUid},
        Place{"BelowARootBySystemd", kNested + "pod" + kEscaped + ".slice"},
        Place{"BurstableBelowARootBySystemd",
              kNested + "burstable.slice/kubelet-kubepods-burstable-pod" + kEscaped + ".slice"},
        Place{"BestEffortBelowARoot", std::string("kubelet/kubepods/besteffort/pod") + kUid},
        Place{"StaticBySystemd",
              kSlices + "burstable.slice/kubepods-burstable-pod" + kStatic + ".slice", kStatic},
        Place{"Static", std::string("kubepods/burstable/pod") + kStatic, kStatic}),
    [](const auto& place) { return std::string(place.param.name); });

TEST_F(PodCgroups, OfTwoHierarchiesBothAreFound) {
  const std::string old = make(std::string("devices/kubepods/pod") + kUid);
  const std::string now = make(std::string("unified/kubepods/pod") + kUid);
  EXPECT_EQ(podFolders({mount / "devices", mount / "unified"}, kUid), (Folders{old, now}));
}

TEST_F(PodCgroups, WhatIsNoUidIsNotLookedFor) {
  make("kubepods/pod");
  make("kubepods/podx/burstable");
  make("secret");
  for (const char* uid : {"", "x/burstable", "x/../../secret", "x/.."}) {
    EXPECT_EQ(find(uid), Folders()) << uid;
  }
}

TEST_F(PodCgroups, AFolderDeepInSomebodysOwnIsNoPods) {
  make(std::string("user.slice/user-1000.slice/mine/kubepods/pod") + kUid);
  EXPECT_EQ(find(kUid), Folders());
}

TEST_F(PodCgroups, WithoutKubeletThereAreNone) {
  make("system.slice/ssh.service");
  EXPECT_EQ(find(kUid), Folders());
  EXPECT_EQ(all(), Folders());
  EXPECT_EQ(podFolders({mount / "gone"}, kUid), Folders());
}

TEST(CgroupMounts, AreVersionTwosAndThatOfDevices) {
  const std::string tail = " rw,nosuid - ";
  const std::string mounts = "24 1 0:22 / /proc" + tail +
                             "proc proc rw\n"
                             "30 24 0:26 / /sys/fs/cgroup shared:4" +
                             tail +
                             "cgroup2 cgroup2 rw,nsdelegate\n"
                             "31 24 0:27 / /sys/fs/cgroup/cpu" +
                             tail +
                             "cgroup cgroup rw,cpu,cpuacct\n"
                             "32 24 0:28 / /sys/fs/cgroup/devices" +
                             tail +
                             "cgroup cgroup rw,devices\n"
                             "33 24 0:29 / /a\\040b/c" +
                             tail +
                             "cgroup2 none rw\n"
                             "34 24 0:30 / /half\n";
  EXPECT_EQ(cgroupMounts(mounts), (Folders{"/sys/fs/cgroup", "/sys/fs/cgroup/devices", "/a b/c"}));
  EXPECT_EQ(unifiedMounts(mounts), (Folders{"/sys/fs/cgroup", "/a b/c"}));
}

}  // namespace
}  // namespace qgpu::pod_cgroups_test
