// What the kubelet plugin decides without a kubelet: ids, which devices go together, whose they
// are, what lies on disk for a container, and when a container is over.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "services/kubernetes/device_plugin/device_ids.h"
#include "services/kubernetes/device_plugin/placeholders.h"
#include "services/kubernetes/device_plugin/pod_devices.h"
#include "services/kubernetes/device_plugin/reconciler.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::kubelet_core_test {
namespace {

using Ids = std::vector<std::string>;

const std::vector<PluginCard> kTwoCards = {{"sim-0", gibibytes(16), true},
                                           {"sim-1", gibibytes(24), false}};

Ids idsOf(const std::string& card, Resource resource, std::uint32_t from, std::uint32_t to) {
  Ids ids;
  for (std::uint32_t i = from; i < to; ++i) ids.push_back(deviceId(card, resource, i));
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string contentOf(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// --- ids ---

TEST(DeviceIds, ACardHasAHundredOfCoreAndOneForEachGibibyte) {
  const auto core = devicesOf(kTwoCards, Resource::Core, MemoryUnit::GiB);
  ASSERT_TRUE(core.ok());
  ASSERT_EQ(core->size(), 200u);
  EXPECT_EQ((*core)[17], (Device{"sim-0_c17", true}));
  EXPECT_EQ((*core)[100], (Device{"sim-1_c0", false}));
  const auto memory = devicesOf(kTwoCards, Resource::Memory, MemoryUnit::GiB);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->size(), 40u);
  EXPECT_EQ(memory->back(), (Device{"sim-1_m23", false}));
  const auto greedy = devicesOf(kTwoCards, Resource::Greedy, MemoryUnit::GiB);
  ASSERT_TRUE(greedy.ok());
  EXPECT_EQ(greedy->front().id, "sim-0_g0");
}

TEST(DeviceIds, PartOfAGibibyteIsNoDevice) {
  const auto memory =
      devicesOf({{"t4", mebibytes(15'109), true}}, Resource::Memory, MemoryUnit::GiB);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->size(), 14u);
}

TEST(DeviceIds, MebibytesAreRefusedBeyondWhatKubeletCanBeTold) {
  const std::vector<PluginCard> small = {{"a", mebibytes(4000), true}};
  EXPECT_TRUE(devicesOf(small, Resource::Memory, MemoryUnit::MiB).ok());
  const std::vector<PluginCard> large = {{"a", mebibytes(4001), true}};
  const auto refused = devicesOf(large, Resource::Memory, MemoryUnit::MiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("4001"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("--memory-unit=GiB"), std::string::npos);
}

TEST(DeviceIds, FitKubeletsLimitAndTellTheCardWhateverItsNameIs) {
  const std::string uuid = "GPU-fef8089b-4820-abfc-e83e-94318197576e";
  EXPECT_EQ(deviceId(uuid, Resource::Memory, 3), uuid + "_m3");
  const std::string longName = "opencl-" + std::string(80, 'x');
  const std::string other = longName + "y";
  for (const std::string& card : {uuid, longName, other}) {
    const std::string id = deviceId(card, Resource::Memory, 2'097'151);
    EXPECT_LE(id.size(), kDeviceIdMax);
    EXPECT_EQ(cardOfDevice(id), cardWord(card));
  }
  EXPECT_NE(cardWord(longName), cardWord(other));
  for (const char* notOurs : {"", "sim-0", "sim-0_", "sim-0_c", "sim-0_x1", "sim-0_c1a"}) {
    EXPECT_EQ(cardOfDevice(notOurs), "") << notOurs;
  }
}

// --- which go together ---

TEST(Preferred, TakesTheFullestCardThatSuffices) {
  const Ids free = idsOf("a", Resource::Core, 0, 50) + idsOf("b", Resource::Core, 0, 30);
  const auto chosen = preferredDevices(free, {}, 20);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, idsOf("b", Resource::Core, 0, 20));
}

TEST(Preferred, StaysOnTheCardOfWhatMustBeIncluded) {
  const Ids free = idsOf("a", Resource::Core, 0, 50) + idsOf("b", Resource::Core, 0, 30);
  const Ids must = idsOf("a", Resource::Core, 7, 9);
  const auto chosen = preferredDevices(free, must, 5);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, must + idsOf("a", Resource::Core, 0, 3));
}

TEST(Preferred, WholeCardsAreWholeCards) {
  const Ids free = idsOf("a", Resource::Core, 0, 100) + idsOf("b", Resource::Core, 0, 99) +
                   idsOf("c", Resource::Core, 0, 100);
  const auto chosen = preferredDevices(free, {}, 200);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, idsOf("a", Resource::Core, 0, 100) + idsOf("c", Resource::Core, 0, 100));
}

TEST(Preferred, RefusesWhatIsNotThere) {
  EXPECT_FALSE(preferredDevices(idsOf("a", Resource::Core, 0, 4), {}, 5).ok());
  EXPECT_FALSE(preferredDevices({}, idsOf("a", Resource::Core, 0, 4), 3).ok());
}

// --- whose they are ---

ContainerDevices container(const std::string& name, const Ids& core, const Ids& memory) {
  ContainerDevices listed{{"default", "pod", name}, {}};
  if (!core.empty()) listed.ids[Resource::Core] = sortedIds(core);
  if (!memory.empty()) listed.ids[Resource::Memory] = sortedIds(memory);
  return listed;
}

TEST(PodDevices, TheContainerWithExactlyTheseIsTheOwnerInWhateverOrderTheyCome) {
  const std::vector<ContainerDevices> listed = {
      container("one", idsOf("a", Resource::Core, 0, 10), idsOf("a", Resource::Memory, 0, 2)),
      container("two", idsOf("a", Resource::Core, 10, 20), idsOf("a", Resource::Memory, 2, 4))};
  Ids asked = idsOf("a", Resource::Core, 10, 20);
  std::swap(asked.front(), asked.back());
  const auto owner = ownerOf(listed, Resource::Core, asked);
  ASSERT_TRUE(owner.ok());
  EXPECT_EQ(owner->name.container, "two");
  EXPECT_EQ(owner->counts.at(Resource::Memory), 2u);
}

// A card counts when all of its devices do, of every resource that kubelet was told of.
TEST(PodDevices, ACardIsCountedWithTheLastOfItsDevices) {
  const std::vector<PluginCard> cards = {{"sim-0", gibibytes(2)}, {"sim-1", gibibytes(2)}};
  const std::vector<Resource> told = {Resource::Core, Resource::Memory};
  CountedDevices counted;
  const auto now = [&] { return countedCards(cards, told, MemoryUnit::GiB, counted); };
  EXPECT_TRUE(now().empty());
  for (const Resource resource : told) {
    const auto devices = devicesOf(cards, resource, MemoryUnit::GiB);
    for (const Device& device : *devices) counted[resource].push_back(device.id);
    counted[resource] = sortedIds(counted[resource]);
  }
  EXPECT_EQ(now(), (std::vector<std::string>{"sim-0", "sim-1"}));
  std::erase(counted[Resource::Memory], deviceId("sim-1", Resource::Memory, 1));
  EXPECT_EQ(now(), std::vector<std::string>{"sim-0"});
  counted.erase(Resource::Core);
  EXPECT_TRUE(now().empty());
}

TEST(PodDevices, NobodyIsGuessed) {
  const std::vector<ContainerDevices> listed = {
      container("one", idsOf("a", Resource::Core, 0, 10), {})};
  const auto none = ownerOf(listed, Resource::Core, idsOf("a", Resource::Core, 50, 60));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::NotFound);
  EXPECT_FALSE(ownerOf(listed, Resource::Greedy, idsOf("a", Resource::Core, 0, 10)).ok());
}

TEST(PodDevices, WhatHasSomeOfAContainersIsAnInitContainersOfItsPod) {
  const std::vector<ContainerDevices> listed = {
      container("one", idsOf("a", Resource::Core, 0, 10), {}),
      container("two", idsOf("a", Resource::Core, 10, 15), {})};
  for (const Ids& some : {idsOf("a", Resource::Core, 0, 9), idsOf("a", Resource::Core, 5, 20)}) {
    const auto init = ownerOf(listed, Resource::Core, some);
    ASSERT_TRUE(init.ok()) << init.error().message;
    EXPECT_EQ(init->name, (ContainerName{"default", "pod", ""}));
    EXPECT_EQ(init->counts, (std::map<Resource, std::size_t>{{Resource::Core, some.size()}}));
  }
}

TEST(PodDevices, SomeOfTwoPodsAreNobodys) {
  std::vector<ContainerDevices> listed = {container("one", idsOf("a", Resource::Core, 0, 10), {}),
                                          container("one", idsOf("a", Resource::Core, 10, 20), {})};
  listed[1].name.pod = "other";
  const auto owner = ownerOf(listed, Resource::Core, idsOf("a", Resource::Core, 5, 15));
  ASSERT_FALSE(owner.ok());
  EXPECT_EQ(owner.error().code, ErrorCode::Conflict);
  EXPECT_NE(owner.error().message.find("default/other/one"), std::string::npos);
}

TEST(PodDevices, TwoOwnersAreNone) {
  const Ids same = idsOf("a", Resource::Core, 0, 10);
  const std::vector<ContainerDevices> listed = {container("one", same, {}),
                                                container("two", same, {})};
  const auto owner = ownerOf(listed, Resource::Core, same);
  ASSERT_FALSE(owner.ok());
  EXPECT_EQ(owner.error().code, ErrorCode::Conflict);
}

// --- on disk ---

struct Disk : ::testing::Test {
  testing::TempFolder dir;
  Placeholders placeholders{dir.path() + "/kubelet"};
  const Ids ids = idsOf("sim-0", Resource::Memory, 0, 4);
  const Grant grant{12, std::string(32, 'a'), {"default", "train-0", "main"}, {"sim-0"}};
};

TEST_F(Disk, APlaceholderIsTheSameForTheSameDevicesInAnyOrder) {
  const auto first = placeholders.prepare(Resource::Memory, ids);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto again = placeholders.prepare(Resource::Memory, Ids(ids.rbegin(), ids.rend()));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(contentOf(*first + "/devices"), "sim-0_m0\nsim-0_m1\nsim-0_m2\nsim-0_m3\n");
  EXPECT_NE(Placeholders::keyOf(Resource::Core, ids), Placeholders::keyOf(Resource::Memory, ids));
}

TEST_F(Disk, WhatItSaysIsWrittenAnewSoThatAMountedReaderKeepsItsOldFile) {
  const auto path = placeholders.prepare(Resource::Memory, ids);
  ASSERT_TRUE(path.ok());
  ASSERT_TRUE(placeholders.fill(Resource::Memory, ids, grant).ok());
  std::ifstream reader(*path + "/token");
  Grant next = grant;
  next.token = std::string(32, 'b');
  ASSERT_TRUE(placeholders.fill(Resource::Memory, ids, next).ok());
  std::string read;
  ASSERT_TRUE(std::getline(reader, read));
  EXPECT_EQ(read, grant.token);
  EXPECT_EQ(contentOf(*path + "/token"), next.token + "\n");
  EXPECT_EQ(contentOf(*path + "/settings"),
            "version=1\ntask=12\nnamespace=default\npod=train-0\ncontainer=main\ncards=sim-0\n");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*path)) files += entry.exists();
  EXPECT_EQ(files, 3u) << "something was left beside devices, settings and token";
}

TEST_F(Disk, NvidiasCardsAreNamedForTheProgramAndNobodyElsesLater) {
  Grant nvidia = grant;
  nvidia.cards = {"GPU-1", "GPU-2"};
  ASSERT_TRUE(placeholders.fill(Resource::Memory, ids, nvidia).ok());
  const std::string file =
      placeholders.pathOf(Placeholders::keyOf(Resource::Memory, ids)) + "/environment";
  EXPECT_EQ(contentOf(file),
            "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\nNVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2\n");
  ASSERT_TRUE(placeholders.prepare(Resource::Memory, ids).ok());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Disk, ANewContainerOfOldDevicesDoesNotFindTheOldToken) {
  ASSERT_TRUE(placeholders.fill(Resource::Memory, ids, grant).ok());
  const auto path = placeholders.prepare(Resource::Memory, ids);
  ASSERT_TRUE(path.ok());
  EXPECT_FALSE(std::filesystem::exists(*path + "/token"));
}

TEST_F(Disk, TheFolderIsClosedToOthersAndItsFilesAreNot) {
  ASSERT_TRUE(placeholders.fill(Resource::Memory, ids, grant).ok());
  namespace fs = std::filesystem;
  const std::string path = placeholders.pathOf(Placeholders::keyOf(Resource::Memory, ids));
  EXPECT_EQ(fs::status(dir.path() + "/kubelet").permissions(), fs::perms::owner_all);
  const auto readable = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  EXPECT_EQ(fs::status(path + "/token").permissions() & readable, readable);
}

TEST_F(Disk, ListsWhoWasStartedAndWhoWasNot) {
  EXPECT_TRUE(placeholders.list().empty());
  ASSERT_TRUE(placeholders.prepare(Resource::Core, idsOf("sim-0", Resource::Core, 0, 5)).ok());
  ASSERT_TRUE(placeholders.fill(Resource::Memory, ids, grant).ok());
  std::map<std::string, std::uint64_t> tasks;
  for (const Placeholder& p : placeholders.list()) tasks[p.key] = p.task;
  const std::string memory = Placeholders::keyOf(Resource::Memory, ids);
  EXPECT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[memory], 12u);
  placeholders.remove(memory);
  ASSERT_EQ(placeholders.list().size(), 1u);
  EXPECT_EQ(placeholders.list().front().task, 0u);
}

TEST_F(Disk, OtherDevicesOfTheSameHashAreRefused) {
  const auto path = placeholders.prepare(Resource::Memory, ids);
  ASSERT_TRUE(path.ok());
  std::ofstream(*path + "/devices") << "sim-7_m0\n";
  const auto refused = placeholders.prepare(Resource::Memory, ids);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
}

// --- when it is over ---

// Kubelet lists no init containers, and uses their devices again.
TEST(Listed, AnInitContainersPlaceholderIsWhileItsPodHasSomeOfItsDevices) {
  const Ids some = idsOf("a", Resource::Core, 0, 5);
  const std::vector<ContainerDevices> listed = {
      container("main", idsOf("a", Resource::Core, 0, 10), {})};
  Placeholder init{"core-init", 7, {"default", "pod", ""}, some};
  const std::string main = Placeholders::keyOf(Resource::Core, listed[0].ids.at(Resource::Core));
  EXPECT_EQ(listedKeys(listed, {init}), (std::set<std::string>{main, "core-init"}));
  EXPECT_EQ(listedKeys({}, {init}), std::set<std::string>());
  Placeholder before = init;  // of an earlier pod, which had the devices once
  before.owner.pod = "gone";
  Placeholder other = init;  // of a main container: kubelet would list exactly its devices
  other.owner.container = "old";
  Placeholder fresh = init;
  fresh.task = 0;
  EXPECT_EQ(listedKeys(listed, {before, other, fresh}), std::set<std::string>{main});
}

struct Over : ::testing::Test {
  Reconciler reconciler{{.goneAfter = seconds(6), .settle = seconds(30)}};
  const std::vector<Placeholder> one = {{"core-a", 7}, {"memory-a", 7}};
  const std::set<std::string> listed = {"core-a", "memory-a"};
  const std::vector<PodTask> idle = {{7, 0}};
  const std::vector<PodTask> busy = {{7, 2}};
};

TEST_F(Over, WhoIsListedStays) {
  for (int t = 0; t < 100; ++t) {
    const auto plan = reconciler.step(seconds(t), listed, one, idle);
    EXPECT_TRUE(plan.end.empty() && plan.remove.empty());
  }
}

TEST_F(Over, WhoIsListedNoMoreForLongAndHasNoProcessEndsOnce) {
  EXPECT_TRUE(reconciler.step(seconds(0), {}, one, idle).end.empty());
  EXPECT_TRUE(reconciler.step(seconds(5), {}, one, idle).end.empty());
  const auto plan = reconciler.step(seconds(6), {}, one, idle);
  EXPECT_EQ(plan.end, std::vector<std::uint64_t>{7});
  EXPECT_EQ(plan.remove, (Ids{"core-a", "memory-a"}));
  EXPECT_TRUE(reconciler.step(seconds(20), {}, {}, {}).end.empty());
}

TEST_F(Over, ProcessesThatLiveKeepIt) {
  for (int t = 0; t < 20; ++t) {
    const auto plan = reconciler.step(seconds(t), {}, one, busy);
    EXPECT_TRUE(plan.end.empty() && plan.remove.empty());
  }
  EXPECT_EQ(reconciler.step(seconds(20), {}, one, idle).end.size(), 1u);
}

TEST_F(Over, OneListedDeviceSetKeepsTheTask) {
  for (int t = 0; t < 20; ++t) {
    EXPECT_TRUE(reconciler.step(seconds(t), {"memory-a"}, one, idle).end.empty());
  }
}

TEST_F(Over, AKubeletThatCameUpEndsNobodyForAWhile) {
  reconciler.kubeletStarted(seconds(0));
  for (int t = 0; t < 30; ++t) {
    EXPECT_TRUE(reconciler.step(seconds(t), {}, one, idle).end.empty()) << t;
  }
  EXPECT_EQ(reconciler.step(seconds(30), {}, one, idle).end.size(), 1u);
}

TEST_F(Over, ATaskWithoutAPlaceholderEndsAsWell) {
  EXPECT_TRUE(reconciler.step(seconds(0), {}, {}, idle).end.empty());
  EXPECT_EQ(reconciler.step(seconds(6), {}, {}, idle).end, std::vector<std::uint64_t>{7});
}

TEST_F(Over, WhoIsListedAgainStartsAnew) {
  EXPECT_TRUE(reconciler.step(seconds(0), {}, one, idle).end.empty());
  EXPECT_TRUE(reconciler.step(seconds(4), listed, one, idle).end.empty());
  EXPECT_TRUE(reconciler.step(seconds(8), {}, one, idle).end.empty());
  EXPECT_EQ(reconciler.step(seconds(14), {}, one, idle).end.size(), 1u);
}

}  // namespace
}  // namespace qgpu::kubelet_core_test
