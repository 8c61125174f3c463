#include "services/kubernetes/claims/resource_slice.h"

#include <algorithm>

#include "actors/ledger/fit.h"
#include "runtime/text_hash.h"
#include "services/api/commands/schema_names.h"
#include "services/base/json.h"

namespace qgpu {
namespace {

constexpr std::size_t kLabelMax = 63;       // of DNS
constexpr std::size_t kSubdomainMax = 253;  // names of objects
constexpr std::size_t kAttributeMax = 64;   // bytes of a text, by the API
constexpr const char* kAllCore = "100";

bool isLabelChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

// "12Gi", "1500Mi": exact, as the API server writes it too.
std::string quantityOf(std::int64_t units, MemoryUnit unit) {
  return std::to_string(units) + (unit == MemoryUnit::GiB ? "Gi" : "Mi");
}

void writeText(JsonWriter& json, const char* name, std::string_view text) {
  if (text.empty()) return;
  json.key(name).beginObject().field("string", text.substr(0, kAttributeMax)).endObject();
}

struct Range {
  std::string all;
  std::string otherwise;  // where a request names none
  std::string least;
  std::string step{};
};

void writeRange(JsonWriter& json, std::string_view name, const Range& range) {
  json.key(name).beginObject().field("value", range.all).key("requestPolicy").beginObject();
  json.field("default", range.otherwise).key("validRange").beginObject();
  json.field("min", range.least).field("max", range.all).optional("step", range.step);
  json.endObject().endObject().endObject();
}

void writeCapacity(JsonWriter& json, const SliceFacts& facts, const AnnotatedCard& card) {
  const std::int64_t units =
      card.mem / (facts.unit == MemoryUnit::GiB ? gibibytes(1) : mebibytes(1));
  const std::string all = quantityOf(units, facts.unit);
  const std::string one = quantityOf(1, facts.unit);
  json.key("capacity").beginObject();
  writeRange(json, kCapacityMemory,
             {all, all, one, units > 1 ? one : ""});  // it must fit above `one`
  if (facts.mixed) {
    writeRange(json, kCapacityCore, {kAllCore, "0", "0"});
  } else {
    writeRange(json, kCapacityCore, {kAllCore, kAllCore, "1"});
  }
  const TaskLimit limit{facts.maxTasksPerCard};
  json.key(kCapacityTasks).beginObject();
  json.field("value", std::to_string(tasksMaxOf(card.mem, limit)));
  json.key("requestPolicy").beginObject().field("default", "1");
  json.key("validValues").beginArray().string("1").endArray();
  json.endObject().endObject().endObject();
}

void writePlace(JsonWriter& json, const SliceFacts& facts, const AnnotatedCard& card) {
  const auto place = facts.places.find(card.id);
  if (place == facts.places.end()) return;
  writeText(json, "resource.kubernetes.io/pciBusID", place->second.bus);
  writeText(json, "resource.kubernetes.io/pcieRoot", place->second.root);
  if (!place->second.numaNode) return;
  json.key("resource.kubernetes.io/numaNode").beginObject();
  json.count("int", *place->second.numaNode).endObject();
}

void writeDevice(JsonWriter& json, const SliceFacts& facts, const AnnotatedCard& card) {
  json.beginObject().field("name", deviceName(card.id)).key("attributes").beginObject();
  writeText(json, "uuid", card.id);
  writeText(json, "model", card.model);
  writeText(json, "backend", card.backend);
  writeText(json, "driverVersion", card.driver);
  writeText(json, "policy", policyName(card.policy));
  writeText(json, "suspend", suspendName(card.suspend));
  writeText(json, "kind", facts.mixed ? "hybrid" : "ordinary");
  json.key("index").beginObject().count("int", card.index).endObject();
  writePlace(json, facts, card);
  json.endObject();
  writeCapacity(json, facts, card);
  json.flag("allowMultipleAllocations", true);
  if (card.health != schema::CardState::READY) {
    json.key("taints").beginArray().beginObject().field("key", kCardTaint);
    json.field("value", cardStateName(card.health)).field("effect", "NoSchedule");
    json.endObject().endArray();
  }
  json.endObject();
}

}  // namespace

std::string deviceName(std::string_view cardId) {
  std::string name(cardId);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  const bool label = !name.empty() && name.size() <= kLabelMax && name.front() != '-' &&
                     name.back() != '-' && std::all_of(name.begin(), name.end(), isLabelChar);
  if (label) return name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !isLabelChar(c); }, '-');
  return "c-" + name.substr(0, kLabelMax - kTextHashDigits - 3) + "-" + textHashHex(cardId);
}

std::string sliceName(std::string_view node) {
  const std::string end = std::string("-") + kClaimDriver;
  return std::string(node.substr(0, kSubdomainMax - end.size())) + end;
}

std::string writeSlice(const SliceFacts& facts, std::string_view version) {
  JsonWriter json;
  json.beginObject().field("apiVersion", "resource.k8s.io/v1").field("kind", "ResourceSlice");
  json.key("metadata").beginObject().field("name", sliceName(facts.node));
  json.optional("resourceVersion", version);
  json.key("ownerReferences").beginArray().beginObject().field("apiVersion", "v1");
  json.field("kind", "Node").field("name", facts.node).field("uid", facts.nodeUid);
  json.flag("controller", true).endObject().endArray().endObject();
  json.key("spec").beginObject().field("driver", kClaimDriver).field("nodeName", facts.node);
  json.key("pool").beginObject().field("name", facts.node).count("generation", 1);
  json.count("resourceSliceCount", 1).endObject();
  json.key("devices").beginArray();
  for (const AnnotatedCard& card : facts.cards) writeDevice(json, facts, card);
  return json.endArray().endObject().endObject().take();
}

}  // namespace qgpu
