// What kubectl itself makes of deploy/kubernetes, without a server. It can't validate against one's
// schema then; but `kustomize` builds, and `set --local` reads an object into the API's own types
// and writes it again, so that a field which the API does not have, or which stands in the wrong
// place, is missing afterwards.

#include <gtest/gtest.h>

#include "tests/deploy/documents.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::kubectl_test {
namespace {

using testing::below;
using testing::Document;
using testing::find;
using testing::Finished;
using testing::manifests;
using testing::parseDocuments;
using testing::readDocuments;
using testing::shell;
using testing::sourcePath;
using testing::TempFolder;

TEST(Kubectl, BuildsTheKustomizationWithEveryObjectAndTaggedImages) {
  const Finished built = shell("kubectl kustomize " + sourcePath("deploy/kubernetes"));
  ASSERT_EQ(built.status, 0) << built.output;
  const auto objects = parseDocuments(built.output);
  EXPECT_GE(objects.size(), 9u);
  const Document& manager = find(objects, "DaemonSet", "qgpu-manager");
  EXPECT_EQ(manager.text("/spec/template/spec/containers/0/image"), "qgpu/manager:0.1.0");
  EXPECT_EQ(manager.text("/spec/template/spec/initContainers/0/image"), "qgpu/manager:0.1.0");
  const Document& scheduler = find(objects, "Deployment", "qgpu-scheduler");
  EXPECT_EQ(scheduler.text("/spec/template/spec/containers/0/image"), "qgpu/scheduler:0.1.0");
}

// The pointers of values in `written` that `kept` lacks or has otherwise.
void collectLost(const Document& written, const Document& kept, const std::string& pointer,
                 std::vector<std::string>& lost) {
  const auto children = below(written, pointer);
  if (children.empty()) {
    if (written.at(pointer) != kept.at(pointer)) {
      lost.push_back(pointer + ": " + written.at(pointer) + " became " + kept.at(pointer));
    }
    return;
  }
  for (const std::string& child : children) collectLost(written, kept, child, lost);
}

// What `kubectl set --local` can change in an object of a kind, so that it prints it. An empty
// verb: nothing.
struct Change {
  std::string verb;
  std::string value;
  std::string pointer;  // of what is another afterwards, or all below; empty: something is added
};

Change changeFor(const Document& object) {
  const std::string kind = object.kind();
  const std::string pod = kind == "Pod" ? "/spec" : "/spec/template/spec";
  if (kind == "DaemonSet" || kind == "Deployment" || kind == "Pod") {
    const std::string container = pod + "/containers/0/";
    return {"image", object.text(container + "name") + "=other", container + "image"};
  }
  if (kind == "Service") return {"selector", "app=other", "/spec/selector"};
  if (kind.ends_with("RoleBinding")) return {"subject", "--serviceaccount=kube-system:other", ""};
  return {};
}

std::vector<std::string> lostIn(const Document& object) {
  const Change change = changeFor(object);
  TempFolder folder;
  const std::string file = folder.write("object.json", object.json());
  const Finished kept =
      shell("kubectl set " + change.verb + " --local -o json -f " + file + " " + change.value);
  EXPECT_EQ(kept.status, 0) << object.name() << ": " << kept.output;
  std::vector<std::string> lost;
  collectLost(object, Document(kept.output), "", lost);
  std::erase_if(lost, [&](const std::string& one) {
    if (change.pointer.empty()) return false;
    return one.starts_with(change.pointer + ": ") || one.starts_with(change.pointer + "/");
  });
  return lost;
}

TEST(Kubectl, LosesNothingOfAnObjectThatItReadsIntoTheApisTypes) {
  auto objects = manifests();
  for (Document& one : readDocuments(sourcePath("deploy/kubernetes/kube-scheduler/second.yaml"))) {
    objects.push_back(std::move(one));
  }
  for (const char* name : {"online", "offline", "ordinary", "multi-card"}) {
    const std::string file = "deploy/kubernetes/examples/" + std::string(name) + ".yaml";
    objects.push_back(readDocuments(sourcePath(file)).at(0));
  }
  std::size_t read = 0;
  for (const Document& object : objects) {
    if (changeFor(object).verb.empty()) continue;
    ++read;
    for (const std::string& lost : lostIn(object)) {
      ADD_FAILURE() << object.kind() << " " << object.name() << lost;
    }
  }
  EXPECT_GE(read, 10u);
}

TEST(Kubectl, WouldLoseAFieldThatTheApiDoesNotHave) {
  const Document pod(R"({"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},)"
                     R"("spec":{"containers":[{"name":"a","image":"b","resourcess":{"c":"1"}}]},)"
                     R"("annotations":{"d":"e"}})");
  const auto lost = lostIn(pod);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0], "/spec/containers/0/resourcess/c: \"1\" became ");
  EXPECT_EQ(lost[1], "/annotations/d: \"e\" became ");
}

}  // namespace
}  // namespace qgpu::kubectl_test
