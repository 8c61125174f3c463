#include "services/kubernetes/pods/kube_objects.h"

#include <algorithm>
#include <simdjson.h>

#include "services/kubernetes/pods/cards_annotation.h"
#include "services/kubernetes/pods/kube_names.h"

namespace qgpu {
namespace {

namespace od = simdjson::ondemand;

constexpr const char* kClaimsLabel = "qgpu.io/claims";
constexpr const char* kMixedLabel = "mixed-qgpu-enable";

// The text of a value, or nothing where it is null or of another kind.
std::string textOf(od::value value) {
  std::string_view words;
  if (value.get_string().get(words) != simdjson::SUCCESS) return "";
  return std::string(words);
}

std::string_view rawOf(od::value value) {
  od::object object = value.get_object();
  return object.raw_json();
}

// Each pair of an object; of null none.
template <typename Take>
void eachField(od::value value, Take take) {
  if (value.type() != od::json_type::object) return;
  for (auto field : value.get_object()) take(field.unescaped_key().value(), field.value());
}
template <typename Take>
void eachEntry(od::value value, Take take) {
  if (value.type() != od::json_type::array) return;
  for (auto entry : value.get_array()) take(entry.value());
}

struct Meta {
  std::string resourceVersion;
  std::string next;
};
Meta readMeta(od::value value) {
  Meta meta;
  eachField(value, [&](std::string_view key, od::value field) {
    if (key == "resourceVersion") meta.resourceVersion = textOf(field);
    if (key == "continue") meta.next = textOf(field);
  });
  return meta;
}

// --- nodes ---

void readNodeMeta(od::value value, const std::string& policyLabel, KubeNode& to) {
  eachField(value, [&](std::string_view key, od::value field) {
    if (key == "name") to.name = textOf(field);
    if (key == "uid") to.uid = textOf(field);
    if (key == "resourceVersion") to.resourceVersion = textOf(field);
    if (key == "annotations") {
      eachField(field, [&](std::string_view name, od::value text) {
        if (name == kCardsAnnotation) to.cards = textOf(text);
        if (name == kCordonedAnnotation) to.cordoned = textOf(text);
      });
    }
    if (key != "labels") return;
    eachField(field, [&](std::string_view name, od::value text) {
      if (name == kEnableLabel) {
        to.labelled = true;
        to.enabled = textOf(text) == "enable";
      }
      if (name == kClaimsLabel) to.claims = textOf(text) == "enable";
      if (name == kMixedLabel) to.mixed = textOf(text) == "enable";
      if (name == policyLabel) to.policy = textOf(text);
    });
  });
}

void readNodeStatus(od::value value, KubeNode& to) {
  eachField(value, [&](std::string_view key, od::value field) {
    if (key == "allocatable") {
      eachField(field, [&](std::string_view name, od::value count) {
        if (isWholeCards(name) && textOf(count) != "0") to.wholeCards = std::string(name);
      });
    }
    if (key == "nodeInfo") {
      eachField(field, [&](std::string_view name, od::value text) {
        if (name == "containerRuntimeVersion") to.runtime = textOf(text);
      });
    }
    if (key != "conditions") return;
    eachEntry(field, [&](od::value condition) {
      std::string type, status;
      eachField(condition, [&](std::string_view name, od::value text) {
        if (name == "type") type = textOf(text);
        if (name == "status") status = textOf(text);
      });
      if (type == "Ready") to.ready = status == "True";
    });
  });
}

KubeNode readNode(od::value value, const std::string& policyLabel) {
  KubeNode node;
  eachField(value, [&](std::string_view key, od::value field) {
    if (key == "metadata") readNodeMeta(field, policyLabel, node);
    if (key == "status") readNodeStatus(field, node);
    if (key != "spec") return;
    eachField(field, [&](std::string_view name, od::value flag) {
      bool set = false;
      if (name == "unschedulable" && flag.get_bool().get(set) == simdjson::SUCCESS) {
        node.unschedulable = set;
      }
    });
  });
  return node;
}

// --- pods ---

void readEnded(od::value statuses, std::vector<std::string>& to) {
  eachEntry(statuses, [&](od::value status) {
    std::string name;
    bool ended = false;
    eachField(status, [&](std::string_view key, od::value field) {
      if (key == "name") name = textOf(field);
      if (key != "state") return;
      eachField(field, [&](std::string_view state, od::value) { ended |= state == "terminated"; });
    });
    if (ended) to.push_back(std::move(name));
  });
}

// A container that will be started again has not ended; `restarts`: spec.restartPolicy.
void readPodRest(od::value value, KubePod& to) {
  std::string restarts = "Always";
  std::vector<std::string> ended;
  eachField(value, [&](std::string_view key, od::value field) {
    if (key == "metadata") {
      eachField(field, [&](std::string_view name, od::value when) {
        if (name == "deletionTimestamp") to.deleting = !textOf(when).empty();
      });
    }
    if (key == "spec") {
      eachField(field, [&](std::string_view name, od::value part) {
        if (name == "restartPolicy") restarts = textOf(part);
        if (name == "schedulingGates") eachEntry(part, [&](od::value) { to.gated = true; });
      });
    }
    if (key != "status") return;
    eachField(field, [&](std::string_view name, od::value part) {
      if (name == "phase") {
        const std::string phase = textOf(part);
        to.over = phase == "Succeeded" || phase == "Failed";
      }
      if (name == "containerStatuses" || name == "initContainerStatuses") readEnded(part, ended);
    });
  });
  if (to.deleting || restarts == "Never") to.ended = std::move(ended);
}

}  // namespace

bool isRoomOver(const KubePod& pod, std::size_t container) {
  const auto& all = pod.demands.containers;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != container && all[i].sharesWith != container) continue;
    if (std::find(pod.ended.begin(), pod.ended.end(), all[i].name) == pod.ended.end()) return false;
  }
  return true;
}

struct KubeReader::Parts {
  explicit Parts(PodRules r)
      : rules(std::move(r)),
        policyLabel(rules.prefix + "/qgpu-schedule-policy"),
        resourceMark(rules.prefix + "/qgpu-") {}

  // False: nothing of ours is in it.
  bool take(od::value value, KubeNode& to) {
    to = readNode(value, policyLabel);
    return true;
  }
  bool take(od::value value, KubePod& to) {
    const std::string_view raw = rawOf(value);
    if (raw.find(resourceMark) == std::string_view::npos &&
        raw.find(kAssignedAnnotation) == std::string_view::npos) {
      return false;
    }
    auto demands = readHeldPod(raw, rules);
    if (!demands) {  // it is refused, and never holds anything
      to.demands = podNamed(raw);
      return false;
    }
    to.demands = std::move(*demands);
    rest.assign(raw);
    rest.reserve(raw.size() + simdjson::SIMDJSON_PADDING);
    od::document document =
        second.iterate(rest.data(), rest.size(), rest.size() + simdjson::SIMDJSON_PADDING);
    readPodRest(document.get_value(), to);
    return true;
  }

  template <typename Object>
  void readPage(std::string& body, KubePage<Object>& page) {
    body.reserve(body.size() + simdjson::SIMDJSON_PADDING);
    od::document document =
        first.iterate(body.data(), body.size(), body.size() + simdjson::SIMDJSON_PADDING);
    bool listed = false;
    for (auto field : document.get_object()) {
      const std::string_view key = field.unescaped_key().value();
      if (key == "metadata") {
        const Meta meta = readMeta(field.value());
        page.resourceVersion = meta.resourceVersion;
        page.next = meta.next;
      } else if (key == "items") {
        listed = true;
        eachEntry(field.value(), [&](od::value value) {
          Object object;
          if (take(value, object)) page.objects.push_back(std::move(object));
        });
      }
    }
    if (!listed || page.resourceVersion.empty()) throw std::runtime_error("it is no list");
  }

  template <typename Object>
  void readLine(std::string_view line, KubeLine<Object>& out) {
    od::document document =
        first.iterate(line.data(), line.size(), line.size() + simdjson::SIMDJSON_PADDING);
    od::object root = document.get_object();
    const std::string type = textOf(root.find_field_unordered("type").value());
    if (type == "ADDED")
      out.change = KubeChange::Added;
    else if (type == "MODIFIED")
      out.change = KubeChange::Modified;
    else if (type == "DELETED")
      out.change = KubeChange::Deleted;
    else if (type == "BOOKMARK")
      out.change = KubeChange::Bookmark;
    else if (type == "ERROR")
      out.change = KubeChange::Error;
    else
      throw std::runtime_error("an event of the type \"" + type.substr(0, 40) + "\"");
    od::value object = root.find_field_unordered("object").value();
    if (out.change == KubeChange::Error) return readError(object, out);
    const std::string_view raw = rawOf(object);
    out.resourceVersion = versionOf(raw);
    if (out.change == KubeChange::Bookmark) return;
    spare.assign(raw);
    spare.reserve(raw.size() + simdjson::SIMDJSON_PADDING);
    od::document inner =
        third.iterate(spare.data(), spare.size(), spare.size() + simdjson::SIMDJSON_PADDING);
    out.ours = take(inner.get_value(), out.object);
  }

  template <typename Object>
  void readError(od::value value, KubeLine<Object>& out) {
    eachField(value, [&](std::string_view key, od::value field) {
      std::uint64_t code = 0;
      if (key == "message") out.message = textOf(field);
      if (key == "code" && field.get_uint64().get(code) == simdjson::SUCCESS) {
        out.status = static_cast<unsigned>(code);
      }
    });
  }

  std::string versionOf(std::string_view raw) {
    spare.assign(raw);
    spare.reserve(raw.size() + simdjson::SIMDJSON_PADDING);
    od::document document =
        third.iterate(spare.data(), spare.size(), spare.size() + simdjson::SIMDJSON_PADDING);
    std::string version;
    for (auto field : document.get_object()) {
      if (field.unescaped_key().value() != "metadata") continue;
      version = readMeta(field.value()).resourceVersion;
      break;
    }
    if (version.empty()) throw std::runtime_error("an object without a resourceVersion");
    return version;
  }

  template <typename Work>
  static Status guarded(Work work) {
    try {
      work();
      return ok();
    } catch (const std::exception& e) {
      return fail(ErrorCode::Corrupt, std::string("the API server's JSON: ") + e.what());
    }
  }

  const PodRules rules;
  const std::string policyLabel;
  const std::string resourceMark;
  od::parser first, second, third;  // each has one document at a time
  std::string spare, rest;
};

KubeReader::KubeReader(PodRules rules) : parts_(std::make_unique<Parts>(std::move(rules))) {}
KubeReader::~KubeReader() = default;

Status KubeReader::read(std::string& body, KubePage<KubeNode>& page) {
  return Parts::guarded([&] { parts_->readPage(body, page); });
}
Status KubeReader::read(std::string& body, KubePage<KubePod>& page) {
  return Parts::guarded([&] { parts_->readPage(body, page); });
}
Status KubeReader::read(std::string_view line, KubeLine<KubeNode>& out) {
  return Parts::guarded([&] { parts_->readLine(line, out); });
}
Status KubeReader::read(std::string_view line, KubeLine<KubePod>& out) {
  return Parts::guarded([&] { parts_->readLine(line, out); });
}

}  // namespace qgpu
