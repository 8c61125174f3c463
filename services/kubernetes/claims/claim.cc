#include "services/kubernetes/claims/claim.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <simdjson.h>

#include "actors/base/codec.h"
#include "services/api/commands/schema_names.h"
#include "services/kubernetes/claims/claim_document.h"
#include "services/kubernetes/pods/json_keys.h"
#include "services/kubernetes/pods/quantity.h"

namespace qgpu {
namespace {

using Element = simdjson::dom::element;

constexpr std::size_t kPartsMax =
    32;  // requests, configurations and results of a claim, by its API
constexpr std::size_t kSentencesMax = 32;
constexpr std::size_t kQuotedMax = 63;  // of what somebody wrote
constexpr std::int64_t kPercentMax = 100;
constexpr std::int64_t kPermillePerPercent = 10;

Error noTask(const ClaimName& claim, const std::string& request, const std::string& why) {
  return fail(ErrorCode::InvalidArgument,
              "claim " + claim.text() + ", request '" + request + "': " + why);
}

// `list`, as far as the API lets it go; nothing where it is none.
std::vector<Element> entries(const std::optional<Element>& list, std::size_t most = kPartsMax) {
  std::vector<Element> all;
  simdjson::dom::array array;
  if (!list || list->get(array) != simdjson::SUCCESS) return all;
  for (const Element one : array) {
    if (all.size() == most) break;
    all.push_back(one);
  }
  return all;
}

std::string inQuotes(std::string_view word) {
  return "'" + std::string(word.substr(0, kQuotedMax)) + "'";
}

std::optional<Element> at(const Element& root, std::initializer_list<std::string_view> path) {
  std::optional<Element> here = root;
  for (const std::string_view key : path) {
    if (!here) return std::nullopt;
    here = member(*here, key);
  }
  return here;
}

Result<TaskClass> classOf(const Element& parameters) {
  const std::string_view version = textAt(parameters, "apiVersion");
  if (version != kClaimParametersVersion || textAt(parameters, "kind") != kClaimParameters) {
    return fail(ErrorCode::InvalidArgument,
                std::string("parameters of ") + kClaimDriver + " are {\"apiVersion\": \"" +
                    kClaimParametersVersion + "\", \"kind\": \"" + kClaimParameters + "\", ...}");
  }
  for (const auto field : simdjson::dom::object(parameters)) {
    const bool known = field.key == "apiVersion" || field.key == "kind" || field.key == "class";
    if (known) continue;
    return fail(ErrorCode::InvalidArgument, std::string(kClaimParameters) + " has no " +
                                                inQuotes(field.key) + "; it has class");
  }
  const std::string_view word = textAt(parameters, "class");
  const auto named = classFromName(word);
  if (named) return readClass(*named);
  return fail(ErrorCode::InvalidArgument,
              "class is " + inQuotes(word) + ": it is ordinary, online or offline");
}

// "gpu" of "gpu/large": whoever configures a request means its alternatives too.
std::string_view mainRequest(std::string_view request) {
  return request.substr(0, request.find('/'));
}

// What one configuration of our driver says.
struct ClassConfig {
  std::vector<std::string_view> requests;  // empty: all
  Result<TaskClass> taskClass;
};

// Those of a spec, or of an allocation, which has its classes' before the claim's.
std::vector<ClassConfig> configsOf(const std::optional<Element>& configs) {
  std::vector<ClassConfig> all;
  for (const Element& config : entries(configs, 2 * kPartsMax)) {
    const auto opaque = member(config, "opaque");
    if (!opaque || textAt(*opaque, "driver") != kClaimDriver) continue;
    std::vector<std::string_view> requests;
    for (const Element& one : entries(member(config, "requests"))) {
      std::string_view name;
      if (one.get(name) == simdjson::SUCCESS) requests.push_back(name);
    }
    const auto parameters = member(*opaque, "parameters");
    const bool object = parameters && parameters->is_object();
    all.push_back({std::move(requests),
                   object ? classOf(*parameters)
                          : fail(ErrorCode::InvalidArgument, "its parameters are no object")});
  }
  return all;
}

// Of the last configuration that speaks of the request; nothing where none does.
Result<std::optional<TaskClass>> classFor(const std::vector<ClassConfig>& configs,
                                          std::string_view request) {
  std::optional<TaskClass> taskClass;
  for (const ClassConfig& config : configs) {
    const bool meant =
        config.requests.empty() ||
        std::any_of(config.requests.begin(), config.requests.end(), [&](std::string_view name) {
          return name == request || name == mainRequest(request);
        });
    if (!meant) continue;
    if (!config.taskClass) return config.taskClass.error();
    taskClass = *config.taskClass;
  }
  return taskClass;
}

// What `amounts` has of a capacity, under its plain or its full name; nothing: it is not named.
Result<std::optional<std::int64_t>> amountOf(const std::optional<Element>& amounts,
                                             std::string_view capacity) {
  simdjson::dom::object object;
  if (!amounts || amounts->get(object) != simdjson::SUCCESS) return std::optional<std::int64_t>();
  const std::string full = std::string(kClaimDriver) + "/" + std::string(capacity);
  for (const auto field : object) {
    if (field.key != capacity && field.key != full) continue;
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS) {
      return fail(ErrorCode::InvalidArgument, std::string(capacity) + " is no quantity");
    }
    const auto quantity = wholeQuantity(text);
    if (!quantity) {
      return fail(ErrorCode::InvalidArgument, std::string(capacity) + " is " +
                                                  std::string(text.substr(0, kQuotedMax)) + ": " +
                                                  quantity.error().message);
    }
    return std::optional<std::int64_t>(*quantity);
  }
  return std::optional<std::int64_t>();
}

// The rules of a part, whether it is asked for or was given.
Result<ClaimPart> partOf(TaskClass taskClass, std::int64_t percent, Bytes memory) {
  ClaimPart part;
  part.taskClass = taskClass;
  if (percent > kPercentMax) {
    return fail(ErrorCode::InvalidArgument,
                "core is " + std::to_string(percent) + ": a card has 100");
  }
  if (taskClass == TaskClass::Online && percent != 0) {
    return fail(ErrorCode::InvalidArgument,
                "an online task asks for no core: it gets all compute when it wants it");
  }
  if (taskClass != TaskClass::Online && percent == 0) {
    return fail(ErrorCode::InvalidArgument, "core is 0: ask for 1 to 100");
  }
  part.share = Permille(percent * kPermillePerPercent);
  const bool whole = taskClass == TaskClass::Ordinary && percent == kPercentMax;
  part.mem = whole ? Bytes(0) : memory;
  if (!whole && part.mem <= Bytes(0)) {
    return fail(ErrorCode::InvalidArgument, "a part of a card needs memory");
  }
  return part;
}

bool isAdmin(const Element& of) {
  const auto flag = member(of, "adminAccess");
  bool admin = false;
  return flag && flag->get(admin) == simdjson::SUCCESS && admin;
}

// What one device of the request gives; a device that is not shared gives all.
Result<ClaimPart> readGiven(const Element& result, TaskClass taskClass) {
  if (isAdmin(result)) {
    ClaimPart part;
    part.taskClass = taskClass;
    part.admin = true;
    return part;
  }
  const auto consumed = member(result, "consumedCapacity");
  const auto memory = amountOf(consumed, kCapacityMemory);
  if (!memory) return memory.error();
  const auto core = amountOf(consumed, kCapacityCore);
  if (!core) return core.error();
  const std::int64_t all = taskClass == TaskClass::Online ? 0 : kPercentMax;
  return partOf(taskClass, core->value_or(all), Bytes(memory->value_or(0)));
}

// What several devices of one request may be; to look at is all of each.
bool isWholeCards(const ClaimPart& part) {
  return part.admin || (part.mem == Bytes(0) && part.taskClass == TaskClass::Ordinary);
}

Error severalParts() {
  return fail(ErrorCode::InvalidArgument,
              "several cards of one request are whole ones: leave core and memory out, or make "
              "a request for each card");
}

// Its own devices joined to those of the request that came before.
Status join(ClaimPart& to, ClaimPart part) {
  const bool same = to.mem == part.mem && to.share == part.share && to.admin == part.admin;
  if (!isWholeCards(part) || !same) return severalParts();
  to.devices.push_back(part.devices.front());
  return ok();
}

// --- what is asked for ---

// One request of a spec, or one of its alternatives.
struct Asked {
  std::string name;
  Element ask;
};

// resource.k8s.io/v1 has what is asked for below `exactly`, v1beta1 in the request itself.
std::vector<Asked> asksOf(const Element& request) {
  const std::string name(textAt(request, "name").substr(0, kQuotedMax));
  std::vector<Asked> all;
  for (const Element& one : entries(member(request, "firstAvailable"))) {
    all.push_back({name + "/" + std::string(textAt(one, "name").substr(0, kQuotedMax)), one});
  }
  if (all.empty()) all.push_back({name, member(request, "exactly").value_or(request)});
  return all;
}

std::optional<TaskClass> classOfDevices(std::string_view deviceClass) {
  for (const TaskClass one : {TaskClass::Ordinary, TaskClass::Online, TaskClass::Offline}) {
    if (deviceClass == deviceClassOf(one)) return one;
  }
  return std::nullopt;
}

// No card has a capacity of another name, so kube-scheduler would find none, and not say why.
Status checkCapacities(const std::optional<Element>& amounts) {
  simdjson::dom::object object;
  if (!amounts || amounts->get(object) != simdjson::SUCCESS) return ok();
  for (const auto field : object) {
    const bool known =
        field.key == kCapacityMemory || field.key == kCapacityCore || field.key == kCapacityTasks;
    if (known) continue;
    return fail(ErrorCode::InvalidArgument, "a card has no capacity " + inQuotes(field.key) +
                                                ": it has memory, core and tasks");
  }
  const auto tasks = amountOf(amounts, kCapacityTasks);
  if (!tasks) return tasks.error();
  if (tasks->value_or(1) == 1) return ok();
  return fail(ErrorCode::InvalidArgument,
              "tasks is " + std::to_string(**tasks) + ": each request is one task");
}

// What is left out kube-scheduler fills in by the card's slice: all of the memory; of the core all
// of an ordinary card, and none of a hybrid one.
Result<ClaimPart> readAsked(const Element& ask, TaskClass taskClass) {
  const auto amounts = at(ask, {"capacity", "requests"});
  if (Status named = checkCapacities(amounts); !named) return named.error();
  const auto memory = amountOf(amounts, kCapacityMemory);
  if (!memory) return memory.error();
  const auto core = amountOf(amounts, kCapacityCore);
  if (!core) return core.error();
  constexpr std::int64_t kAllMemory = std::numeric_limits<std::int64_t>::max();
  return partOf(taskClass, core->value_or(taskClass == TaskClass::Ordinary ? kPercentMax : 0),
                Bytes(memory->value_or(kAllMemory)));
}

Status judge(const Asked& asked, const std::vector<ClassConfig>& configs) {
  const auto configured = classFor(configs, asked.name);
  const std::string_view deviceClass = textAt(asked.ask, "deviceClassName");
  const auto ofDevices = classOfDevices(deviceClass);
  if (!configured || !ofDevices) return ok();  // told of its configuration; or not known
  const TaskClass taskClass = configured->value_or(*ofDevices);
  if (isHybrid(taskClass) != isHybrid(*ofDevices)) {
    return fail(ErrorCode::InvalidArgument,
                std::string("its class is ") + className(taskClass) + ": cards of " +
                    std::string(deviceClass) + " are for " +
                    (isHybrid(*ofDevices) ? "online and offline" : "ordinary") + " tasks");
  }
  if (isAdmin(asked.ask)) return ok();
  const auto part = readAsked(asked.ask, taskClass);
  if (!part) return part.error();
  std::int64_t count = 1;
  if (const auto given = member(asked.ask, "count")) {
    if (given->get(count) != simdjson::SUCCESS) count = 1;
  }
  return count > 1 && !isWholeCards(*part) ? Status(severalParts()) : ok();
}

}  // namespace

std::string deviceClassOf(TaskClass taskClass) {
  return std::string(className(taskClass)) + "." + kClaimDriver;
}

Result<std::vector<ClaimPart>> readClaim(std::string_view json, const ClaimName& claim,
                                         std::string_view pool) {
  simdjson::dom::parser parser;
  Element root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return fail(ErrorCode::InvalidArgument, "claim " + claim.text() + " is no JSON object");
  }
  const auto uid = at(root, {"metadata", "uid"});
  std::string_view found;
  if (!uid || uid->get(found) != simdjson::SUCCESS || found != claim.uid) {
    return fail(ErrorCode::NotFound, "claim " + claim.text() + " with uid " + claim.uid +
                                         " is gone: the one of its name now is " +
                                         std::string(found));
  }
  const auto allocation = at(root, {"status", "allocation"});
  if (!allocation) {
    return fail(ErrorCode::NotFound, "claim " + claim.text() + " is not allocated");
  }
  const std::vector<ClassConfig> configs = configsOf(at(*allocation, {"devices", "config"}));
  std::vector<ClaimPart> parts;
  for (const Element& result : entries(at(*allocation, {"devices", "results"}))) {
    if (textAt(result, "driver") != kClaimDriver || textAt(result, "pool") != pool) continue;
    const std::string request(textAt(result, "request"));
    const auto taskClass = classFor(configs, request);
    if (!taskClass) return noTask(claim, request, taskClass.error().message);
    auto part = readGiven(result, taskClass->value_or(TaskClass::Ordinary));
    if (!part) return noTask(claim, request, part.error().message);
    part->request = request;
    part->devices.push_back(
        {std::string(textAt(result, "device")), std::string(textAt(result, "shareID"))});
    const auto earlier = std::find_if(parts.begin(), parts.end(),
                                      [&](const ClaimPart& one) { return one.request == request; });
    if (earlier == parts.end()) {
      parts.push_back(std::move(*part));
    } else if (Status joined = join(*earlier, std::move(*part)); !joined) {
      return noTask(claim, request, joined.error().message);
    }
  }
  if (parts.empty()) {
    return fail(ErrorCode::NotFound, "claim " + claim.text() + " gives no device of driver " +
                                         kClaimDriver + " in pool " + std::string(pool));
  }
  return parts;
}

ClaimUsers readClaimUsers(std::string_view json) {
  ClaimUsers users;
  simdjson::dom::parser parser;
  Element root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) return users;
  if (const auto metadata = member(root, "metadata")) users.uid = textAt(*metadata, "uid");
  for (const Element& user : entries(at(root, {"status", "reservedFor"}), ClaimUsers::kPodsMax)) {
    if (textAt(user, "resource") != "pods") continue;
    users.pods.push_back({std::string(textAt(user, "name")), std::string(textAt(user, "uid"))});
  }
  return users;
}

std::vector<std::string> brokenClaimRules(const Element& devices) {
  std::vector<std::string> broken;
  const auto add = [&](std::string sentence) {
    const bool told = std::find(broken.begin(), broken.end(), sentence) != broken.end();
    if (!told && broken.size() < kSentencesMax) broken.push_back(std::move(sentence));
  };
  const std::vector<ClassConfig> configs = configsOf(member(devices, "config"));
  for (const ClassConfig& config : configs) {
    if (!config.taskClass) add(config.taskClass.error().message);
  }
  for (const Element& request : entries(member(devices, "requests"))) {
    for (const Asked& asked : asksOf(request)) {
      const Status judged = judge(asked, configs);
      if (!judged) add("request " + inQuotes(asked.name) + ": " + judged.error().message);
    }
  }
  return broken;
}

}  // namespace qgpu
