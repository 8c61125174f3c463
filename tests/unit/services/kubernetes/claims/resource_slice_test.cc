#include "services/kubernetes/claims/resource_slice.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "tests/testing/temp_folder.h"

namespace qgpu::resource_slice_test {
namespace {

namespace fs = std::filesystem;

SliceFacts facts() {
  SliceFacts out;
  out.node = "gpu-1.example.org";
  out.nodeUid = "7c1f";
  AnnotatedCard card;
  card.id = "GPU-fef8089b-4820-abfc-e83e-94318197576e";
  card.model = "Tesla T4";
  card.backend = "nvidia";
  card.mem = Bytes(15'843'721'216);  // 14.75 GiB
  card.suspend = schema::Suspend::RM;
  card.policy = schema::Policy::FIXED_SHARE;
  out.cards.push_back(card);
  return out;
}

// Of the first device; `path` as JSON pointers are.
std::string at(const SliceFacts& of, const std::string& path) {
  simdjson::dom::parser parser;
  const std::string json = writeSlice(of, "");
  simdjson::dom::element root;
  EXPECT_EQ(parser.parse(json).get(root), simdjson::SUCCESS) << json;
  simdjson::dom::element found;
  if (root.at_pointer(path).get(found) != simdjson::SUCCESS) return "(absent)";
  return simdjson::minify(found);
}

TEST(ResourceSlice, SaysWhoseItIs) {
  EXPECT_EQ(at(facts(), "/apiVersion"), R"("resource.k8s.io/v1")");
  EXPECT_EQ(at(facts(), "/metadata/name"), R"("gpu-1.example.org-qgpu.io")");
  EXPECT_EQ(at(facts(), "/metadata/resourceVersion"), "(absent)");
  EXPECT_EQ(at(facts(), "/metadata/ownerReferences/0/uid"), R"("7c1f")");
  EXPECT_EQ(at(facts(), "/spec/driver"), R"("qgpu.io")");
  EXPECT_EQ(at(facts(), "/spec/nodeName"), R"("gpu-1.example.org")");
  EXPECT_EQ(at(facts(), "/spec/pool"),
            R"({"name":"gpu-1.example.org","generation":1,"resourceSliceCount":1})");
  EXPECT_NE(writeSlice(facts(), "41").find(R"("resourceVersion":"41")"), std::string::npos);
}

TEST(ResourceSlice, AnOrdinaryCardIsGivenInPercentAndGib) {
  const std::string device = "/spec/devices/0";
  EXPECT_EQ(at(facts(), device + "/name"), R"("gpu-fef8089b-4820-abfc-e83e-94318197576e")");
  EXPECT_EQ(at(facts(), device + "/allowMultipleAllocations"), "true");
  EXPECT_EQ(at(facts(), device + "/attributes/model/string"), R"("Tesla T4")");
  EXPECT_EQ(at(facts(), device + "/attributes/kind/string"), R"("ordinary")");
  EXPECT_EQ(at(facts(), device + "/attributes/policy/string"), R"("fixed-share")");
  EXPECT_EQ(at(facts(), device + "/attributes/suspend/string"), R"("rm")");
  EXPECT_EQ(at(facts(), device + "/capacity/memory"),
            R"({"value":"14Gi","requestPolicy":{"default":"14Gi","validRange":)"
            R"({"min":"1Gi","max":"14Gi","step":"1Gi"}}})");
  EXPECT_EQ(at(facts(), device + "/capacity/core"),
            R"({"value":"100","requestPolicy":{"default":"100","validRange":)"
            R"({"min":"1","max":"100"}}})");
  EXPECT_EQ(at(facts(), device + "/capacity/tasks"),
            R"({"value":"4","requestPolicy":{"default":"1","validValues":["1"]}})");
  EXPECT_EQ(at(facts(), device + "/taints"), "(absent)");
}

TEST(ResourceSlice, NoDeviceDrawsFromCountersOfOthers) {
  SliceFacts several = facts();
  several.cards.push_back(several.cards[0]);
  several.cards[1].id = "GPU-2";
  several.mixed = true;
  const std::string slice = writeSlice(several, "7");
  EXPECT_NE(slice.find("allowMultipleAllocations"), std::string::npos);
  EXPECT_EQ(slice.find("sharedCounters"), std::string::npos);
  EXPECT_EQ(slice.find("consumesCounters"), std::string::npos);
}

TEST(ResourceSlice, SaysWhereACardIsPluggedInByTheNamesThatAllDriversUse) {
  SliceFacts placed = facts();
  const std::string attributes = "/spec/devices/0/attributes/resource.kubernetes.io~1";
  EXPECT_EQ(at(placed, attributes + "pciBusID"), "(absent)");
  placed.places["GPU-of-another"] = {"0000:af:00.0", "pci0000:ae", 3};
  EXPECT_EQ(at(placed, attributes + "pciBusID"), "(absent)");
  placed.places[placed.cards[0].id] = {"0000:3b:00.0", "pci0000:3a", 0};
  EXPECT_EQ(at(placed, attributes + "pciBusID"), R"({"string":"0000:3b:00.0"})");
  EXPECT_EQ(at(placed, attributes + "pcieRoot"), R"({"string":"pci0000:3a"})");
  EXPECT_EQ(at(placed, attributes + "numaNode"), R"({"int":0})");
  placed.places[placed.cards[0].id] = {"0000:3b:00.0", "", std::nullopt};
  EXPECT_EQ(at(placed, attributes + "pcieRoot"), "(absent)");
  EXPECT_EQ(at(placed, attributes + "numaNode"), "(absent)");
}

// As the kernel has it: a link into a tree that follows the bridges.
struct SysFolder : ::testing::Test {
  void device(const std::string& bus, const std::string& above, const std::string& numa) {
    const std::string target = "devices/" + above + "/" + bus;
    fs::create_directories(sys / target);
    fs::create_directories(sys / "bus/pci/devices");
    if (!numa.empty()) made.write(target + "/numa_node", numa + "\n");
    fs::create_directory_symlink("../../../" + target, sys / ("bus/pci/devices/" + bus));
  }
  PciPlace place(const std::string& bus) const { return pciPlaceOf(sys.string(), bus); }

  const testing::TempFolder made{"sys"};
  const fs::path sys = made.path();
};

TEST_F(SysFolder, TellsRootComplexAndNumaNodeOfACard) {
  device("0000:3b:00.0", "pci0000:3a/0000:3a:01.0", "1");
  EXPECT_EQ(place("0000:3b:00.0"), (PciPlace{"0000:3b:00.0", "pci0000:3a", 1}));
  device("0001:00:00.0", "pci0001:00", "-1");
  EXPECT_EQ(place("0001:00:00.0"), (PciPlace{"0001:00:00.0", "pci0001:00", std::nullopt}))
      << "a machine with one memory";
  device("0000:02:00.0", "platform/virtual", "");
  EXPECT_EQ(place("0000:02:00.0"), (PciPlace{"0000:02:00.0", "", std::nullopt}));
}

TEST_F(SysFolder, TellsNothingOfWhatIsNoAddressOrNotThere) {
  EXPECT_EQ(place("0000:99:00.0"), (PciPlace{"0000:99:00.0", "", std::nullopt}));
  for (const char* bus : {"", "../../x", "0000:3b:00", "0000:3b:00.9", "0000:3B:00.0"}) {
    EXPECT_EQ(place(bus), PciPlace()) << bus;
  }
}

TEST(ResourceSlice, OnlineTasksOfAHybridCardTakeNoCore) {
  SliceFacts mixed = facts();
  mixed.mixed = true;
  mixed.maxTasksPerCard = 7;
  EXPECT_EQ(at(mixed, "/spec/devices/0/attributes/kind/string"), R"("hybrid")");
  EXPECT_EQ(at(mixed, "/spec/devices/0/capacity/core/requestPolicy"),
            R"({"default":"0","validRange":{"min":"0","max":"100"}})");
  EXPECT_EQ(at(mixed, "/spec/devices/0/capacity/tasks/value"), R"("7")");
}

TEST(ResourceSlice, AStepFitsAboveTheLeastOrIsLeftOut) {
  SliceFacts small = facts();
  small.cards[0].mem = mebibytes(1536);
  EXPECT_EQ(at(small, "/spec/devices/0/capacity/memory/requestPolicy/validRange"),
            R"({"min":"1Gi","max":"1Gi"})");
  small.unit = MemoryUnit::MiB;
  EXPECT_EQ(at(small, "/spec/devices/0/capacity/memory/value"), R"("1536Mi")");
}

TEST(ResourceSlice, ACardThatTakesNothingNewSaysWhy) {
  SliceFacts ill = facts();
  ill.cards[0].health = schema::CardState::CORDONED;
  EXPECT_EQ(at(ill, "/spec/devices/0/taints"),
            R"([{"key":"qgpu.io/unavailable","value":"cordoned","effect":"NoSchedule"}])");
}

TEST(ResourceSlice, DevicesAreNamedByLabels) {
  EXPECT_EQ(deviceName("sim-0"), "sim-0");
  EXPECT_EQ(deviceName("GPU-1"), "gpu-1");
  const std::string odd = deviceName("opencl:Some Card_" + std::string(80, 'x'));
  EXPECT_EQ(odd.size(), 63u);
  EXPECT_TRUE(odd.starts_with("c-opencl-some-card-x")) << odd;
  EXPECT_NE(odd, deviceName("opencl:Some Card_" + std::string(81, 'x')));
}

}  // namespace
}  // namespace qgpu::resource_slice_test
