#include "services/kubernetes/pods/pod_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <simdjson.h>
#include <utility>

#include "services/kubernetes/pods/json_keys.h"
#include "services/kubernetes/pods/kube_names.h"
#include "services/kubernetes/pods/pod_document.h"
#include "services/kubernetes/pods/quantity.h"

namespace qgpu {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMemMax = std::int64_t{1} << 20;  // GiB
constexpr std::int64_t kPercentMax = 100 * 1024;
constexpr std::size_t kTextMax = 253;
constexpr std::size_t kBrokenRulesMax = 32;
constexpr std::size_t kModelNameMax = 64;  // as of any task
constexpr std::size_t kGroupNameMax = 63;  // as of a label's value

Error invalid(std::string text) {
  return fail(ErrorCode::InvalidArgument, std::move(text));
}

std::string cut(std::string_view text) {
  return std::string(text.substr(0, kTextMax));
}

// What one container writes under limits or requests.
struct Amounts {
  std::optional<std::int64_t> memory;
  std::optional<std::int64_t> core;
  std::optional<std::int64_t> greedy;
  std::string_view wholeCards;  // a resource of others that it asks for; of kWholeCards
  bool ours = false;            // any of them is written

  bool operator==(const Amounts& other) const {
    return memory == other.memory && core == other.core && greedy == other.greedy;
  }
  bool any() const { return memory || core || greedy; }
};

struct Asked {
  Amounts limits;
  Amounts requests;
};

// One container as it is read; the rules of its class come later.
class ContainerReader {
 public:
  ContainerReader(const PodRules& rules, TaskClass taskClass)
      : rules_(rules), taskClass_(taskClass) {}

  // Nothing where it asks nothing of ours.
  Result<std::optional<ContainerDemand>> read(const element& container, bool init) {
    ContainerDemand demand;
    demand.name = cut(textAt(container, "name"));
    where_ = "container '" + demand.name + "': ";
    const bool always = textAt(container, "restartPolicy") == "Always";
    if (init) demand.kind = always ? ContainerKind::Sidecar : ContainerKind::Init;
    Asked asked;
    if (const auto resources = member(container, "resources")) {
      if (Status done = amounts(*resources, "limits", asked.limits); !done) return done.error();
      if (Status done = amounts(*resources, "requests", asked.requests); !done) {
        return done.error();
      }
    }
    if (Status done = checkBoth(asked); !done) return done.error();
    const Amounts& limits = asked.limits;
    for (const std::string_view name : {limits.wholeCards, asked.requests.wholeCards}) {
      if (!name.empty()) wholeCards_ = name;
    }
    ours_ = ours_ || limits.ours || asked.requests.ours;
    if (!limits.any()) return std::optional<ContainerDemand>();
    if (demand.name.empty()) return invalid("a container that asks for qgpu has no name");
    note(demand.kind, limits);
    const bool hybrid = isHybrid(taskClass_);
    if (Status done = hybrid ? hybridAsk(limits, demand.ask) : ordinaryAsk(limits, demand.ask);
        !done) {
      return done.error();
    }
    if (Status done = checkAsk(demand.ask); !done) return invalid(where_ + done.error().message);
    return std::optional(std::move(demand));
  }

  std::string_view wholeCards() const { return wholeCards_; }
  bool sawOurs() const { return ours_; }

  // Kubelet tells nobody whose devices an init container has, unless a main one uses them again.
  Status initsHaveMains() const {
    for (const auto& [where, resource] : byInits_) {
      if (byMains_.contains(resource)) continue;
      return invalid(where + "an init container may ask for " + name(resource) +
                     " only where a main container does: ask for it there as well");
    }
    return ok();
  }

 private:
  void note(ContainerKind kind, const Amounts& limits) {
    for (const auto& [resource, amount] :
         {std::pair("qgpu-memory", limits.memory), std::pair("qgpu-core", limits.core),
          std::pair("qgpu-core-greedy", limits.greedy)}) {
      if (!amount) continue;
      if (kind == ContainerKind::Main) byMains_.insert(resource);
      if (kind == ContainerKind::Init) byInits_.emplace_back(where_, resource);
    }
  }

  std::string name(const char* resource) const { return rules_.prefix + "/" + resource; }

  Status refuse(const std::string& text) const { return invalid(where_ + text); }

  // Everything under limits or requests that is ours; 0 counts as not written.
  Status amounts(const element& resources, const char* part, Amounts& out) const {
    const auto list = member(resources, part);
    object entries;
    if (!list || list->is_null()) return ok();
    if (list->get(entries) != simdjson::SUCCESS) return refuse(std::string(part) + " is no map");
    for (const auto entry : entries) {
      if (const auto name = std::ranges::find(kWholeCards, entry.key);
          name != std::end(kWholeCards)) {
        out.wholeCards = *name;
      }
      if (!entry.key.starts_with(rules_.prefix + "/qgpu-")) continue;
      out.ours = true;
      const std::string_view suffix = entry.key.substr(rules_.prefix.size() + 1);
      std::optional<std::int64_t>* amount = suffix == "qgpu-memory"        ? &out.memory
                                            : suffix == "qgpu-core"        ? &out.core
                                            : suffix == "qgpu-core-greedy" ? &out.greedy
                                                                           : nullptr;
      if (amount == nullptr) {
        return refuse("there is no resource " + cut(entry.key) + ": there are " +
                      name("qgpu-memory") + ", qgpu-core and qgpu-core-greedy");
      }
      const Result<std::int64_t> value = quantity(entry.value);
      if (!value) return refuse(cut(entry.key) + " under " + part + ": " + value.error().message);
      if (*value != 0) *amount = *value;
    }
    return ok();
  }

  static Result<std::int64_t> quantity(const element& value) {
    std::string_view text;
    std::int64_t number = 0;
    if (value.get(text) == simdjson::SUCCESS) return wholeQuantity(text);
    if (value.get(number) == simdjson::SUCCESS) return wholeQuantity(std::to_string(number));
    double decimal = 0;
    if (value.get(decimal) == simdjson::SUCCESS) {
      return invalid("it is not a whole number: decimals are not allowed");
    }
    return invalid("it is no quantity: write a whole number like \"5\"");
  }

  // The API server refuses both, with words that say less.
  Status checkBoth(const Asked& asked) const {
    const Amounts& limits = asked.limits;
    const Amounts& requests = asked.requests;
    if (requests.any() && !limits.any()) {
      return refuse(
          "qgpu resources stand under requests alone: Kubernetes wants limits, and "
          "copies them to requests by itself");
    }
    const auto differs = [](const auto& request, const auto& limit) {
      return request && request != limit;
    };
    const char* which = differs(requests.memory, limits.memory)   ? "qgpu-memory"
                        : differs(requests.core, limits.core)     ? "qgpu-core"
                        : differs(requests.greedy, limits.greedy) ? "qgpu-core-greedy"
                                                                  : nullptr;
    if (which == nullptr) return ok();
    return refuse(name(which) +
                  " differs between requests and limits: they must be equal, or "
                  "leave requests out");
  }

  // GiB, from the unit that the cluster counts in.
  Status memory(const Amounts& limits, std::int64_t& gib) const {
    gib = *limits.memory;
    if (rules_.unit == MemoryUnit::MiB) {
      if (gib % 1024 != 0) {
        return refuse(name("qgpu-memory") + " is " + std::to_string(gib) +
                      " MiB: memory is given in whole GiB, so write a multiple of 1024");
      }
      gib /= 1024;
    }
    if (gib > kMemMax) {
      const char* unit = rules_.unit == MemoryUnit::GiB ? "GiB: write 5, not 5Gi" : "MiB";
      return refuse(name("qgpu-memory") + " is " + std::to_string(*limits.memory) +
                    ", more than any card has; it counts " + unit);
    }
    return ok();
  }

  Status hybridAsk(const Amounts& limits, LedgerAsk& ask) const {
    const bool online = taskClass_ == TaskClass::Online;
    const std::string kind = online ? "an online pod" : "an offline pod";
    ask.taskClass = taskClass_;
    if (limits.core) {
      return refuse(kind + " must not ask for " + name("qgpu-core") +
                    (online ? ": it gets all compute when it wants it; ask for qgpu-memory only"
                            : ": ask for qgpu-core-greedy instead"));
    }
    if (online && limits.greedy) {
      return refuse(kind + " must not ask for " + name("qgpu-core-greedy") +
                    ": that is for offline pods; ask for qgpu-memory only");
    }
    if (!limits.memory) {
      return refuse(kind + " needs " + name("qgpu-memory") + ", at least 1");
    }
    if (!online && !limits.greedy) {
      return refuse(kind + " needs " + name("qgpu-core-greedy") + ", 1 to 100");
    }
    if (!online && *limits.greedy > 100) {
      return refuse(name("qgpu-core-greedy") + " is " + std::to_string(*limits.greedy) +
                    ": an offline pod runs on one card, so at most 100");
    }
    std::int64_t gib = 0;
    if (Status done = memory(limits, gib); !done) return done;
    ask.mem = Bytes(gib * kGiB);
    ask.share = Permille(online ? 0 : *limits.greedy * 10);
    return ok();
  }

  Status ordinaryAsk(const Amounts& limits, LedgerAsk& ask) const {
    const std::string annotation = rules_.prefix + "/app-class";
    if (limits.greedy) {
      return refuse(name("qgpu-core-greedy") + " is for offline pods: annotate the pod with " +
                    annotation + ": offline, or ask for qgpu-core");
    }
    if (!limits.core) {
      return refuse("qgpu-memory without qgpu-core: add " + name("qgpu-core") +
                    ", or annotate the pod with " + annotation + ": online");
    }
    const std::int64_t core = *limits.core;
    const bool whole = core >= 100;
    if (whole && (core % 100 != 0 || core > kPercentMax)) {
      return refuse(name("qgpu-core") + " is " + std::to_string(core) +
                    ": it is 1 to 99 percent of one card, or N*100 for N whole cards");
    }
    if (!whole && !limits.memory) {
      return refuse("a part of a card needs " + name("qgpu-memory") + " as well, at least 1");
    }
    std::int64_t gib = 0;
    if (limits.memory) {
      if (Status done = memory(limits, gib); !done) return done;
    }
    ask.share = whole ? kWholeCard : Permille(core * 10);
    ask.cards = whole ? static_cast<std::uint32_t>(core / 100) : 1;
    ask.mem = Bytes(whole ? 0 : gib * kGiB);  // whole cards take all of it
    return ok();
  }

  const PodRules& rules_;
  const TaskClass taskClass_;
  std::string where_;
  std::string_view wholeCards_;
  bool ours_ = false;
  std::set<std::string_view> byMains_;                        // resources
  std::vector<std::pair<std::string, const char*>> byInits_;  // who asks for which
};

// Of the labels or annotations: what stands under `key`, empty where that is no text.
std::optional<std::string_view> entryOf(const element& metadata, const char* part,
                                        std::string_view key) {
  const auto entries = member(metadata, part);
  element value;
  if (!entries || !entries->is_object() || entries->at_key(key).get(value) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) text = "";
  return text;
}

std::string annotationIs(std::string_view key, std::string_view value) {
  return "annotation " + std::string(key) + " is '" + cut(value) + "': ";
}

bool isName(std::string_view text, std::size_t sizeMax) {
  return !text.empty() && text.size() <= sizeMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

Result<TaskClass> classOf(const element& metadata, const PodRules& rules) {
  const std::string key = rules.prefix + "/app-class";
  const std::optional<std::string_view> text = entryOf(metadata, "annotations", key);
  if (!text) return TaskClass::Ordinary;
  if (text == "online") return TaskClass::Online;
  if (text == "offline") return TaskClass::Offline;
  return invalid(annotationIs(key, *text) +
                 "it is online or offline, or absent for an ordinary pod");
}

std::string_view trimmed(std::string_view text) {
  const auto from = text.find_first_not_of(' ');
  if (from == std::string_view::npos) return "";
  return text.substr(from, text.find_last_not_of(' ') + 1 - from);
}

Result<std::vector<std::string>> modelsOf(const element& metadata) {
  std::vector<std::string> models;
  const std::optional<std::string_view> annotation =
      entryOf(metadata, "annotations", kModelsAnnotation);
  if (!annotation) return models;
  const std::string_view list = *annotation;
  const auto refuse = [&](const std::string& why) {
    return invalid(annotationIs(kModelsAnnotation, list) + why +
                   "; it names the models of cards, as in 'Tesla T4, A10'");
  };
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view model = trimmed(list.substr(at, end - at));
    if (!isName(model, kModelNameMax)) {
      return refuse("a name has 1 to " + std::to_string(kModelNameMax) + " characters of ASCII");
    }
    if (models.size() == kModelsMax) {
      return refuse("there are more than " + std::to_string(kModelsMax));
    }
    models.emplace_back(model);
    at = end + 1;
  }
  std::sort(models.begin(), models.end());
  models.erase(std::unique(models.begin(), models.end()), models.end());
  return models;
}

Result<std::uint32_t> groupSize(std::string_view text) {
  std::uint32_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc() && end == text.data() + text.size() && size >= 1 &&
      size <= kGroupSizeMax) {
    return size;
  }
  return invalid(annotationIs(kGroupSizeAnnotation, text) + "it is a whole number, 1 to " +
                 std::to_string(kGroupSizeMax));
}

Result<PodGroup> groupOf(const element& metadata) {
  const auto name = entryOf(metadata, "annotations", kGroupAnnotation);
  const auto by = entryOf(metadata, "annotations", kGroupByAnnotation);
  const auto size = entryOf(metadata, "annotations", kGroupSizeAnnotation);
  PodGroup group;
  if (!name && !by && !size) return group;
  if (name && by) {
    return invalid(std::string("annotations ") + kGroupAnnotation + " and " + kGroupByAnnotation +
                   " both name its group: write one of them");
  }
  if (!size || (!name && !by)) {
    return invalid(std::string("annotations ") + kGroupAnnotation + " (or " + kGroupByAnnotation +
                   ") and " + kGroupSizeAnnotation + " stand together, and one is missing");
  }
  const Result<std::uint32_t> number = groupSize(*size);
  if (!number) return number.error();
  group.size = *number;
  if (name) {
    if (!isName(*name, kGroupNameMax)) {
      return invalid(annotationIs(kGroupAnnotation, *name) + "a name has 1 to " +
                     std::to_string(kGroupNameMax) + " characters of ASCII");
    }
    group.name = *name;
    return group;
  }
  const std::string_view value = entryOf(metadata, "labels", *by).value_or("");
  if (!isName(value, kGroupNameMax)) {
    return invalid(annotationIs(kGroupByAnnotation, *by) +
                   "the pod has no label of this name with 1 to " + std::to_string(kGroupNameMax) +
                   " characters");
  }
  group.name = cut(*by) + "=" + std::string(value);
  return group;
}

std::string controllerOf(const element& metadata) {
  const auto owners = member(metadata, "ownerReferences");
  array list;
  if (!owners || owners->get(list) != simdjson::SUCCESS) return "";
  for (const element owner : list) {
    const auto controls = member(owner, "controller");
    bool yes = false;
    if (controls && controls->get(yes) == simdjson::SUCCESS && yes) {
      return std::string(textAt(owner, "uid").substr(0, 64));
    }
  }
  return "";
}

bool covers(const LedgerAsk& large, const LedgerAsk& small) {
  return isWhole(large) == isWhole(small) && large.cards >= small.cards &&
         large.share >= small.share && large.mem >= small.mem;
}

std::int64_t sizeOf(const LedgerAsk& ask) {
  return ask.mem.value / kGiB + (isWhole(ask) ? ask.cards * (std::int64_t{1} << 32) : 0);
}

// Init containers end before main ones start, and before each other: the largest of them first, so
// that smaller ones find it.
void shareRooms(std::vector<ContainerDemand>& containers) {
  std::vector<std::size_t> inits;
  std::vector<std::size_t> hosts;
  for (std::size_t i = 0; i < containers.size(); ++i) {
    if (containers[i].kind == ContainerKind::Init) inits.push_back(i);
    if (containers[i].kind == ContainerKind::Main) hosts.push_back(i);
  }
  std::stable_sort(inits.begin(), inits.end(), [&](std::size_t a, std::size_t b) {
    const LedgerAsk& one = containers[a].ask;
    const LedgerAsk& other = containers[b].ask;
    return std::pair(sizeOf(one), one.share.value) > std::pair(sizeOf(other), other.share.value);
  });
  for (const std::size_t init : inits) {
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&](std::size_t at) {
      return covers(containers[at].ask, containers[init].ask);
    });
    if (host != hosts.end())
      containers[init].sharesWith = *host;
    else
      hosts.push_back(init);
  }
}

// The rules that a pod breaks, as they are found: no two alike, and no more than are wanted.
class Broken {
 public:
  explicit Broken(std::size_t wanted) : wanted_(wanted) {}

  void add(std::string rule) {
    if (full() || std::find(rules_.begin(), rules_.end(), rule) != rules_.end()) return;
    rules_.push_back(std::move(rule));
  }
  bool any() const { return !rules_.empty(); }
  bool full() const { return rules_.size() >= wanted_; }
  std::vector<std::string> take() { return std::move(rules_); }

 private:
  const std::size_t wanted_;
  std::vector<std::string> rules_;
};

// Each container once, until enough is known.
void readList(const array& containers, bool inits, ContainerReader& reader, PodDemands& pod,
              Broken& broken) {
  std::size_t unfit = 0;
  for (const element container : containers) {
    auto demand = reader.read(container, inits);
    if (!demand) {
      ++unfit;
      broken.add(demand.error().message);
    } else if (*demand) {
      pod.containers.push_back(std::move(**demand));
    }
    if (pod.containers.size() + unfit > PodDemands::kContainersMax) {
      broken.add("more than " + std::to_string(PodDemands::kContainersMax) +
                 " containers ask for qgpu");
      return;
    }
    if (broken.full()) return;
  }
}

void readContainers(const element& spec, const PodRules& rules, PodDemands& pod, Broken& broken) {
  ContainerReader reader(rules, pod.taskClass);
  for (const char* part : {"initContainers", "containers"}) {
    const auto list = member(spec, part);
    if (!list || list->is_null()) continue;
    array containers;
    if (list->get(containers) != simdjson::SUCCESS) {
      return broken.add(std::string("spec.") + part + " is no list");
    }
    readList(containers, std::string_view(part) == "initContainers", reader, pod, broken);
  }
  pod.namesOurs = reader.sawOurs();
  // What follows is said of containers that were all understood.
  if (broken.any()) return;
  if (const std::string whole(reader.wholeCards()); !whole.empty() && !pod.containers.empty()) {
    broken.add("the pod asks for " + whole + " and for qgpu: a qgpu node serves no " + whole +
               ", so ask for whole cards by " + rules.prefix + "/qgpu-core: \"100\"");
  }
  if (Status done = reader.initsHaveMains(); !done) broken.add(done.error().message);
  shareRooms(pod.containers);
}

std::int32_t priorityOf(const element& spec) {
  std::int64_t priority = 0;
  const auto written = member(spec, "priority");
  if (!written || written->get(priority) != simdjson::SUCCESS) return 0;
  return std::in_range<std::int32_t>(priority) ? static_cast<std::int32_t>(priority) : 0;
}

void readNames(const element& metadata, PodDemands& pod) {
  pod.nameSpace = cut(textAt(metadata, "namespace"));
  pod.name = cut(textAt(metadata, "name"));
  pod.uid = cut(textAt(metadata, "uid"));
}

// The class is `as`, where one is given: the pod is bound then, and no model or group matters any
// more.
// Where the class is not known no container can be judged.
void readMetadata(const element& metadata, const PodRules& rules, std::optional<TaskClass> as,
                  PodDemands& pod, Broken& broken) {
  readNames(metadata, pod);
  pod.resourceVersion = cut(textAt(metadata, "resourceVersion"));
  pod.application = controllerOf(metadata);
  const Result<TaskClass> taskClass = as ? *as : classOf(metadata, rules);
  if (!taskClass) return broken.add(taskClass.error().message);
  pod.taskClass = *taskClass;
  if (!as) {
    Result<std::vector<std::string>> models = modelsOf(metadata);
    if (!models) return broken.add(models.error().message);
    pod.models = std::move(*models);
  }
  Result<PodGroup> group = groupOf(metadata);
  if (group)
    pod.group = std::move(*group);
  else if (!as)
    return broken.add(group.error().message);
  pod.assigned = entryOf(metadata, "annotations", kAssignedAnnotation).value_or("");
}

PodDemands readDocument(const element& root, const PodRules& rules, Broken& broken,
                        std::optional<TaskClass> as = std::nullopt) {
  PodDemands pod;
  if (!root.is_object()) {
    broken.add("the pod is no JSON object");
    return pod;
  }
  if (member(root, "annotations")) {
    broken.add(
        "annotations stand beside metadata: write them under metadata, where the API "
        "server keeps them");
    return pod;
  }
  const auto metadata = member(root, "metadata");
  if (metadata && metadata->is_object()) readMetadata(*metadata, rules, as, pod, broken);
  const auto spec = member(root, "spec");
  if (broken.any() || !spec || !spec->is_object()) return pod;
  pod.nodeName = cut(textAt(*spec, "nodeName"));
  pod.priority = priorityOf(*spec);
  readContainers(*spec, rules, pod, broken);
  return pod;
}

Status parsePod(simdjson::dom::parser& parser, std::string_view json, element& root) {
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error == simdjson::SUCCESS) return ok();
  return invalid(std::string("the pod is no JSON object: ") + simdjson::error_message(error));
}

Result<PodDemands> readAs(const element& root, const PodRules& rules, std::optional<TaskClass> as) {
  Broken broken(1);
  PodDemands pod = readDocument(root, rules, broken, as);
  if (broken.any()) return invalid(broken.take().front());
  return pod;
}

}  // namespace

PodDemands podNamed(std::string_view json) {
  PodDemands pod;
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) return pod;
  if (const auto metadata = member(root, "metadata")) readNames(*metadata, pod);
  return pod;
}

Result<PodDemands> readPod(std::string_view json, const PodRules& rules) {
  simdjson::dom::parser parser;
  element root;
  if (Status read = parsePod(parser, json, root); !read) return read.error();
  return readAs(root, rules, std::nullopt);
}

Result<PodDemands> readHeldPod(std::string_view json, const PodRules& rules) {
  simdjson::dom::parser parser;
  element root;
  if (Status read = parsePod(parser, json, root); !read) return read.error();
  return readHeldPod(root, rules);
}

// What asks for something of ours keeps the rules of one class alone.
Result<PodDemands> readHeldPod(const element& root, const PodRules& rules) {
  Result<PodDemands> annotated = readAs(root, rules, std::nullopt);
  if (annotated) return annotated;
  Broken ignored(1);
  const PodDemands pod = readDocument(root, rules, ignored, TaskClass::Ordinary);
  if (pod.nodeName.empty() || pod.assigned.empty()) return annotated;
  for (const TaskClass bound : {TaskClass::Ordinary, TaskClass::Online, TaskClass::Offline}) {
    auto read = readAs(root, rules, bound);
    if (read) return read;
  }
  return annotated;
}

std::vector<std::string> brokenRules(const element& pod, const PodRules& rules) {
  Broken broken(kBrokenRulesMax);
  readDocument(pod, rules, broken);
  return broken.take();
}

}  // namespace qgpu
