// Which device nodes lead to a card, from what the kernel tells of one.

#include "services/cards/device_nodes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include "tests/testing/temp_folder.h"

namespace qgpu {
namespace {

// Literal numbers of NVIDIA's driver: its major is 195; minor 254 is nvidia-modeset, 255 nvidiactl.
class DeviceNodes : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static Card card(std::uint32_t index, int minor) {
    Card one;
    one.index = index;
    one.backend = "nvidia";
    one.minor = minor;
    return one;
  }
  static bool has(const std::vector<DeviceNode>& nodes, DeviceNode wanted) {
    return std::ranges::find(nodes, wanted) != nodes.end();
  }

  testing::TempFolder root_{"nodes"};
};

TEST_F(DeviceNodes, ACardHasItsOwnFileAndThoseOfItsDisplay) {
  write("proc/driver/nvidia/gpus/0000:3b:00.0/information",
        "Model: \t\t Tesla T4\nIRQ:   \t\t 64\nGPU UUID: \t GPU-3b\nDevice Minor: \t 1\n");
  write("sys/bus/pci/devices/0000:3b:00.0/drm/renderD128/dev", "226:128\n");
  write("sys/bus/pci/devices/0000:3b:00.0/drm/card0/dev", "226:0\n");
  write("sys/bus/pci/devices/0000:3b:00.0/drm/version", "1.0");
  const auto nodes = deviceNodes({card(0, 0), card(1, 1)}, root_.path());
  EXPECT_TRUE(has(nodes, {makedev(195, 0), 0}));
  EXPECT_TRUE(has(nodes, {makedev(195, 1), 1}));
  EXPECT_TRUE(has(nodes, {makedev(226, 128), 1}));
  EXPECT_TRUE(has(nodes, {makedev(226, 0), 1}));
  EXPECT_EQ(nodes.size(), 6u) << "with two that are shared";
}

TEST_F(DeviceNodes, WhatAllCardsShareIsNoCards) {
  write("proc/devices", "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n");
  const auto nodes = deviceNodes({card(0, 0)}, root_.path());
  EXPECT_TRUE(has(nodes, {makedev(195, 255), {}}));
  EXPECT_TRUE(has(nodes, {makedev(195, 254), {}}));
  EXPECT_TRUE(has(nodes, {makedev(510, 0), {}}));
  EXPECT_TRUE(has(nodes, {makedev(510, 1), {}}));
}

TEST_F(DeviceNodes, ACardOfNoFileHasNone) {
  EXPECT_TRUE(deviceNodes({card(0, -1)}, root_.path()).empty());
}

// As two cards of AMD, of which one is ours: the kernel's list of its compute driver's nodes, with
// literal numbers of a machine that has them.
class AmdDeviceNodes : public DeviceNodes {
 protected:
  void SetUp() override {
    card("1", "location_id 33536\ndomain 0\ndrm_render_minor 128\nunique_id 255\n");
    card("2", "location_id 34048\ndomain 1\ndrm_render_minor 129\nunique_id 256\n");
    write("proc/devices", "Character devices:\n226 drm\n511 kfd\n\nBlock devices:\n511 kfd\n");
    ours_.index = 3;
    ours_.backend = "amd";
    ours_.id = "GPU-0000000000000100";
  }
  void card(const std::string& node, const std::string& properties) const {
    const std::string folder = "sys/class/kfd/kfd/topology/nodes/" + node;
    write(folder + "/gpu_id", "51114\n");
    write(folder + "/properties", "gfx_target_version 90010\n" + properties);
  }

  Card ours_;
};

TEST_F(AmdDeviceNodes, ACardHasThoseOfItsDisplayAndAllShareTheComputeDrivers) {
  write("sys/bus/pci/devices/0001:85:00.0/drm/renderD129/dev", "226:129\n");
  write("sys/bus/pci/devices/0001:85:00.0/drm/card1/dev", "226:1\n");
  write("sys/bus/pci/devices/0000:83:00.0/drm/renderD128/dev", "226:128\n");
  const auto nodes = deviceNodes({ours_}, root_.path());
  EXPECT_TRUE(has(nodes, {makedev(226, 129), 3}));
  EXPECT_TRUE(has(nodes, {makedev(226, 1), 3}));
  EXPECT_TRUE(has(nodes, {makedev(511, 0), {}}));
  EXPECT_EQ(nodes.size(), 3u) << "none of the card that is not ours";
}

TEST_F(AmdDeviceNodes, WithoutItsPlaceOnTheBusItHasTheNodeThatTheDriverNames) {
  const auto nodes = deviceNodes({ours_}, root_.path());
  EXPECT_TRUE(has(nodes, {makedev(226, 129), 3}));
  EXPECT_EQ(nodes.size(), 2u);
}

TEST_F(AmdDeviceNodes, WhereNoCardIsOursNothingIsShared) {
  ours_.id = "GPU-0000000000000000";
  EXPECT_TRUE(deviceNodes({ours_}, root_.path()).empty());
}

TEST_F(AmdDeviceNodes, OfEachKindAtOnce) {
  const auto nodes = deviceNodes({DeviceNodes::card(0, 2), ours_}, root_.path());
  EXPECT_TRUE(has(nodes, {makedev(195, 2), 0}));
  EXPECT_TRUE(has(nodes, {makedev(226, 129), 3}));
}

TEST(CardNodes, AreReadAsTheyAreWritten) {
  const auto nodes = parseCardNodes("0:/dev/null,1:/dev/zero");
  ASSERT_TRUE(nodes) << nodes.error().message;
  ASSERT_EQ(nodes->size(), 2u);
  EXPECT_EQ((*nodes)[0], (DeviceNode{makedev(1, 3), 0}));
  EXPECT_EQ((*nodes)[1], (DeviceNode{makedev(1, 5), 1}));
}

TEST(CardNodes, EachMistakeIsNamed) {
  for (const char* text :
       {"", "0", "0:", "0:dev/null", "x:/dev/null", "-1:/dev/null", "0:/dev/null,"}) {
    const auto nodes = parseCardNodes(text);
    ASSERT_FALSE(nodes) << text;
    EXPECT_NE(nodes.error().message.find("CARD:PATH"), std::string::npos) << text;
  }
  const auto file = parseCardNodes("0:/etc/passwd");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message, "/etc/passwd is no character device");
}

}  // namespace
}  // namespace qgpu
