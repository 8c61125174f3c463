// What a tenant sees and how the library gets in: device filter, extensions, layer and preload,
// unmodified programs of the distribution, and the ELF file itself.

#include <array>
#include <cstdio>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

#include "tests/testing/child_process.h"
#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing {
namespace {

// HAZARDS 13: what is not wrapped and launches is neither listed nor handed out.
TEST(GuestFront, ExtensionsThatLaunchPastTheGateAreHidden) {
  GuestChild bare({});
  ASSERT_EQ(bare.ask("init"), "ok");
  EXPECT_EQ(bare.ask("extensions"), "listed fp64 address");
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("extensions"), "hidden fp64 none");
}

// HAZARDS 14: two cards on the machine, one in the task.
TEST(GuestFront, OnlyTheOwnCardIsVisible) {
  std::vector<std::string> two = {"POCL_DEVICES=pthread pthread"};
  GuestChild bare(two);
  EXPECT_EQ(bare.ask("devices"), "1 2");
  EXPECT_EQ(bare.ask("fromtype"), "2");
  for (std::uint32_t card : {0u, 1u}) {
    FakeManager::Options options;
    options.devices = {card};
    FakeManager manager(options);
    auto environment = tenantOf(manager);
    environment.push_back(two[0]);
    GuestChild guest(environment);
    EXPECT_EQ(guest.ask("devices"), "1 1");
    EXPECT_EQ(guest.ask("fromtype"), "1");
    ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
    EXPECT_EQ(guest.ask("launch 1"), "0");
    EXPECT_EQ(guest.ask("check"), "ok");
  }
}

TEST(GuestFront, ACardThatThisMachineLacksIsNoDeviceAndSaysWhy) {
  FakeManager::Options options;
  options.devices = {5};
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  EXPECT_EQ(guest.ask("devices"), "no-platform -1001");
  EXPECT_NE(guest.errors().find("not the card of this task"), std::string::npos);
}

// NVIDIA's OpenCL lists only the cards that CUDA_VISIBLE_DEVICES leaves, in an order of its own.
struct ByUuid {
  const char* uuids;  // of the platform's two devices: 1 and 2
  std::uint32_t place;
  std::vector<unsigned char> wanted;
  std::size_t welcomeBytes;
  const char* devices;
};
class GuestByUuid : public ::testing::TestWithParam<ByUuid> {};

TEST_P(GuestByUuid, TheOwnCardIsFoundByItsUuidWhereBothSidesHaveIt) {
  FakeManager::Options options;
  options.devices = {GetParam().place};
  options.uuidBytes = GetParam().wanted;
  options.welcomeBytes = GetParam().welcomeBytes;
  FakeManager manager(options);
  auto environment = tenantOf(manager);
  environment[0] = "OPENCL_LAYERS=" QGPU_GUEST_NOTIFY_LAYER ":" QGPU_GUEST_LIBRARY;
  environment.push_back("POCL_DEVICES=pthread pthread");
  if (*GetParam().uuids) environment.push_back(GetParam().uuids);
  GuestChild guest(environment);
  EXPECT_EQ(guest.ask("devices"), GetParam().devices) << guest.errors();
  if (GetParam().devices[0] == 'n') {
    EXPECT_NE(guest.errors().find("by its UUID; no device"), std::string::npos);
  }
}
constexpr const char* kTold = "QGPU_TEST_UUIDS=1";
std::string nameOf(const ::testing::TestParamInfo<ByUuid>& info) {
  constexpr const char* kNames[] = {"whateverItsPlace", "andNotAnother", "elseByItsPlace",
                                    "whereTheDriverHasNone", "ofAManagerOfBefore"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(
    GuestFront, GuestByUuid,
    ::testing::Values(ByUuid{kTold, 5, {2}, sizeof(qgpu_welcome), "1 1"},
                      ByUuid{kTold, 0, {3}, sizeof(qgpu_welcome), "no-platform -1001"},
                      ByUuid{kTold, 1, {}, sizeof(qgpu_welcome), "1 1"},
                      ByUuid{"", 1, {2}, sizeof(qgpu_welcome), "1 1"},
                      ByUuid{kTold, 1, {3}, QGPU_WELCOME_LEAST, "1 1"}),
    nameOf);

// HAZARDS 14: the same place, another device.
TEST(GuestFront, ADeviceOfAnotherNameThanTheManagersIsNoDeviceAndSaysWhy) {
  FakeManager::Options options;
  options.model = "Another Card 9000";
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  EXPECT_EQ(guest.ask("devices"), "no-platform -1001");
  std::string said = guest.errors();
  EXPECT_EQ(said.find("qgpu: device 0 of platform 'Portable Computing Language' is 'pthread"), 0u)
      << said;
  EXPECT_NE(said.find("' here and 'Another Card 9000' for the manager; no device"),
            std::string::npos);
}

TEST(GuestFront, ADeviceWhoseNameOnlyBeginsAsTheManagersIsNoDevice) {
  FakeManager::Options options;
  options.model = "pthread";
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  EXPECT_EQ(guest.ask("devices"), "no-platform -1001") << guest.errors();
}

TEST(GuestFront, ADeviceOfTheManagersNameIsGivenAlsoWhenThatIsCut) {
  GuestChild bare({});
  std::string name = bare.ask("name");
  ASSERT_EQ(name.find("pthread"), 0u);
  FakeManager::Options options;
  options.model = name.substr(0, QGPU_MODEL_LEN - 1);
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  EXPECT_EQ(guest.ask("devices"), "1 1") << guest.errors();
}

// HAZARDS 14: a handle of another card, however the program came by it, makes no context.
TEST(GuestFront, AContextTakesOwnDevicesAndTheirPartsOnly) {
  const std::string two = "POCL_DEVICES=pthread pthread";
  GuestChild bare({two});
  ASSERT_EQ(bare.ask("devices"), "1 2");
  ASSERT_EQ(bare.ask("foreigncontext 1"), "0");
  FakeManager manager({});
  auto environment = tenantOf(manager);
  environment.push_back(two);
  GuestChild guest(environment);
  ASSERT_EQ(guest.ask("devices"), "1 1");
  EXPECT_EQ(guest.ask("foreigncontext 0"), "0");
  EXPECT_EQ(guest.ask("foreigncontext 1"), "-33");  // CL_INVALID_DEVICE
  std::string part = guest.ask("partcontext");
  if (part.find("no-part") == 0) GTEST_SKIP() << "this driver parts no device: " << part;
  EXPECT_EQ(part, "0");
}

std::vector<std::string> preloaded(const FakeManager& manager) {
  return {"LD_PRELOAD=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=" + manager.socketPath(),
          "QGPU_TOKEN=" + FakeManager::token()};
}

void expectOneOfEach(FakeManager& manager, GuestChild& guest) {
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(manager.attaches(), 1u);
  std::uint64_t admitted = manager.slot(0).admitted;
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.slot(0).admitted, admitted + 1);
  EXPECT_EQ(manager.bytes(), 512u);
  EXPECT_EQ(guest.ask("check"), "ok");
}

TEST(GuestFront, PreloadAloneGates) {
  FakeManager manager({});
  GuestChild guest(preloaded(manager));
  expectOneOfEach(manager, guest);
}

// HAZARDS 21: both variables, one copy of the library; and two copies of it.
TEST(GuestFront, PreloadAndLayerTogetherCountOnce) {
  FakeManager manager({});
  auto environment = preloaded(manager);
  environment.push_back("OPENCL_LAYERS=" QGPU_GUEST_LIBRARY);
  GuestChild guest(environment);
  expectOneOfEach(manager, guest);
}

TEST(GuestFront, PreloadAndLayerFromTwoCopiesOfTheLibraryCountOnce) {
  FakeManager manager({});
  std::string copy = manager.socketPath() + ".libqgpu.so";
  std::ifstream in(QGPU_GUEST_LIBRARY, std::ios::binary);
  std::ofstream(copy, std::ios::binary) << in.rdbuf();
  auto environment = preloaded(manager);
  environment.push_back("OPENCL_LAYERS=" + copy);
  {
    GuestChild guest(environment);
    expectOneOfEach(manager, guest);
  }
  std::remove(copy.c_str());
}

TEST(GuestFront, PreloadWithoutATokenDoesNothing) {
  GuestChild guest({"LD_PRELOAD=" QGPU_GUEST_LIBRARY});
  ASSERT_EQ(guest.ask("init"), "ok");
  EXPECT_EQ(guest.ask("extensions"), "listed fp64 address");
  EXPECT_EQ(guest.errors(), "");
}

TEST(GuestFront, UnmodifiedClpeakRuns) {
  FakeManager manager({});
  std::vector<std::string> command = {"env"};
  for (const std::string& each : tenantOf(manager)) command.push_back(each);
  command.insert(command.end(), {"clpeak", "--kernel-latency"});
  const auto [status, text] = testing::run(command, {}, std::chrono::minutes(5));
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("Kernel launch latency"), std::string::npos) << text;
  EXPECT_EQ(text.find("failed"), std::string::npos) << text;
  EXPECT_EQ(manager.attaches(), 1u);
  EXPECT_GT(manager.slot(0).launches, 0u);
  EXPECT_TRUE(retiresAll(manager));
}

// The ELF file as another machine's loader will read it.
class Elf {
 public:
  explicit Elf(const char* path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    const auto& header = at<Elf64_Ehdr>(0);
    for (int i = 0; i < header.e_shnum; ++i) {
      const auto& section =
          at<Elf64_Shdr>(header.e_shoff + static_cast<std::size_t>(i) * header.e_shentsize);
      if (section.sh_type == SHT_DYNAMIC) readNeeded(section);
      if (section.sh_type == SHT_GNU_verneed) readVersions(section);
    }
  }
  std::set<std::string> needed, versions;

 private:
  template <typename T>
  const T& at(std::size_t offset) const {
    return *reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  const char* text(const Elf64_Shdr& user, std::size_t index) const {
    const auto& header = at<Elf64_Ehdr>(0);
    const auto& strings =
        at<Elf64_Shdr>(header.e_shoff + user.sh_link * std::size_t{header.e_shentsize});
    return bytes_.data() + strings.sh_offset + index;
  }
  void readNeeded(const Elf64_Shdr& section) {
    for (std::size_t o = 0; o < section.sh_size; o += sizeof(Elf64_Dyn)) {
      const auto& entry = at<Elf64_Dyn>(section.sh_offset + o);
      if (entry.d_tag == DT_NEEDED) needed.insert(text(section, entry.d_un.d_val));
    }
  }
  void readVersions(const Elf64_Shdr& section) {
    std::size_t file = section.sh_offset;
    for (std::size_t i = 0; i < section.sh_info; ++i) {
      const auto& need = at<Elf64_Verneed>(file);
      std::size_t entry = file + need.vn_aux;
      for (int j = 0; j < need.vn_cnt; ++j) {
        const auto& version = at<Elf64_Vernaux>(entry);
        versions.insert(text(section, version.vna_name));
        entry += version.vna_next;
      }
      file += need.vn_next;
    }
  }
  std::vector<char> bytes_;
};

TEST(GuestFront, TheLibraryNeedsNoGlibcAbove217AndNoCppRuntime) {
  Elf library(QGPU_GUEST_LIBRARY);
  EXPECT_EQ(library.needed, (std::set<std::string>{"libdl.so.2", "libpthread.so.0", "libc.so.6"}));
  ASSERT_FALSE(library.versions.empty());
  for (const std::string& version : library.versions) {
    int major = 0, minor = 0;
    ASSERT_EQ(std::sscanf(version.c_str(), "GLIBC_%d.%d", &major, &minor), 2) << version;
    EXPECT_TRUE(major == 2 && minor <= 17) << version;
  }
}

}  // namespace
}  // namespace qgpu::testing
