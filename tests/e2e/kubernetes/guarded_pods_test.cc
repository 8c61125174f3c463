// Pods under the guard in the kernel (guarded.h): what runs in a pod's cgroup has the card's node
// when it has attached, and not before. API server and kubelet are played, the cgroups are real and
// named as kubelet names them.

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/mount.h>
#include <sys/stat.h>

#include "tests/e2e/kubernetes/guarded.h"
#include "tests/e2e/kubernetes/kubelet_api.h"
#include "tests/e2e/kubernetes/kubelet_cgroups.h"

namespace qgpu::e2e::guarded_pods_test {
namespace {

namespace fs = std::filesystem;

const ContainerName kSecond{"web", "train-1", "main"};

struct GuardedPods : KubeletApi {
  void SetUp() override {
    if (const std::string why = noGuard(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = cgroups.mount(); !why.empty()) GTEST_SKIP() << why;
    flags = guardFlags();
    KubeletApi::SetUp();
  }
  void TearDown() override {
    if (!manager) return;
    manager->stop();
    EXPECT_TRUE(Guard::remove(guardFolderOf(*manager)));
  }
  // Binds and starts a pod of its own card, as kubelet does, whose cgroup is there by then.
  void startPod(const std::string& uid, const std::string& card, const ContainerName& who = kMain) {
    bindPod(uid, card, 30, 4, "", who);
    ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}, who), "") << manager->log();
  }
  // What a program ends with in a container of the pod, with the environment of `who`.
  int ends(const std::string& uid, const ContainerName& who, const std::vector<std::string>& argv) {
    return run(cgroups.inPod(uid, argv), onHost(who)).status;
  }
  int opens(const std::string& uid, const std::string& node, const ContainerName& who = kMain) {
    return ends(uid, who, {binary("guard_tenant"), node});
  }
  int attachesAndOpens(const std::string& uid, const std::string& node,
                       const ContainerName& who = kMain) {
    return ends(uid, who, {binary("guard_tenant"), node, "attach"});
  }
  // Of a process that has no mounts.
  Environment onHost(const ContainerName& who) {
    Environment all = admitted[who.pod].environment;
    for (auto& [name, value] : all) {
      for (const auto& [inside, outside] : admitted[who.pod].mounts) {
        const std::size_t at = value.find(inside);
        if (at != std::string::npos) value.replace(at, inside.size(), outside);
      }
    }
    return all;
  }

  // What a shell printed in a container that runc made of the answers in the pod's cgroup, with
  // runc's own nodes in its /dev, among them those that are the cards here. Its root is this one's.
  std::string inRunc(const std::string& uid, const std::string& commands,
                     const ContainerName& who = kMain) {
    const std::string bundle = dir / "bundle";
    fs::create_directories(bundle + "/root");
    EXPECT_EQ(run({"runc", "spec", "--bundle", bundle}).status, 0);
    Json spec = Json::parse(contentOf(bundle + "/config.json"));
    spec["root"] = {{"path", bundle + "/root"}};
    spec["process"]["terminal"] = false;
    spec["process"]["args"] = {"/bin/sh", "-c", commands};
    spec["linux"]["cgroupsPath"] = cgroups.pathOf(uid) + "/made";
    for (const auto& [name, value] : admitted[who.pod].environment) {
      spec["process"]["env"].push_back(name + "=" + value);
    }
    std::map<std::string, std::string> mounts = admitted[who.pod].mounts;
    const std::string programs = fs::path(binary("guard_tenant")).parent_path();
    for (const std::string& folder : {std::string("/usr"), std::string("/bin"), std::string("/lib"),
                                      std::string("/lib64"), programs}) {
      mounts.emplace(folder, folder);
    }
    for (const auto& [inside, outside] : mounts) {
      if (!fs::exists(outside)) continue;
      spec["mounts"].push_back({{"destination", inside},
                                {"source", outside},
                                {"type", "bind"},
                                {"options", {"rbind", "ro"}}});
    }
    std::ofstream(bundle + "/config.json") << spec;
    // Where runc looks for cgroups. A root in memory alone, as in qemu, is none that it can leave.
    const Finished ran =
        run({"/bin/sh", "-c",
             "mount -o bind " + cgroups.place() + " /sys/fs/cgroup && " + "exec runc --root " +
                 bundle + "/state run --no-pivot --bundle " + bundle + " qgpu-guarded 2>&1"});
    EXPECT_EQ(::umount2("/sys/fs/cgroup", MNT_DETACH), 0);
    return ran.output;
  }

  KubeletCgroups cgroups;
};

TEST_F(GuardedPods, AProgramHasItsCardWhenItHasAttachedAndNotBefore) {
  cgroups.makeBurstable("u1-1");
  startPod("u1-1", "sim-0");
  if (HasFatalFailure()) return;
  EXPECT_EQ(opens("u1-1", kZero), EPERM);
  EXPECT_EQ(attachesAndOpens("u1-1", kZero), 0);
  EXPECT_EQ(attachesAndOpens("u1-1", kFull), EPERM) << "that is no card of its";
  EXPECT_EQ(opens("u1-1", "/dev/null"), 0) << "what is no card's is not judged";
}

// What a runtime does for a container is judged as well: it makes nodes, and executes programs that
// are linked statically.
TEST_F(GuardedPods, AContainerOfRuncStartsAndHasItsCardWhenItHasAttached) {
  if (run({"runc", "--version"}).status != 0) GTEST_SKIP() << "no runc is installed here";
  cgroups.makeBurstable("u1-1");
  startPod("u1-1", "sim-0");
  if (HasFatalFailure()) return;
  const std::string tenant = binary("guard_tenant");
  EXPECT_EQ(inRunc("u1-1", tenant + " " + kZero + "; echo without $?; " + tenant + " " + kZero +
                               " attach; echo attached $?; " + tenant + " " + kFull +
                               " attach; echo other $?"),
            "without 1\nattached 0\nother 1\n")
      << manager->log();
}

TEST_F(GuardedPods, OfTwoPodsEachHasItsOwnCardAndOneWithoutCardsIsNotJudged) {
  cgroups.makeBurstable("u1-1");
  cgroups.makeGuaranteed("u2-2");
  cgroups.makeBurstable("u3-3");
  startPod("u1-1", "sim-0");
  startPod("u2-2", "sim-1", kSecond);
  if (HasFatalFailure()) return;
  EXPECT_EQ(opens("u2-2", kFull, kSecond), EPERM);
  EXPECT_EQ(attachesAndOpens("u2-2", kFull, kSecond), 0);
  EXPECT_EQ(attachesAndOpens("u2-2", kZero, kSecond), EPERM);
  EXPECT_EQ(opens("u3-3", kZero), 0);
}

TEST_F(GuardedPods, AContainerWhosePodHasNoCgroupDoesNotStart) {
  bindPod("u1-1", "sim-0", 30, 4);
  const std::string said = start({{"qgpu-core", 30}, {"qgpu-memory", 4}});
  EXPECT_NE(said.find("the guard finds no cgroup of pod u1-1"), std::string::npos) << said;
  EXPECT_FALSE(told("QGPURefused").is_null());
  cgroups.makeGuaranteed("u1-1");
  EXPECT_EQ(kubelet.startContainer(kMain).error, "");
  EXPECT_EQ(opens("u1-1", kZero), EPERM);
}

TEST_F(GuardedPods, ItHoldsWhileNoManagerRunsAndTheNextOneGoesOn) {
  cgroups.makeBurstable("u1-1");
  startPod("u1-1", "sim-0");
  if (HasFatalFailure()) return;
  manager->kill();
  EXPECT_EQ(opens("u1-1", kZero), EPERM);
  manager->start();
  EXPECT_EQ(opens("u1-1", kZero), EPERM);
  EXPECT_EQ(attachesAndOpens("u1-1", kZero), 0);
}

TEST_F(GuardedPods, AGuardThatIsNewJudgesPodsThatRunAndLetsInWhoHadAttached) {
  cgroups.makeBurstable("u1-1");
  startPod("u1-1", "sim-0");
  if (HasFatalFailure()) return;
  const std::string go = dir / "go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  Child stays(cgroups.inPod("u1-1", {binary("guard_stays"), kZero, manager->attachSocket(),
                                     admitted[kMain.pod].token(), go}));
  ASSERT_TRUE(eventually([&] { return stays.output() == "attached\n"; })) << stays.output();
  manager->kill();
  ASSERT_TRUE(Guard::remove(guardFolderOf(*manager)));
  EXPECT_EQ(opens("u1-1", kZero), 0) << "there is none";
  manager->start();
  EXPECT_TRUE(eventually([&] { return opens("u1-1", kZero) == EPERM; })) << manager->log();
  std::ofstream(go) << "go\n";
  EXPECT_EQ(stays.wait().value_or(-1), 0) << stays.output();
}

}  // namespace
}  // namespace qgpu::e2e::guarded_pods_test
