#include "services/kubernetes/claims/resource_slice.h"

#include <gtest/gtest.h>
#include <simdjson.h>

namespace qgpu::resource_slice_test {
namespace {

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
