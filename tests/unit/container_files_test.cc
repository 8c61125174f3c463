// What Allocate's answers are made of: the nodes of NVIDIA's cards, and the same as a CDI spec,
// held against the rules of the published schema (0.6.0).

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <unistd.h>

#include "services/kubernetes/device_plugin/cdi_spec.h"
#include "services/kubernetes/device_plugin/nvidia_nodes.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::vector<std::string>;

const std::string kFirst = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
const std::string kSecond = "GPU-5f1b1b0c-0000-4000-8000-000000000002";

struct HostRoot : ::testing::Test {
  HostRoot() {
    char folder[] = "/tmp/qgpu-root-XXXXXX";
    root = ::mkdtemp(folder);
    fs::create_directories(root + "/dev");
  }
  ~HostRoot() override { fs::remove_all(root); }

  void node(const std::string& name) { std::ofstream(root + "/dev/" + name); }
  // As the driver has them.
  void card(const std::string& bus, const std::string& uuid, const std::string& minor) {
    const std::string folder = root + "/proc/driver/nvidia/gpus/" + bus;
    fs::create_directories(folder);
    std::ofstream(folder + "/information")
        << "Model: \t\t Tesla T4\nIRQ:   \t\t 52\nGPU UUID: \t " << uuid
        << "\nVideo BIOS: \t 90.04.96.00.01\nDevice Minor: \t " << minor
        << "\nGPU Excluded:\t No\n";
  }
  std::string root;
};

TEST_F(HostRoot, NodesAreThoseOfTheCardsByTheirMinorsAndTheSharedOnes) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm",
                           "nvidia-uvm-tools", "nvidia-modeset", "null", "nvidiaX"}) {
    node(name);
  }
  card("0000:3b:00.0", kFirst, "1");
  card("0000:af:00.0", kSecond, "0");
  card("0000:d8:00.0", "GPU-of-another", "2");
  EXPECT_EQ(nvidiaNodes(root, {kFirst}),
            (Names{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia1", "/dev/nvidiactl"}));
  EXPECT_EQ(nvidiaNodes(root, {kSecond, kFirst}),
            (Names{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1",
                   "/dev/nvidiactl"}));
}

TEST_F(HostRoot, WithoutMinorsTheNodesOfAllCardsAreGiven) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl"}) node(name);
  card("0000:3b:00.0", kFirst, "not told");
  EXPECT_EQ(nvidiaNodes(root, {kFirst}), (Names{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}));
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
}  // namespace qgpu
