// What a subscriber hears of channels: rm_ioctl.cc in this program's own ioctl(), in front of the
// kernel's stand-in, with an attached session and a quota that always has room.

#include "services/nvidia_abi/rm_events.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include "services/guest/gate/quota.h"
#include "services/guest/rm/rm_ioctl.h"
#include "tests/testing/temp_folder.h"

// The rest of the library, as far as it is asked.
namespace qgpu::guest {

Session session;

namespace {
qgpu_gate_page gatePage{};
qgpu_report_page reportPage{};
std::uint64_t charged = 0;
}  // namespace

bool reserveOrFail(std::uint64_t bytes) {
  charged += bytes;
  return true;
}
void release(std::uint64_t bytes, std::uint32_t) {
  charged -= bytes;
}
std::uint64_t leftBytes() {
  return ~charged;
}
std::uint32_t slotOf(std::uint32_t) {
  return QGPU_SLOTS;
}
void onForkInChild(void (*)()) {}

}  // namespace qgpu::guest

namespace qgpu::guest {
namespace {

using What = RmChannelEvent::What;

std::vector<RmChannelEvent> heard;

class RmEvents : public ::testing::Test {
 protected:
  RmEvents() {
    std::filesystem::create_directory(root_ + "/dev");
    for (const char* name : {"/dev/nvidiactl", "/dev/nvidia0"}) std::ofstream(root_ + name);
    setenv("QGPU_DRIVER_ROOT", root_.c_str(), 1);
    session.gate = &gatePage;
    session.report = &reportPage;
    session.slot = &reportPage.slot[0];
    session.state.store(State::kAttached);
    heard.clear();
    onRmChannel([](const RmChannelEvent& event) { heard.push_back(event); });
    file_ = open((root_ + "/dev/nvidiactl").c_str(), O_RDWR | O_CLOEXEC);
    client_ = make(0, 0, rm::kRootClient);
    device_ = make(client_, 5, rm::kDevice, offsetof(rm::DeviceParameters, device), 3);
  }
  ~RmEvents() override {
    if (file_ >= 0) close(file_);
    onRmChannel(nullptr);
    EXPECT_EQ(charged, 0u);
  }

  template <typename Call>
  void call(std::uint32_t number, Call& arguments) {
    EXPECT_EQ(ioctl(file_, _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, number, sizeof arguments),
                    &arguments),
              0);
  }
  rm::Handle make(rm::Handle parent, rm::Handle handle, std::uint32_t objectClass,
                  std::size_t at = 0, std::uint32_t word = 0) {
    alignas(8) char parameters[368] = {};
    std::memcpy(parameters + at, &word, sizeof word);
    struct {
      rm::AllocCall call;
      std::uint64_t rights;
      std::uint32_t size, flags, status, pad;
    } wanted{};
    wanted.call = {client_, parent, handle, objectClass,
                   reinterpret_cast<std::uint64_t>(parameters)};
    wanted.size = sizeof parameters;
    call(rm::kEscAlloc, wanted);
    EXPECT_EQ(wanted.status, rm::kOk);
    return wanted.call.object;
  }
  void end(rm::Handle handle) {
    rm::FreeCall wanted{client_, 0, handle, 0};
    call(rm::kEscFree, wanted);
  }
  void schedule(rm::Handle object, std::uint8_t enable,
                std::uint32_t command = rm::kGroupSchedule) {
    std::uint8_t parameters[3] = {enable, 0, 0};
    rm::ControlCall wanted{client_, object, command, 0, reinterpret_cast<std::uint64_t>(parameters),
                           3,       0};
    call(rm::kEscControl, wanted);
  }
  // A group with a channel for kernels and one for copies.
  void makeChannels() {
    make(device_, 10, rm::kChannelGroup, rm::kGroupEngineAt, 1);
    make(10, 11, 0xc86f, rm::kChannelEngineAt, 1);
    make(10, 12, 0xc86f, rm::kChannelEngineAt, 9);
  }
  static std::vector<RmChannelEvent> alive() {
    std::vector<RmChannelEvent> all;
    eachRmChannel([](const RmChannelEvent& event,
                     void* to) { static_cast<std::vector<RmChannelEvent>*>(to)->push_back(event); },
                  &all);
    return all;
  }

  const testing::TempFolder made_{"driver"};
  const std::string root_ = made_.path();
  int file_ = -1;
  rm::Handle client_ = 0, device_ = 0;
};

TEST_F(RmEvents, ChannelsAndGroupsAreToldAsTheyAreMade) {
  makeChannels();
  ASSERT_EQ(heard.size(), 3u);
  const RmChannelEvent& copies = heard[2];
  EXPECT_EQ(copies.what, What::kMade);
  EXPECT_EQ(copies.fd, file_);
  EXPECT_EQ(copies.client, client_);
  EXPECT_EQ(copies.parent, 10u);
  EXPECT_EQ(copies.group, 10u);
  EXPECT_EQ(copies.object, 12u);
  EXPECT_EQ(copies.objectClass, 0xc86fu);
  EXPECT_EQ(copies.engine, 9u);
  EXPECT_EQ(copies.device, 3u);
  EXPECT_EQ(heard[0].engine, 1u);
  EXPECT_EQ(heard[0].objectClass, rm::kChannelGroup);
  EXPECT_EQ(alive().size(), 3u);
  for (const RmChannelEvent& each : alive()) EXPECT_EQ(each.fd, file_);
}

TEST_F(RmEvents, AChannelThatNamesNoEngineHasItsGroupsAndALoneOneHasNoGroup) {
  make(device_, 10, rm::kChannelGroup, rm::kGroupEngineAt, 3);
  make(10, 11, 0xc86f);
  make(device_, 20, 0xc86f, rm::kChannelEngineAt, 9);
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard[1].group, 10u);
  EXPECT_EQ(heard[1].engine, 3u);
  EXPECT_EQ(heard[2].group, 0u);
  EXPECT_EQ(heard[2].parent, 5u);
  EXPECT_EQ(heard[2].engine, 9u);
  for (const RmChannelEvent& each : alive()) {
    EXPECT_EQ(each.group, each.object == 11 ? 10u : 0u);
  }
}

// Another open file is not the client's, so the driver refuses.
TEST_F(RmEvents, WhatTheDriverRefusesToFreeIsToldToBeThereStill) {
  makeChannels();
  heard.clear();
  const int own = file_;
  file_ = open((root_ + "/dev/nvidiactl").c_str(), O_RDWR | O_CLOEXEC);
  end(device_);
  close(file_);
  file_ = own;
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].what, What::kKept);
  EXPECT_EQ(heard[0].object, device_);
  EXPECT_EQ(alive().size(), 3u);
}

TEST_F(RmEvents, AGroupThatIsAskedToRunIsTold) {
  makeChannels();
  heard.clear();
  schedule(10, 0);
  EXPECT_TRUE(heard.empty()) << "asked to stop";
  schedule(10, 1);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].what, What::kEnabled);
  EXPECT_EQ(heard[0].object, 10u);
}

TEST_F(RmEvents, ALoneChannelThatIsAskedToRunIsTold) {
  make(device_, 20, 0xc86f, rm::kChannelEngineAt, 9);
  heard.clear();
  schedule(20, 0, rm::kChannelSchedule);
  EXPECT_TRUE(heard.empty()) << "asked to stop";
  schedule(20, 1, rm::kChannelSchedule);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].what, What::kEnabled);
  EXPECT_EQ(heard[0].object, 20u);
}

TEST_F(RmEvents, TheEndOfWhatIsAboveEndsThemAll) {
  makeChannels();
  heard.clear();
  end(device_);
  ASSERT_EQ(heard.size(), 3u);
  for (const RmChannelEvent& each : heard) EXPECT_EQ(each.what, What::kEnded);
  EXPECT_EQ(heard[2].object, 10u) << "the group last";
  EXPECT_TRUE(alive().empty());
}

TEST_F(RmEvents, TheCloseOfTheFileEndsThemToo) {
  makeChannels();
  heard.clear();
  close(file_);
  file_ = -1;
  EXPECT_EQ(heard.size(), 3u);
  EXPECT_TRUE(alive().empty());
}

// A handler may call the driver and ask what there is: no lock is held.
TEST_F(RmEvents, AHandlerMayAskAndCall) {
  onRmChannel([](const RmChannelEvent& event) {
    if (event.what != What::kMade) return;
    heard.push_back(event);
    EXPECT_FALSE(alive().empty());
    std::uint8_t parameters[3] = {};
    rm::ControlCall stop{event.client,
                         event.object,
                         rm::kGroupSchedule,
                         0,
                         reinterpret_cast<std::uint64_t>(parameters),
                         3,
                         0};
    const unsigned long request =
        _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, rm::kEscControl, sizeof stop);
    EXPECT_EQ(driverIoctl(event.fd, request, &stop), 0);
    EXPECT_EQ(stop.status, rm::kOk);
  });
  make(device_, 10, rm::kChannelGroup, rm::kGroupEngineAt, 1);
  EXPECT_EQ(heard.size(), 1u);
}

}  // namespace
}  // namespace qgpu::guest
