// A CUDA program in a container made of nothing but what Allocate named, on a node whose NVIDIA
// driver is the stand-in: device nodes by the card's minor, the driver where a loader looks, the
// library, the socket and the token. The container is a real mount namespace with a root of its
// own.

#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <iostream>
#include <linux/capability.h>
#include <set>
#include <sstream>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <thread>
#include <unistd.h>

#include "tests/e2e/kubernetes/kubelet_api.h"
#include "tests/testing/story.h"

namespace qgpu::e2e::injection_test {
namespace {

namespace fs = std::filesystem;

const std::string kCard = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
const std::string kMigCard = "GPU-5f1b1b0c-0000-4000-8000-000000000002";
const std::string kOtherCard = "GPU-5f1b1b0c-0000-4000-8000-000000000003";
constexpr unsigned kNvidiaMajor = 195;

// The root of an image: a shell, the program, and what their loader asks for.
class Root {
 public:
  explicit Root(std::string path) : path_(std::move(path)) {
    for (const char* folder : {"/usr/bin", "/usr/lib", "/usr/lib64", "/dev", "/proc", "/tmp"}) {
      fs::create_directories(path_ + folder);
    }
    for (const char* name : {"bin", "lib", "lib64"}) {
      fs::create_directory_symlink(std::string("usr/") + name, path_ + "/" + name);
    }
    add("/bin/dash", "/usr/bin/sh");
    add(QGPU_CUDA_PROGRAM, "/usr/bin/cuda_program");
    addLibrariesOf(library());  // of any image with glibc
    addLibrariesOf(QGPU_STAND_IN_DIR "/libcuda.so.1");
  }

  // Runs `commands`, lines for its shell, with what the container has; what they printed.
  Finished run(const Container& container, const std::string& hostRoot,
               const std::string& commands) {
    std::ofstream start(path_ + "/start.sh");
    for (const auto& [name, value] : container.environment) {
      start << "export " << name << "='" << value << "'\n";
    }
    start << "export QGPU_TEST_WAY=dlsym\nexec /bin/sh /commands.sh\n";
    start.close();
    std::ofstream(path_ + "/commands.sh") << commands;
    std::ostringstream enter;
    enter << "set -e\nmount --make-rprivate /\nmount --rbind /proc " << path_ << "/proc\n";
    for (const auto& [inside, outside] : container.mounts) mount(enter, outside, inside);
    for (const auto& [inside, outside] : container.deviceFiles(hostRoot)) {
      mount(enter, outside, inside);
    }
    enter << "exec chroot " << path_ << " /bin/sh /start.sh 2>&1\n";
    return testing::run({"unshare", "--mount", "/bin/sh", "-c", enter.str()});
  }

  // The same by runc, as container runtimes ask it to: each device with a rule of the cgroup that
  // allows it. A user that is root in it may make any node.
  Finished runInRunc(const Container& container, const std::string& hostRoot,
                     const std::string& commands) {
    const std::string bundle = path_ + "/..";
    const Finished made = testing::run({"runc", "spec", "--bundle", bundle});
    if (made.status != 0) return made;
    Json spec = Json::parse(contentOf(bundle + "/config.json"));
    spec["root"] = {{"path", path_}};
    spec["process"]["terminal"] = false;
    spec["process"]["args"] = {"/bin/sh", "-c", commands};
    for (auto& [kind, list] : spec["process"]["capabilities"].items()) list.push_back("CAP_MKNOD");
    Json& rules = spec["linux"]["resources"]["devices"];
    for (const auto& [inside, outside] : container.deviceFiles(hostRoot)) {
      struct stat node {};
      EXPECT_EQ(::stat(outside.c_str(), &node), 0) << outside;
      Json device = {{"type", "c"}, {"major", major(node.st_rdev)}, {"minor", minor(node.st_rdev)}};
      Json rule = device;
      rule.update({{"allow", true}, {"access", "rw"}});
      rules.push_back(rule);
      device.update({{"path", inside}, {"fileMode", node.st_mode & 07777}});
      spec["linux"]["devices"].push_back(device);
    }
    std::ofstream(bundle + "/config.json") << spec;
    const std::string name = "qgpu-injection-" + std::to_string(::getpid());
    return testing::run(
        {"/bin/sh", "-c", "exec runc run --bundle " + bundle + " " + name + " 2>&1"});
  }

  void addLibrariesOf(const std::string& file) {
    std::istringstream lines(testing::run({"ldd", file}).output);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t from = line.find('/');
      if (from == std::string::npos) continue;
      const std::string library = line.substr(from, line.find(' ', from) - from);
      fs::create_directories(fs::path(path_ + library).parent_path());
      fs::copy_file(library, path_ + library, fs::copy_options::skip_existing);
    }
  }

 private:
  void add(const std::string& file, const std::string& to) {
    fs::copy_file(file, path_ + to);
    addLibrariesOf(file);
  }
  // A place for it, as runtimes make one, and the mount, read-only.
  void mount(std::ostream& out, const std::string& from, const std::string& inside) {
    const std::string to = path_ + inside;
    fs::create_directories(fs::is_directory(from) ? fs::path(to) : fs::path(to).parent_path());
    if (!fs::is_directory(from) && !fs::exists(to)) std::ofstream{to};
    out << "mount --bind " << from << " " << to << "\nmount -o remount,bind,ro " << to << "\n";
  }

  std::string path_;
};

struct Injection : KubeletApi {
  Injection() {
    backend = "nvidia";
    environment["LD_LIBRARY_PATH"] = QGPU_STAND_IN_DIR;
    environment["QGPU_STAND_IN_CARDS"] = dir.path() + "/cards";
    std::ofstream(dir.path() + "/cards") << kCard << "|Tesla T4|15843721216|0|0|0|0|0\n"
                                         << kMigCard << "|A100|42949672960|0|1|0|0|0\n"
                                         << kOtherCard << "|Tesla T4|15843721216|0|0|0|0|0\n";
    pluginConfig = ", hostPrefix = \"" + host() + "\"";
    fs::create_directories(host() + "/dev");
    unsigned minor = 0;  // no driver of this machine has the others
    for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidia-uvm", "nvidia-uvm-tools",
                             "nvidiactl", "nvidia-modeset"}) {
      const std::string node = host() + "/dev/" + name;
      ::mknod(node.c_str(), S_IFCHR, ::makedev(kNvidiaMajor, minor++));
      ::chmod(node.c_str(), 0666);
    }
    tellMinor("0000:3b:00.0", kMigCard, 0);
    tellMinor("0000:af:00.0", kCard, 1);
    tellMinor("0000:d8:00.0", kOtherCard, 2);
  }
  std::string host() const { return dir.path() + "/host"; }
  void tellMinor(const std::string& bus, const std::string& uuid, int minor) {
    const std::string folder = host() + "/proc/driver/nvidia/gpus/" + bus;
    fs::create_directories(folder);
    std::ofstream(folder + "/information")
        << "GPU UUID: \t " << uuid << "\nDevice Minor: \t " << minor << "\n";
  }
  // Where it stands why containers get the nodes of all shared cards, for `doctor`.
  std::string wideNote() const { return manager->runDir() + "/kubelet/all-nodes"; }
  std::string filesDir() const {
    return fs::path(manager->database()).parent_path().string() + "/kubelet";
  }
  // As the installer copies the node's driver.
  void copyDriver() {
    fs::create_directories(filesDir() + "/driver");
    for (const std::string name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
      fs::copy_file(std::string(QGPU_STAND_IN_DIR) + "/" + name, filesDir() + "/driver/" + name);
    }
    const std::string tool = filesDir() + "/driver/nvidia-smi";
    std::ofstream(tool) << "#!/bin/sh\necho 'tool runs'\n";
    fs::permissions(tool, fs::perms::owner_all);
  }
  Container startPod(const std::string& card = kCard, const std::string& uid = "u1",
                     const ContainerName& who = kMain) {
    bindPod(uid, card, 50, 4, "", who);
    EXPECT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}, who), "");
    return admitted[who.pod];
  }
  // Of the nodes below /dev that it has, those of cards.
  std::set<std::string> cardNodes(const Container& container) const {
    std::set<std::string> nodes;
    for (const auto& [inside, outside] : container.deviceFiles(host())) {
      if (std::isdigit(static_cast<unsigned char>(inside.back())) != 0) nodes.insert(inside);
    }
    return nodes;
  }
  // Allocates within the quota and beyond it.
  static constexpr const char* kProgram =
      "echo \"cards $CUDA_VISIBLE_DEVICES\"\n"
      "CUDA_VISIBLE_DEVICES=0 /bin/sh -c 'echo \"child $CUDA_VISIBLE_DEVICES\"'\n"
      "cuda_program <<END\ninit\nalloc plain 1 1073741824\nalloc plain 2 4294967296\nEND\n"
      "for file in /dev/nvidia* /dev/null-not; do [ ! -c $file ] || echo node $file; done\n"
      "nvidia-smi\n"
      "for file in /opt/qgpu/libqgpu.so /usr/lib64/libcuda.so.1; do\n"
      "  (echo x >>$file) 2>/dev/null && echo \"$file can be written\"\n"
      "done\n"
      "exit 0\n";
  static std::set<std::string> lines(const std::string& text) {
    std::set<std::string> all;
    std::istringstream in(text);
    const std::string refused = "qgpu: 4096 MiB refused: 1024 of 4096 MiB in use; ask for ";
    for (std::string line; std::getline(in, line);) {
      all.insert(line.starts_with(refused) ? "refused" : line);
    }
    return all;
  }
  void expectRuns(const Container& container) {
    const Finished ran = Root(dir.path() + "/root").run(container, host(), kProgram);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(
        lines(ran.output),
        (std::set<std::string>{"cards " + kCard, "child " + kCard, "0", "2", "refused", "tool runs",
                               "node /dev/nvidia-uvm", "node /dev/nvidia-uvm-tools",
                               "node /dev/nvidia1", "node /dev/nvidiactl"}))
        << ran.output;
    const Json task = manager->task("web/train-0/main");
    EXPECT_GE(task["mem_peak_bytes"].get<std::uint64_t>(), 1u << 30) << "it was of this task";
    const std::string told = this->told("QGPUMemoryOverrun", "u1")["message"];
    EXPECT_TRUE(told.starts_with("container main: 1 allocations failed so far")) << told;
  }
};

TEST_F(Injection, AProgramWithNothingButWhatAllocateNamedReachesItsCardThroughTheLibrary) {
  copyDriver();
  const Container container = startPod();
  EXPECT_EQ(container.environment.at("NVIDIA_VISIBLE_DEVICES"), "void")
      << "a runtime of NVIDIA's need not bring what is here";
  EXPECT_FALSE(container.environment.contains("LD_LIBRARY_PATH")) << "the image's own stays";
  expectRuns(container);
}

// kubelet puts the pod's variables after the plugin's.
TEST_F(Injection, APodThatSetsTheVariablesItselfIsContainedAllTheSame) {
  copyDriver();
  Container container = startPod();
  for (const char* name : {"LD_PRELOAD", "OPENCL_LAYERS", "QGPU_SOCKET", "QGPU_TOKEN_FILE"}) {
    ASSERT_TRUE(container.environment.contains(name));
    container.environment[name] = "";
  }
  expectRuns(container);
}

TEST_F(Injection, ALibraryThatAPodPreloadsIsThereBesideOurs) {
  copyDriver();
  Container container = startPod();
  const std::string library = "/usr/lib/own.so";
  Root root(dir.path() + "/root");
  fs::copy_file(QGPU_STAND_IN_DIR "/libnvidia-ml.so.1", dir.path() + "/root" + library);
  container.environment["LD_PRELOAD"] = library;
  const Finished ran =
      root.run(container, host(), "while read -r line; do echo $line; done </proc/$$/maps\n");
  EXPECT_NE(ran.output.find(library), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("/opt/qgpu/libqgpu.so"), std::string::npos) << ran.output;
}

const ContainerName kSecond{"web", "train-1", "main"};
using Nodes = std::set<std::string>;

TEST_F(Injection, EachContainerHasTheNodesOfItsOwnCardsAlone) {
  copyDriver();
  const Container first = startPod();
  const Container second = startPod(kOtherCard, "u2", kSecond);
  EXPECT_EQ(cardNodes(first), Nodes{"/dev/nvidia1"});
  EXPECT_EQ(cardNodes(second), Nodes{"/dev/nvidia2"});
  for (const auto& [inside, outside] : second.deviceFiles(host())) {
    struct stat copy {};
    struct stat real {};
    ASSERT_EQ(::stat(outside.c_str(), &copy), 0);
    ASSERT_EQ(::stat((host() + inside).c_str(), &real), 0);
    EXPECT_EQ(copy.st_rdev, real.st_rdev) << inside;
    EXPECT_EQ(copy.st_mode, real.st_mode) << inside;
  }
  EXPECT_FALSE(fs::exists(wideNote()));
}

TEST_F(Injection, BeforeItStartsItHasNoCardsNode) {
  copyDriver();
  bindPod("u1", kCard, 50, 4);
  const auto answer = kubelet.admit(kMain, {{"qgpu-core", 50}, {"qgpu-memory", 4}});
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_EQ(cardNodes(Container(answer)), Nodes{});
}

TEST_F(Injection, WholeCardsAreAllThere) {
  copyDriver();
  bindPod("u1", kCard, 200, 0);
  Json pod = api.find("pods", "web", "train-0");
  pod["metadata"]["annotations"]["qgpu.io/assigned"] = Json{{"main", {kCard, kOtherCard}}}.dump();
  pod["spec"]["containers"][0]["resources"]["limits"].erase(std::string(kPrefix) + "/qgpu-memory");
  api.put("pods", pod);
  ASSERT_EQ(start({{"qgpu-core", 200}}), "");
  EXPECT_EQ(cardNodes(admitted[kMain.pod]), (Nodes{"/dev/nvidia1", "/dev/nvidia2"}));
}

// As after a boot: kubelet has kept what Allocate said, and the run dir is empty.
TEST_F(Injection, ItsNodesAreMadeAgainWhereverItStartsAgain) {
  copyDriver();
  const Container container = startPod();
  fs::remove_all(manager->runDir() + "/kubelet");
  EXPECT_EQ(kubelet.startContainer(kMain).error, "");
  EXPECT_EQ(cardNodes(container), Nodes{"/dev/nvidia1"});
}

// The whole way: what a container runtime makes of the answers, in a cgroup of this kernel's.
TEST_F(Injection, TheKernelLetsItOpenItsOwnCardAndNoOther) {
  if (testing::run({"runc", "--version"}).status != 0) GTEST_SKIP() << "no runc is installed here";
  copyDriver();
  const Container container = startPod();
  Root root(dir.path() + "/root");
  fs::copy_file("/bin/mknod", dir.path() + "/root/usr/bin/mknod");
  root.addLibrariesOf("/bin/mknod");
  const Finished ran = root.runInRunc(container, host(), R"(
    mknod /tmp/other c 195 2
    for node in /dev/nvidia1 /dev/nvidiactl /tmp/other; do (: <$node) 2>&1; done
    exit 0)");
  ASSERT_EQ(ran.status, 0) << ran.output;
  // Without the driver there is nothing behind a node that may be opened.
  EXPECT_EQ(
      lines(ran.output),
      (std::set<std::string>{"/bin/sh: 3: cannot open /dev/nvidia1: No such device or address",
                             "/bin/sh: 3: cannot open /dev/nvidiactl: No such device or address",
                             "/bin/sh: 3: cannot open /tmp/other: Operation not permitted"}));
}

struct InjectionWithoutMknod : Injection {
  // What the manager may is what the thread may that starts it, and with that it ends.
  void SetUp() override {
    std::promise<void> started;
    parent = std::thread([this, &started] {
      ASSERT_EQ(::prctl(PR_CAPBSET_DROP, CAP_MKNOD), 0);
      Injection::SetUp();
      started.set_value();
      over.get_future().wait();
    });
    started.get_future().wait();
  }
  void TearDown() override {
    manager.reset();
    over.set_value();
    parent.join();
  }
  std::promise<void> over;
  std::thread parent;
};

TEST_F(InjectionWithoutMknod, ItGetsTheNodesOfAllSharedCardsAndItIsSaidOnce) {
  copyDriver();
  const Container container = startPod();
  EXPECT_EQ(cardNodes(container), (Nodes{"/dev/nvidia1", "/dev/nvidia2"}));
  EXPECT_EQ(cardNodes(startPod(kOtherCard, "u2", kSecond)),
            (Nodes{"/dev/nvidia1", "/dev/nvidia2"}));
  EXPECT_NE(contentOf(wideNote()).find("CAP_MKNOD"), std::string::npos);
  const std::string log = manager->log();
  const std::size_t said = log.find(" card-nodes ");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find(" card-nodes ", said + 1), std::string::npos) << log;
}

struct InjectionOnOldContainerd : Injection {
  InjectionOnOldContainerd() { runtime = "containerd://1.4.13"; }
};

TEST_F(InjectionOnOldContainerd, ItGetsTheNodesOfAllSharedCardsAndItIsSaid) {
  copyDriver();
  const Container container = startPod();
  EXPECT_EQ(cardNodes(container), (Nodes{"/dev/nvidia1", "/dev/nvidia2"}));
  const std::string why = contentOf(wideNote());
  EXPECT_NE(why.find("containerd://1.4.13"), std::string::npos) << why;
  EXPECT_NE(manager->log().find("containerd://1.4.13"), std::string::npos);
}

TEST_F(Injection, WhereNoDriverWasCopiedTheRuntimeIsAskedToBringIt) {
  const Container container = startPod();
  EXPECT_EQ(container.environment.at("NVIDIA_VISIBLE_DEVICES"), "all");
  EXPECT_EQ(container.environment.at("NVIDIA_DRIVER_CAPABILITIES"), "compute,utility,video");
  for (const auto& [inside, outside] : container.mounts) {
    EXPECT_EQ(inside.find("libcuda"), std::string::npos);
  }
  EXPECT_NE(contentOf(wideNote()).find("NVIDIA's container runtime"), std::string::npos);
}

// A driver container may keep them to itself.
TEST_F(Injection, WithoutDeviceNodesToGiveTheRuntimeIsAskedForBoth) {
  copyDriver();
  fs::remove_all(host() + "/dev");
  const Container container = startPod();
  EXPECT_EQ(container.environment.at("NVIDIA_VISIBLE_DEVICES"), "all");
  for (const auto& [inside, outside] : container.mounts) {
    EXPECT_EQ(inside.find("libcuda"), std::string::npos)
        << "two of them would be in each other's way";
  }
}

struct InjectionByCdi : Injection {
  InjectionByCdi() { flags = {"--cdi=" + dir.path() + "/cdi"}; }
  std::string spec() const { return dir.path() + "/cdi/qgpu.io-card.json"; }
};

TEST_F(InjectionByCdi, TheSpecSaysWhatAllocateLeavesOutAndGoesWithTheManager) {
  copyDriver();
  Container container = startPod();
  EXPECT_EQ(container.cdiDevices, std::vector<std::string>{"qgpu.io/card=all"});
  ASSERT_TRUE(fs::exists(spec()));
  container.addCdi(Json::parse(contentOf(spec())));
  expectRuns(container);
  EXPECT_EQ(manager->stop(), 0);
  EXPECT_FALSE(fs::exists(spec()));
}

const testing::Before before("injection", [](char**) -> std::string {
  const bool may =
      ::geteuid() == 0 && run({"unshare", "--mount", "mount", "--make-rprivate", "/"}).status == 0;
  return may ? "" : "mount namespaces need root, and a kernel that allows them";
});

}  // namespace
}  // namespace qgpu::e2e::injection_test
