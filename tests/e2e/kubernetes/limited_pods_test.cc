// Pods on NVIDIA's cards whose driver limits a cgroup's memory itself: what a manager has it do.
// API server and kubelet are played, NVML is a stand-in, the cgroups are real and named as kubelet
// names them.

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/e2e/kubernetes/claims_world.h"
#include "tests/e2e/kubernetes/kubelet_api.h"
#include "tests/e2e/kubernetes/kubelet_cgroups.h"

namespace qgpu::e2e::limited_pods_test {
namespace {

constexpr const char* kCard = "GPU-00000000-0000-0000-0000-000000000001";

std::string gib(std::int64_t count) {
  return std::to_string(count << 30);
}

// NVIDIA's driver with one card, as nvml.cc in tests/cuda_stand_in reads it.
class Driver {
 public:
  Driver() { becomes(""); }
  // With a line that makes it unkind. Whole or not at all: others read it at any time.
  void becomes(const std::string& unkind) {
    std::ofstream(folder_ / "cards.next") << unkind << (unkind.empty() ? "" : "\n") << kCard
                                          << "|Stand-in GPU|17179869184|0|0|0|0|0\n";
    std::filesystem::rename(folder_ / "cards.next", folder_ / "cards");
  }
  Environment withLimits() const {
    Environment all = withoutLimits();
    all["QGPU_STAND_IN_LIMITS"] = folder_ / "limits";
    return all;
  }
  Environment withoutLimits() const {
    return {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR}, {"QGPU_STAND_IN_CARDS", folder_ / "cards"}};
  }
  // Of the pod's cgroup, in bytes; empty: none.
  std::string limitOf(const std::string& uid) const {
    std::ifstream in(folder_ / "limits");
    for (std::string line; std::getline(in, line);) {
      const std::string start = "/pod" + uid + "|" + kCard + "|0|";
      const std::size_t at = line.find(start);
      if (at != std::string::npos) return line.substr(at + start.size());
    }
    return "";
  }
  void forgetLimits() { std::filesystem::remove(folder_ / "limits"); }

 private:
  TempFolder folder_{"driver"};
};

struct LimitedPods : KubeletApi {
  void begin(const Environment& drivers) {
    if (const std::string why = cgroups.mount(); !why.empty()) GTEST_SKIP() << why;
    backend = "nvidia";
    flags = {"--suspend=gate"};
    environment = drivers;
    KubeletApi::SetUp();
  }
  void SetUp() override { begin(driver.withLimits()); }
  void TearDown() override {
    if (manager) manager->stop();
  }
  std::string startPod(const std::string& uid) {
    cgroups.makeBurstable(uid);
    bindPod(uid, kCard, 30, 4);
    return start({{"qgpu-core", 30}, {"qgpu-memory", 4}});
  }
  std::size_t logged(const std::string& what) {
    const std::string log = manager->log();
    std::size_t count = 0;
    for (std::size_t at = log.find(what); at != log.npos; at = log.find(what, at + 1)) ++count;
    return count;
  }

  Driver driver;
  KubeletCgroups cgroups;
};

struct PodsOfAnOlderDriver : LimitedPods {
  void SetUp() override { begin(driver.withoutLimits()); }
};

TEST_F(LimitedPods, APodHasItsQuotaBeforeItsContainerStartsAndNoLimitAfterItsEnd) {
  ASSERT_EQ(startPod("u1-1"), "") << manager->log();
  EXPECT_EQ(driver.limitOf("u1-1"), gib(4)) << manager->log();
  phase("Succeeded");
  EXPECT_TRUE(eventually([&] { return driver.limitOf("u1-1").empty(); })) << manager->log();
  EXPECT_TRUE(manager->tasks().empty());
}

TEST_F(LimitedPods, TheNextManagerSetsItAgain) {
  ASSERT_EQ(startPod("u1-1"), "") << manager->log();
  manager->kill();
  EXPECT_EQ(driver.limitOf("u1-1"), gib(4)) << "it outlives a manager";
  driver.forgetLimits();
  manager->start();
  EXPECT_TRUE(eventually([&] { return driver.limitOf("u1-1") == gib(4); })) << manager->log();
}

TEST_F(LimitedPods, APodWhoseLimitIsRefusedStartsAndTheLogSaysWhyOnce) {
  driver.becomes("!limits|4");
  ASSERT_EQ(startPod("u1-1"), "") << manager->log();
  EXPECT_EQ(driver.limitOf("u1-1"), "");
  EXPECT_EQ(kubelet.startContainer(kMain).error, "");
  EXPECT_EQ(logged("pod-not-limited"), 1u) << manager->log();
  EXPECT_EQ(manager->task("web/train-0/main")["mem_bytes"], 4LL << 30);
}

TEST_F(PodsOfAnOlderDriver, StartAsEverAndTheLogSaysWhyTheyHaveNoLimits) {
  ASSERT_EQ(startPod("u1-1"), "") << manager->log();
  EXPECT_EQ(driver.limitOf("u1-1"), "");
  EXPECT_EQ(logged("no-pod-limits"), 1u) << manager->log();
  EXPECT_EQ(logged("pod-not-limited"), 0u);
}

struct LimitedClaims : Claims {
  void SetUp() override {
    if (const std::string why = cgroups.mount(); !why.empty()) GTEST_SKIP() << why;
    playNodes();
    start({"--cards=nvidia", "--suspend=gate"}, driver.withLimits());
  }
  void TearDown() override {
    if (manager) manager->stop();
  }
  // What the kernel says of the card's node, without which its claims are not prepared.
  void playNodes() {
    const std::string host = dir.path() + "/host";
    const std::string card = host + "/proc/driver/nvidia/gpus/0000:3b:00.0";
    std::filesystem::create_directories(card);
    std::ofstream(card + "/information") << "GPU UUID: \t " << kCard << "\nDevice Minor: \t 0\n";
    std::filesystem::create_directories(host + "/dev");
    constexpr unsigned kMajor = 195;
    ::mknod((host + "/dev/nvidia0").c_str(), S_IFCHR, ::makedev(kMajor, 0));
    ::mknod((host + "/dev/nvidiactl").c_str(), S_IFCHR, ::makedev(kMajor, 255));
    pluginConfig = ", hostPrefix = \"" + host + "\"";
  }
  Driver driver;
  KubeletCgroups cgroups;
};

TEST_F(LimitedClaims, APodHasWhatItsClaimGivesUntilThatIsGivenBack) {
  cgroups.makeBurstable("uid-p1");
  const std::string device = slice()["spec"]["devices"][0]["name"];
  allocate("train", device, {{"memory", "2Gi"}, {"core", "50"}}, "ordinary",
           Json::array({user("p1")}));
  ASSERT_EQ(prepare("train").error, "") << manager->log();
  EXPECT_EQ(driver.limitOf("uid-p1"), gib(2)) << manager->log();
  ASSERT_EQ(unprepare("train"), "") << manager->log();
  EXPECT_TRUE(eventually([&] { return driver.limitOf("uid-p1").empty(); })) << manager->log();
}

}  // namespace
}  // namespace qgpu::e2e::limited_pods_test
