#include "services/kubernetes/webhook/pod_claims.h"

#include <algorithm>

#include "runtime/text_hash.h"
#include "services/base/json.h"
#include "services/kubernetes/claims/claim.h"
#include "services/kubernetes/pods/json_keys.h"
#include "services/kubernetes/pods/pod_document.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr std::size_t kRequestsMax = 32;  // of a claim, by its API
constexpr std::int64_t kPermillePerPercent = 10;
constexpr const char* kDefaultScheduler = "default-scheduler";  // what the API server fills in

bool isShared(const ContainerDemand& demand) {
  return demand.sharesWith.has_value();
}

// The request of a container: its own name, or that of the one whose room it uses.
const std::string& requestOf(const PodDemands& pod, const ContainerDemand& demand) {
  return isShared(demand) ? pod.containers[*demand.sharesWith].name : demand.name;
}

// In CEL, whose texts may be written as JSON's are.
std::string modelIsOneOf(const std::vector<std::string>& models) {
  JsonWriter list;
  list.beginArray();
  for (const std::string& model : models) list.string(model);
  list.endArray();
  return "device.attributes[\"qgpu.io\"].model in " + list.take();
}

void writeRequest(JsonWriter& json, const PodDemands& pod, const ContainerDemand& demand) {
  const LedgerAsk& ask = demand.ask;
  json.beginObject().field("name", demand.name).key("exactly").beginObject();
  json.field("deviceClassName", deviceClassOf(ask.taskClass));
  if (!pod.models.empty()) {
    json.key("selectors").beginArray().beginObject().key("cel").beginObject();
    json.field("expression", modelIsOneOf(pod.models)).endObject().endObject().endArray();
  }
  if (isWhole(ask)) {
    json.field("allocationMode", "ExactCount").count("count", ask.cards);
  } else {
    json.key("capacity").beginObject().key("requests").beginObject();
    json.field(kCapacityMemory, std::to_string(ask.mem / gibibytes(1)) + "Gi");
    if (ask.share > Permille(0)) {
      json.field(kCapacityCore, std::to_string(ask.share.value / kPermillePerPercent));
    }
    json.endObject().endObject();
  }
  json.endObject().endObject();
}

void writeDevices(JsonWriter& json, const PodDemands& pod) {
  json.beginObject().key("requests").beginArray();
  for (const ContainerDemand& demand : pod.containers) {
    if (!isShared(demand)) writeRequest(json, pod, demand);
  }
  json.endArray().endObject();
}

std::string nameOf(const PodDemands& pod) {
  JsonWriter asked;
  writeDevices(asked, pod);
  return "qgpu-" + textHashHex(asked.text());
}

std::string templateOf(const std::string& name, const PodDemands& pod) {
  JsonWriter json;
  json.beginObject().field("apiVersion", "resource.k8s.io/v1");
  json.field("kind", "ResourceClaimTemplate").key("metadata").beginObject().field("name", name);
  json.key("labels").beginObject().field(kTemplateLabel, kTemplateLabelValue).endObject();
  json.endObject().key("spec").beginObject().key("spec").beginObject().key("devices");
  writeDevices(json, pod);
  json.endObject().endObject().endObject();
  return json.take();
}

// As a step of a JSON pointer.
std::string pointerStep(std::string_view key) {
  std::string step;
  for (const char c : key) step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return step;
}

// Writes a JSON patch, one change after the other.
class PatchWriter {
 public:
  PatchWriter() { json_.beginArray(); }

  void remove(const std::string& path) {
    json_.beginObject().field("op", "remove").field("path", path).endObject();
  }
  // Up to its value.
  JsonWriter& add(const std::string& path) {
    json_.beginObject().field("op", "add").field("path", path).key("value");
    return json_;
  }
  void done() { json_.endObject(); }
  // To the end of a list, which is made where it is not there.
  template <typename Write>
  void append(const element& of, const char* list, const std::string& path, Write&& write) {
    const auto there = member(of, list);
    const bool made = !there || !there->is_array();
    JsonWriter& json = add(path + "/" + list + (made ? "" : "/-"));
    if (made) json.beginArray();
    write(json);
    if (made) json.endArray();
    done();
  }
  std::string take() {
    json_.endArray();
    return json_.take();
  }

 private:
  JsonWriter json_;
};

void removeOurs(PatchWriter& patch, const element& resources, const std::string& path,
                const PodRules& rules) {
  for (const char* part : {"limits", "requests"}) {
    simdjson::dom::object amounts;
    const auto list = member(resources, part);
    if (!list || list->get(amounts) != simdjson::SUCCESS) continue;
    for (const auto amount : amounts) {
      if (!amount.key.starts_with(rules.prefix + "/qgpu-")) continue;
      patch.remove(path + "/" + part + "/" + pointerStep(amount.key));
    }
  }
}

void changeContainers(PatchWriter& patch, const element& spec, const char* part,
                      const PodDemands& pod, const PodRules& rules) {
  simdjson::dom::array containers;
  const auto list = member(spec, part);
  if (!list || list->get(containers) != simdjson::SUCCESS) return;
  std::size_t index = 0;
  for (const element container : containers) {
    const std::string path = std::string("/spec/") + part + "/" + std::to_string(index++);
    const auto resources = member(container, "resources");
    if (!resources) continue;
    removeOurs(patch, *resources, path + "/resources", rules);
    const std::string_view name = textAt(container, "name");
    const auto demand = std::find_if(pod.containers.begin(), pod.containers.end(),
                                     [&](const ContainerDemand& one) { return one.name == name; });
    if (demand == pod.containers.end()) continue;
    patch.append(*resources, "claims", path + "/resources", [&](JsonWriter& json) {
      json.beginObject().field("name", kPodClaim).field("request", requestOf(pod, *demand));
      json.endObject();
    });
  }
}

bool hasClaim(const element& spec, std::string_view name) {
  simdjson::dom::array claims;
  const auto list = member(spec, "resourceClaims");
  if (!list || list->get(claims) != simdjson::SUCCESS) return false;
  return std::any_of(claims.begin(), claims.end(),
                     [&](const element& one) { return textAt(one, "name") == name; });
}

}  // namespace

Result<std::optional<PodByClaim>> podByClaim(const element& pod, const PodRules& rules) {
  const auto demands = readHeldPod(pod, rules);
  if (!demands) return demands.error();
  const auto spec = member(pod, "spec");
  if (demands->asksNothing() || !demands->nodeName.empty() || !spec) {
    return std::optional<PodByClaim>();
  }
  if (hasClaim(*spec, kPodClaim)) {
    return fail(ErrorCode::InvalidArgument,
                std::string("the pod has a claim '") + kPodClaim +
                    "' already, which is what its qgpu resources become in this namespace: call "
                    "that claim otherwise");
  }
  const auto requests =
      demands->containers.size() -
      static_cast<std::size_t>(std::count_if(demands->containers.begin(), demands->containers.end(),
                                             [](const auto& one) { return isShared(one); }));
  if (requests > kRequestsMax) {
    return fail(ErrorCode::InvalidArgument, std::to_string(requests) +
                                                " containers ask for qgpu: by a claim, as in this "
                                                "namespace, " +
                                                std::to_string(kRequestsMax) + " may");
  }
  PodByClaim changed;
  changed.templateName = nameOf(*demands);
  changed.templateJson = templateOf(changed.templateName, *demands);
  PatchWriter patch;
  for (const char* part : {"initContainers", "containers"}) {
    changeContainers(patch, *spec, part, *demands, rules);
  }
  patch.append(*spec, "resourceClaims", "/spec", [&](JsonWriter& json) {
    json.beginObject().field("name", kPodClaim);
    json.field("resourceClaimTemplateName", changed.templateName).endObject();
  });
  changed.patch = patch.take();
  return std::optional(std::move(changed));
}

bool leavesScheduler(const element& pod, const PodRules& rules) {
  const auto demands = readHeldPod(pod, rules);
  const auto spec = member(pod, "spec");
  if (!demands || demands->asksNothing() || !demands->nodeName.empty() || !spec) return false;
  const std::string_view named = textAt(*spec, "schedulerName");
  return named.empty() || named == kDefaultScheduler;
}

std::string schedulerPatch(const std::string& scheduler) {
  PatchWriter patch;
  patch.add("/spec/schedulerName").string(scheduler);
  patch.done();
  return patch.take();
}

}  // namespace qgpu
