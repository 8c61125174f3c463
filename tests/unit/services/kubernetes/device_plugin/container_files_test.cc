// What containers get: a folder of device nodes, and the same as a CDI spec, held against the rules
// of the published schema (0.6.0).

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <linux/capability.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <thread>
#include <unistd.h>

#include "services/kubernetes/device_plugin/cdi_spec.h"
#include "services/kubernetes/device_plugin/device_folder.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::container_files_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::vector<std::string>;

struct HostRoot : ::testing::Test {
  HostRoot() { fs::create_directories(root + "/dev"); }

  void node(const std::string& name) { std::ofstream(root + "/dev/" + name); }
  const testing::TempFolder made{"root"};
  const std::string root = made.path();
};

// --- the folder of a container's nodes ---

// What `work` says without that capability, on a thread of its own.
std::string without(unsigned capability, const std::function<std::string()>& work) {
  std::string said;
  std::thread([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    ASSERT_EQ(::syscall(SYS_capget, &header, data), 0);
    data[CAP_TO_INDEX(capability)].effective &= ~CAP_TO_MASK(capability);
    ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
    said = work();
  }).join();
  return said;
}

struct DeviceFolder : HostRoot {
  // Of a number that no driver has. False: nodes can't be made here.
  bool make(const std::string& name, unsigned minor, unsigned mode) {
    const std::string path = root + "/dev/" + name;
    return ::mknod(path.c_str(), S_IFCHR, ::makedev(195, minor)) == 0 &&
           ::chmod(path.c_str(), mode) == 0 && ::chown(path.c_str(), 12, 34) == 0;
  }
  void SetUp() override {
    if (!make("nvidia0", 0, 0666) || !make("nvidia1", 1, 0640)) {
      GTEST_SKIP() << "making device nodes needs root, and a kernel that allows it";
    }
  }
  struct stat stateOf(const std::string& path) const {
    struct stat state {};
    EXPECT_EQ(::lstat(path.c_str(), &state), 0) << path;
    return state;
  }
  Names names() const {
    Names all;
    for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  std::string folder = root + "/placeholder";
};

TEST_F(DeviceFolder, HoldsCopiesOfTheHostsNodes) {
  const mode_t umask = ::umask(077);
  ASSERT_TRUE(fillDeviceFolder(folder, root, {"/dev/nvidia1"}).ok());
  ::umask(umask);
  EXPECT_EQ(names(), Names{"nvidia1"});
  const struct stat copy = stateOf(folder + "/nvidia1");
  EXPECT_EQ(copy.st_rdev, ::makedev(195, 1));
  EXPECT_EQ(copy.st_mode, S_IFCHR | 0640u);
  EXPECT_EQ(copy.st_uid, 12u);
  EXPECT_EQ(copy.st_gid, 34u);
  EXPECT_EQ(stateOf(folder).st_mode, S_IFDIR | 0755u);
}

TEST_F(DeviceFolder, WhatAnEarlierContainerHadThereGoes) {
  ASSERT_TRUE(fillDeviceFolder(folder, root, {"/dev/nvidia0", "/dev/nvidia1"}).ok());
  ASSERT_TRUE(fillDeviceFolder(folder, root, {"/dev/nvidia1"}).ok());
  EXPECT_EQ(names(), Names{"nvidia1"});
  ASSERT_TRUE(fillDeviceFolder(folder, root, {}).ok());
  EXPECT_EQ(names(), Names{});
}

TEST_F(DeviceFolder, ANodeInAFolderOfDevIsInOneThereAndGoesWithIt) {
  fs::create_directory(root + "/dev/dri");
  ASSERT_TRUE(make("dri/renderD128", 7, 0660));
  ASSERT_TRUE(fillDeviceFolder(folder, root, {"/dev/dri/renderD128", "/dev/nvidia0"}).ok());
  EXPECT_EQ(names(), (Names{"dri", "nvidia0"}));
  EXPECT_EQ(stateOf(folder + "/dri").st_mode, S_IFDIR | 0755u);
  EXPECT_EQ(stateOf(folder + "/dri/renderD128").st_rdev, ::makedev(195, 7));
  ASSERT_TRUE(fillDeviceFolder(folder, root, {"/dev/nvidia0"}).ok());
  EXPECT_EQ(names(), Names{"nvidia0"});
}

TEST_F(DeviceFolder, WhatIsNoDeviceIsRefusedByItsName) {
  node("nvidia2");
  for (const char* name : {"/dev/nvidia2", "/dev/nvidia3"}) {
    const Status filled = fillDeviceFolder(folder, root, {name});
    ASSERT_FALSE(filled.ok());
    EXPECT_NE(filled.error().message.find(name), std::string::npos) << filled.error().message;
  }
  EXPECT_EQ(names(), Names{});
  EXPECT_FALSE(fillDeviceFolder(root + "/no/parent", root, {}).ok());
}

TEST_F(DeviceFolder, WhereNodesCantBeMadeItIsSaidWhatIsMissing) {
  const std::string why = without(CAP_MKNOD, [this] {
    const Status filled = fillDeviceFolder(folder, root, {"/dev/nvidia1"});
    return filled ? std::string("nothing") : filled.error().message;
  });
  EXPECT_EQ(why, "no copy of " + root + "/dev/nvidia1 can be made: Operation not permitted; " +
                     "qgpu-manager needs CAP_MKNOD");
}

// --- the CDI spec ---

ContainerSetup some() {
  ContainerSetup setup;
  setup.environment = {{"LD_PRELOAD", "/opt/qgpu/libqgpu.so"}};
  setup.mounts = {{"/opt/qgpu/libqgpu.so", "/var/lib/qgpu/kubelet/libqgpu-1.so"}};
  setup.deviceNodes = {"/dev/nvidia0", "/dev/nvidiactl"};
  return setup;
}

// Only these keys, and of these all `needed`.
void expectKeys(const Json& object, const std::set<std::string>& known,
                const std::set<std::string>& needed) {
  ASSERT_TRUE(object.is_object()) << object;
  for (const auto& [key, value] : object.items()) EXPECT_TRUE(known.contains(key)) << key;
  for (const std::string& key : needed) EXPECT_TRUE(object.contains(key)) << key;
}

void expectEdits(const Json& edits) {
  expectKeys(edits, {"env", "deviceNodes", "mounts", "hooks"}, {});
  EXPECT_FALSE(edits.empty()) << "a device without edits is refused";
  for (const Json& variable : edits.value("env", Json::array())) {
    EXPECT_TRUE(std::regex_match(variable.get<std::string>(), std::regex("[^=]+=.*"))) << variable;
  }
  for (const Json& node : edits.value("deviceNodes", Json::array())) {
    expectKeys(
        node,
        {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"},
        {"path"});
    EXPECT_TRUE(node["path"].get<std::string>().starts_with("/"));
    EXPECT_TRUE(std::regex_match(node.value("permissions", "r"), std::regex("[rwm]{1,3}")));
  }
  for (const Json& mount : edits.value("mounts", Json::array())) {
    expectKeys(mount, {"hostPath", "containerPath", "options", "type"},
               {"hostPath", "containerPath"});
    for (const char* path : {"hostPath", "containerPath"}) {
      EXPECT_TRUE(mount[path].get<std::string>().starts_with("/")) << mount;
    }
    for (const Json& option : mount.value("options", Json::array())) {
      EXPECT_TRUE(option.is_string() && !option.get<std::string>().empty());
    }
  }
}

TEST(CdiSpec, KeepsTheRulesOfThePublishedSchema) {
  const Json spec = Json::parse(cdiSpec(some(), "0.1.0"));
  expectKeys(spec, {"cdiVersion", "kind", "annotations", "devices", "containerEdits"},
             {"cdiVersion", "kind", "devices"});
  EXPECT_EQ(spec["cdiVersion"], "0.6.0");
  const std::string name = "[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?";
  EXPECT_TRUE(std::regex_match(spec["kind"].get<std::string>(),
                               std::regex(name + "/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")));
  for (const auto& [key, value] : spec["annotations"].items()) EXPECT_TRUE(value.is_string());
  ASSERT_TRUE(spec["devices"].is_array());
  ASSERT_FALSE(spec["devices"].empty());
  for (const Json& device : spec["devices"]) {
    expectKeys(device, {"name", "annotations", "containerEdits"}, {"name", "containerEdits"});
    EXPECT_TRUE(std::regex_match(device["name"].get<std::string>(),
                                 std::regex("[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")));
    expectEdits(device["containerEdits"]);
  }
  EXPECT_EQ(spec["kind"].get<std::string>() + "=" + spec["devices"][0]["name"].get<std::string>(),
            cdiDeviceName());
}

TEST(CdiSpec, SaysAllThatAllocateWouldAndWhoWroteIt) {
  const Json spec = Json::parse(cdiSpec(some(), "0.1.0"));
  EXPECT_EQ(spec["annotations"]["qgpu.io/version"], "0.1.0");
  const Json edits = spec["devices"][0]["containerEdits"];
  EXPECT_EQ(edits["env"], Json::array({"LD_PRELOAD=/opt/qgpu/libqgpu.so"}));
  EXPECT_EQ(edits["deviceNodes"][1]["path"], "/dev/nvidiactl");
  EXPECT_EQ(edits["mounts"][0]["hostPath"], "/var/lib/qgpu/kubelet/libqgpu-1.so");
  EXPECT_EQ(edits["mounts"][0]["options"][0], "ro");
}

TEST(CdiSpec, WhatChangesNothingIsNoDevice) {
  EXPECT_FALSE(cdiOffers(ContainerSetup{}));
  ContainerSetup nodes;
  nodes.deviceNodes = {"/dev/nvidia0"};
  EXPECT_TRUE(cdiOffers(nodes));
}

TEST_F(HostRoot, TheSpecsFolderIsMadeTheFileReplacedWholeAndTakenBack) {
  const CdiFile file(root + "/cdi");
  ASSERT_TRUE(file.write("old").ok());
  std::ifstream reader(file.path());  // as a runtime that reads while it is replaced
  ASSERT_TRUE(file.write("newer").ok());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "old");
  std::ifstream again(file.path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(again), {}), "newer");
  EXPECT_EQ(std::distance(fs::directory_iterator(root + "/cdi"), fs::directory_iterator()), 1);
  file.remove();
  EXPECT_FALSE(fs::exists(file.path()));
  const Status nowhere = CdiFile(root + "/no/parent").write("x");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("--cdi=DIR"), std::string::npos);
}

}  // namespace
}  // namespace qgpu::container_files_test
