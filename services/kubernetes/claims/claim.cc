#include "services/kubernetes/claims/claim.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <simdjson.h>

#include "actors/base/codec.h"
#include "services/api/commands/schema_names.h"
#include "services/kubernetes/pods/json_keys.h"
#include "services/kubernetes/pods/quantity.h"

namespace qgpu {
namespace {

using Element = simdjson::dom::element;

constexpr std::size_t kPartsMax = 32;  // results of a claim, by its API
constexpr std::int64_t kPercentMax = 100;
constexpr std::int64_t kPermillePerPercent = 10;

Error noTask(const ClaimName& claim, const std::string& request, const std::string& why) {
  return fail(ErrorCode::InvalidArgument,
              "claim " + claim.text() + ", request '" + request + "': " + why);
}

// `list` without anything that is not in it.
std::vector<Element> entries(const std::optional<Element>& list) {
  std::vector<Element> all;
  simdjson::dom::array array;
  if (!list || list->get(array) != simdjson::SUCCESS) return all;
  for (const Element one : array) all.push_back(one);
  return all;
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
    return fail(ErrorCode::InvalidArgument, std::string(kClaimParameters) + " has no '" +
                                                std::string(field.key) + "'; it has class");
  }
  const std::string_view word = textAt(parameters, "class");
  const auto named = classFromName(word);
  if (named) return readClass(*named);
  return fail(ErrorCode::InvalidArgument,
              "class is '" + std::string(word) + "': it is ordinary, online or offline");
}

// "gpu" of "gpu/large": whoever configures a request means its alternatives too.
std::string_view mainRequest(std::string_view request) {
  return request.substr(0, request.find('/'));
}

// The last configuration that speaks of the request: those of claims come after those of classes.
Result<TaskClass> classFor(const Element& allocation, const std::string& request) {
  TaskClass taskClass = TaskClass::Ordinary;
  for (const Element& config : entries(at(allocation, {"devices", "config"}))) {
    const auto opaque = member(config, "opaque");
    if (!opaque || textAt(*opaque, "driver") != kClaimDriver) continue;
    const std::vector<Element> requests = entries(member(config, "requests"));
    const bool meant =
        requests.empty() || std::any_of(requests.begin(), requests.end(), [&](const Element& one) {
          std::string_view name;
          return one.get(name) == simdjson::SUCCESS &&
                 (name == request || name == mainRequest(request));
        });
    if (!meant) continue;
    const auto parameters = member(*opaque, "parameters");
    if (!parameters || !parameters->is_object()) {
      return fail(ErrorCode::InvalidArgument, "its parameters are no object");
    }
    const auto named = classOf(*parameters);
    if (!named) return named.error();
    taskClass = *named;
  }
  return taskClass;
}

// What a result consumes of a capacity, under its plain or its full name; none: nothing.
Result<std::optional<std::int64_t>> consumed(const Element& result, std::string_view capacity) {
  const auto all = member(result, "consumedCapacity");
  simdjson::dom::object object;
  if (!all || all->get(object) != simdjson::SUCCESS) return std::optional<std::int64_t>();
  const std::string full = std::string(kClaimDriver) + "/" + std::string(capacity);
  for (const auto field : object) {
    if (field.key != capacity && field.key != full) continue;
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS) {
      return fail(ErrorCode::InvalidArgument, std::string(capacity) + " is no quantity");
    }
    const auto quantity = wholeQuantity(text);
    if (!quantity) {
      return fail(ErrorCode::InvalidArgument, std::string(capacity) + " is " + std::string(text) +
                                                  ": " + quantity.error().message);
    }
    return std::optional<std::int64_t>(*quantity);
  }
  return std::optional<std::int64_t>();
}

// What one device of the request gives; a device that is not shared gives all.
Result<ClaimPart> readGiven(const Element& result, TaskClass taskClass) {
  ClaimPart part;
  part.taskClass = taskClass;
  bool admin = false;
  if (const auto flag = member(result, "adminAccess")) {
    part.admin = flag->get(admin) == simdjson::SUCCESS && admin;
  }
  if (part.admin) return part;
  const auto memory = consumed(result, kCapacityMemory);
  if (!memory) return memory.error();
  const auto core = consumed(result, kCapacityCore);
  if (!core) return core.error();
  const std::int64_t percent = core->value_or(kPercentMax);
  if (percent > kPercentMax) {
    return fail(ErrorCode::InvalidArgument,
                "core is " + std::to_string(percent) + ": a card has 100");
  }
  if (taskClass == TaskClass::Online && core->value_or(0) != 0) {
    return fail(ErrorCode::InvalidArgument,
                "an online task asks for no core: it gets all compute when it wants it");
  }
  if (taskClass != TaskClass::Online && percent == 0) {
    return fail(ErrorCode::InvalidArgument, "core is 0: ask for 1 to 100");
  }
  part.share =
      taskClass == TaskClass::Online ? Permille(0) : Permille(percent * kPermillePerPercent);
  const bool whole = taskClass == TaskClass::Ordinary && percent == kPercentMax;
  part.mem = whole ? Bytes(0) : Bytes(memory->value_or(0));
  if (!whole && part.mem <= Bytes(0)) {
    return fail(ErrorCode::InvalidArgument, "a part of a card needs memory");
  }
  return part;
}

// Its own devices joined to those of the request that came before.
Status join(ClaimPart& to, ClaimPart part) {
  const bool whole = part.admin || (part.mem == Bytes(0) && part.taskClass == TaskClass::Ordinary);
  const bool same = to.mem == part.mem && to.share == part.share && to.admin == part.admin;
  if (!whole || !same) {
    return fail(ErrorCode::InvalidArgument,
                "several cards of one request are whole ones: leave core and memory out, or make "
                "a request for each card");
  }
  to.devices.push_back(part.devices.front());
  return ok();
}

}  // namespace

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
  std::vector<ClaimPart> parts;
  for (const Element& result : entries(at(*allocation, {"devices", "results"}))) {
    if (textAt(result, "driver") != kClaimDriver || textAt(result, "pool") != pool) continue;
    const std::string request(textAt(result, "request"));
    const auto taskClass = classFor(*allocation, request);
    if (!taskClass) return noTask(claim, request, taskClass.error().message);
    auto part = readGiven(result, *taskClass);
    if (!part) return noTask(claim, request, part.error().message);
    part->request = request;
    part->devices.push_back(
        {std::string(textAt(result, "device")), std::string(textAt(result, "shareID"))});
    const auto earlier = std::find_if(parts.begin(), parts.end(),
                                      [&](const ClaimPart& one) { return one.request == request; });
    if (earlier == parts.end()) {
      if (parts.size() >= kPartsMax)
        return noTask(claim, request, "the claim has too many results");
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

Status checkClaimParameters(std::string_view json) {
  simdjson::dom::parser parser;
  Element root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return fail(ErrorCode::InvalidArgument,
                std::string("parameters of ") + kClaimDriver + " are no JSON object");
  }
  const auto named = classOf(root);
  return named ? ok() : Status(named.error());
}

}  // namespace qgpu
