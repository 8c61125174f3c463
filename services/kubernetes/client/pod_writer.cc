#include "services/kubernetes/client/pod_writer.h"

#include <algorithm>
#include <simdjson.h>
#include <time.h>

#include "services/base/json.h"
#include "services/base/wall_time.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {
namespace {

constexpr std::size_t kEventTextMax = 1'024;
constexpr std::size_t kNameMax = 200;  // of a pod, within its event's name

std::string podPath(const PodRef& pod) {
  return "/api/v1/namespaces/" + urlEscaped(pod.nameSpace) + "/pods/" + urlEscaped(pod.name);
}

std::string hex(std::uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kDigits[(number >> (60 - 4 * i)) & 15];
  return out;
}

// At most `most` bytes, cut where no UTF-8 sequence is.
std::string cut(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

struct PodNow {
  std::string uid;
  std::string version;
  std::string node;
  bool assigned = false;
  bool over = false;
};
PodNow readPodNow(const std::string& body) {
  PodNow now;
  simdjson::dom::parser parser;
  simdjson::dom::element pod;
  if (parser.parse(body).get(pod) != simdjson::SUCCESS) return now;
  std::string_view text;
  if (pod["metadata"]["uid"].get(text) == simdjson::SUCCESS) now.uid = text;
  if (pod["metadata"]["resourceVersion"].get(text) == simdjson::SUCCESS) now.version = text;
  if (pod["spec"]["nodeName"].get(text) == simdjson::SUCCESS) now.node = text;
  if (pod["status"]["phase"].get(text) == simdjson::SUCCESS) {
    now.over = text == "Succeeded" || text == "Failed";
  }
  simdjson::dom::object annotations;
  if (pod["metadata"]["annotations"].get(annotations) == simdjson::SUCCESS) {
    now.assigned = annotations[kAssignedAnnotation].error() == simdjson::SUCCESS;
  }
  return now;
}

void writeAnnotations(JsonWriter& json, const std::vector<AnnotationChange>& changes) {
  json.key("annotations").beginObject();
  for (const AnnotationChange& change : changes) {
    json.key(change.key);
    if (change.value) {
      json.string(*change.value);
    } else {
      json.null();
    }
  }
  json.endObject();
}

// Where an event stands: of a node, as kubelet tells them, in "default".
std::string eventSpace(const PodRef& pod) {
  return pod.nameSpace.empty() ? "default" : pod.nameSpace;
}

}  // namespace

PodWriter::PodWriter(ApiClient& api, std::string component, std::string host,
                     PodWriterLimits limits)
    : api_(api),
      component_(std::move(component)),
      host_(std::move(host)),
      limits_(limits),
      names_(api.random()),
      backoff_(api.backoff(limits.retryFirst, limits.retryMost)),
      burst_(limits.eventBurst),
      tasks_(*this) {}

// --- calls ---

kj::Promise<Status> PodWriter::write(ApiCall call, PodRef pod, std::string node) {
  if (calls_ >= limits_.callsMax) {
    return Status(fail(ErrorCode::Overloaded, "too many calls to the API server wait already"));
  }
  ++calls_;
  return api_.call(std::move(call))
      .then([this, pod = std::move(pod),
             node = std::move(node)](ApiAnswer answer) mutable -> kj::Promise<Status> {
        if (answer.ok()) return ok();
        // Who names another UID is told of a conflict, or that a UID never changes.
        const bool clash = answer.fault == ApiFault::Conflict || answer.fault == ApiFault::Refused;
        if (!clash) return Status(answer.error());
        return lookAgain(std::move(pod), std::move(node), answer.error());
      })
      .attach(kj::defer([this]() { --calls_; }));
}

// A refusal may be another pod under this name, or that it was done before.
kj::Promise<Status> PodWriter::lookAgain(PodRef pod, std::string node, Error refused) {
  auto seen = api_.get(podPath(pod));
  return seen.then([pod = std::move(pod), node = std::move(node),
                    refused = std::move(refused)](ApiAnswer answer) -> Status {
    if (answer.fault == ApiFault::NotFound) return answer.error();
    const bool known = refused.code == ErrorCode::InvalidArgument;  // whatever the pod is now
    if (!answer.ok()) return known ? refused : fail(ErrorCode::Unavailable, answer.message);
    const PodNow now = readPodNow(answer.body);
    if (now.uid != pod.uid) {
      return fail(ErrorCode::NotFound, "pod " + pod.nameSpace + "/" + pod.name +
                                           " is another one now: its uid is " + now.uid);
    }
    if (!node.empty() && now.node == node) return ok();
    return refused;
  });
}

kj::Promise<Result<std::string>> PodWriter::readPod(PodRef pod) {
  return api_.get(podPath(pod)).then([](ApiAnswer answer) -> Result<std::string> {
    if (!answer.ok()) return answer.error();
    return std::move(answer.body);
  });
}

kj::Promise<Status> PodWriter::annotatePod(PodRef pod, std::vector<AnnotationChange> changes,
                                           std::string resourceVersion) {
  JsonWriter json;
  json.beginObject().key("metadata").beginObject().field("uid", pod.uid);
  if (!resourceVersion.empty()) json.field("resourceVersion", resourceVersion);
  writeAnnotations(json, changes);
  json.endObject().endObject();
  ApiCall call{kj::HttpMethod::PATCH, podPath(pod) + "/status", json.take(), kMergePatch};
  return write(std::move(call), std::move(pod), "");
}

kj::Promise<Status> PodWriter::annotateNode(std::string node,
                                            std::vector<AnnotationChange> changes) {
  JsonWriter json;
  writeAnnotations(json.beginObject().key("metadata").beginObject(), changes);
  json.endObject().endObject();
  ApiCall call{kj::HttpMethod::PATCH, "/api/v1/nodes/" + urlEscaped(node) + "/status", json.take(),
               kMergePatch};
  return api_.call(std::move(call)).then([](ApiAnswer answer) -> Status {
    if (!answer.ok()) return answer.error();
    return ok();
  });
}

kj::Promise<Result<bool>> PodWriter::settle(PodRef pod, std::string node) {
  return api_.get(podPath(pod))
      .then([this, pod, node](ApiAnswer answer) -> kj::Promise<Result<bool>> {
        if (answer.fault == ApiFault::NotFound) return Result<bool>(false);
        if (!answer.ok()) return Result<bool>(answer.error());
        const PodNow now = readPodNow(answer.body);
        if (now.uid.empty()) {
          return Result<bool>(fail(ErrorCode::Corrupt, "an answer that is no pod"));
        }
        if (now.uid != pod.uid) return Result<bool>(false);
        if (now.over) return Result<bool>(false);
        if (!now.node.empty()) return Result<bool>(now.node == node && now.assigned);
        if (!now.assigned) return Result<bool>(false);
        return annotatePod(pod, {{kAssignedAnnotation, std::nullopt}}, now.version)
            .then([](Status taken) -> Result<bool> {
              if (taken || taken.error().code == ErrorCode::NotFound) return false;
              return taken.error();
            });
      });
}

kj::Promise<Status> PodWriter::bindPod(PodRef pod, std::string node) {
  JsonWriter json;
  json.beginObject().field("apiVersion", "v1").field("kind", "Binding");
  json.key("metadata").beginObject().field("name", pod.name).field("namespace", pod.nameSpace);
  json.field("uid", pod.uid).endObject();
  json.key("target").beginObject().field("apiVersion", "v1").field("kind", "Node");
  json.field("name", node).endObject().endObject();
  ApiCall call{kj::HttpMethod::POST, podPath(pod) + "/binding", json.take(), "application/json"};
  return write(std::move(call), std::move(pod), std::move(node));
}

ApiCall PodWriter::eviction(const PodRef& pod) const {
  JsonWriter json;
  json.beginObject().field("apiVersion", evictionVersion_).field("kind", "Eviction");
  json.key("metadata").beginObject().field("name", pod.name).field("namespace", pod.nameSpace);
  json.endObject().key("deleteOptions").beginObject().key("preconditions").beginObject();
  json.field("uid", pod.uid).endObject().endObject().endObject();
  return {kj::HttpMethod::POST, podPath(pod) + "/eviction", json.take(), "application/json"};
}

kj::Promise<Status> PodWriter::evictPod(PodRef pod) {
  auto call = eviction(pod);
  return write(std::move(call), pod, "").then([this, pod](Status status) -> kj::Promise<Status> {
    if (status || status.error().code == ErrorCode::NotFound) return ok();
    const bool old =
        status.error().code == ErrorCode::InvalidArgument && evictionVersion_ == kEvictionVersion;
    if (!old) return status;
    evictionVersion_ = kOldEvictionVersion;
    return evictPod(pod);
  });
}

// --- events ---

void PodWriter::tellPod(PodEvent event) {
  counts_[event.reason] += event.times;
  event.message = cut(event.message, kEventTextMax);
  const std::string key =
      event.pod.uid + "\n" + eventEntry(event.reason).name + "\n" + cut(event.about, kEventTextMax);
  const std::int64_t now = unixMsNow();
  auto found = told_.find(key);
  if (found == told_.end()) {
    if (waiting_.size() >= limits_.eventsMax) {
      ++dropped_;
      return;
    }
    while (told_.size() >= limits_.repeatsMax) forgetOldest();
    found = told_.emplace(key, Told{event, "", 0, now, now, false}).first;
    order_.push_back(key);
  }
  Told& told = found->second;
  told.event.message = std::move(event.message);
  told.count += event.times;
  told.lastUnixMs = now;
  if (told.waits) return;
  if (waiting_.size() >= limits_.eventsMax) {
    ++dropped_;
    return;
  }
  told.waits = true;
  waiting_.push_back(key);
  if (sending_) return;
  sending_ = true;
  tasks_.add(sendEvents());
}

// Those that wait are younger than what may be forgotten, since fewer wait than are remembered.
void PodWriter::forgetOldest() {
  const std::string key = order_.front();
  order_.pop_front();
  if (told_.at(key).waits) {
    order_.push_back(key);
    return;
  }
  told_.erase(key);
}

kj::Promise<void> PodWriter::pause(Nanos time) {
  return api_.timer().afterDelay(time.value * kj::NANOSECONDS);
}

kj::Promise<void> PodWriter::sendEvents() {
  if (waiting_.empty()) {
    // The burst is refilled while nothing is said, one for each pause.
    if (burst_ >= limits_.eventBurst) {
      sending_ = false;
      return kj::READY_NOW;
    }
    ++burst_;
    return pause(limits_.eventEvery).then([this]() { return sendEvents(); });
  }
  if (burst_ == 0) {
    ++burst_;
    return pause(limits_.eventEvery).then([this]() { return sendEvents(); });
  }
  --burst_;
  std::string key = std::move(waiting_.front());
  waiting_.pop_front();
  return sendEvent(key).then([this]() { return sendEvents(); });
}

kj::Promise<void> PodWriter::sendEvent(const std::string& key) {
  Told& told = told_.at(key);
  told.waits = false;
  const bool first = told.name.empty();
  return api_.call(first ? created(told) : counted(told))
      .then([this, key, first](ApiAnswer answer) -> kj::Promise<void> {
        const bool again = answer.fault == ApiFault::Unreachable ||
                           answer.fault == ApiFault::Busy || answer.fault == ApiFault::ServerFault;
        const bool forgotten = answer.fault == ApiFault::NotFound && !first;  // the server keeps
        const auto found = told_.find(key);                                   // them for an hour
        if (!again && !forgotten) {
          backoff_.reset();
          ++(answer.ok() ? sent_ : dropped_);
          return kj::READY_NOW;
        }
        if (found == told_.end()) return kj::READY_NOW;
        if (first || forgotten) found->second.name.clear();
        if (!found->second.waits) {
          found->second.waits = true;
          waiting_.push_front(key);
        }
        return again ? pause(backoff_.next()) : kj::Promise<void>(kj::READY_NOW);
      });
}

ApiCall PodWriter::created(Told& told) {
  const PodRef& pod = told.event.pod;
  const bool ofNode = pod.nameSpace.empty();
  const std::string nameSpace = eventSpace(pod);
  told.name = cut(pod.name, kNameMax) + "." + hex(names_.next());
  JsonWriter json;
  json.beginObject().field("apiVersion", "v1").field("kind", "Event");
  json.key("metadata").beginObject().field("name", told.name).field("namespace", nameSpace);
  const EventEntry& entry = eventEntry(told.event.reason);
  const bool ofClaim = entry.of == EventOf::Claim;
  json.endObject().key("involvedObject").beginObject();
  json.field("apiVersion", ofClaim ? "resource.k8s.io/v1" : "v1");
  json.field("kind", ofClaim ? "ResourceClaim" : ofNode ? "Node" : "Pod");
  if (!ofNode) json.field("namespace", pod.nameSpace);
  json.field("name", pod.name);
  json.field("uid", pod.uid).endObject();
  json.field("type", entry.type == EventType::Normal ? "Normal" : "Warning");
  json.field("reason", entry.name).field("message", told.event.message);
  json.key("source").beginObject().field("component", component_).field("host", host_).endObject();
  json.field("reportingComponent", component_).field("reportingInstance", host_);
  json.field("firstTimestamp", rfc3339(told.firstUnixMs));
  json.field("lastTimestamp", rfc3339(told.lastUnixMs)).count("count", told.count).endObject();
  return {kj::HttpMethod::POST, "/api/v1/namespaces/" + urlEscaped(nameSpace) + "/events",
          json.take(), "application/json"};
}

ApiCall PodWriter::counted(const Told& told) const {
  JsonWriter json;
  json.beginObject().count("count", told.count).field("message", told.event.message);
  json.field("lastTimestamp", rfc3339(told.lastUnixMs)).endObject();
  return {kj::HttpMethod::PATCH,
          "/api/v1/namespaces/" + urlEscaped(eventSpace(told.event.pod)) + "/events/" +
              urlEscaped(told.name),
          json.take(), kStrategicPatch};
}

void PodWriter::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "sending events handles its own failures");
}

}  // namespace qgpu
