#include "services/kubernetes/client/testing/api_stand_in.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace qgpu::testing {
namespace {

std::string text(kj::StringPtr words) {
  return std::string(words.begin(), words.size());
}

Json failure(unsigned code, const std::string& reason, const std::string& message) {
  return Json{{"kind", "Status"},    {"apiVersion", "v1"}, {"metadata", Json::object()},
              {"status", "Failure"}, {"message", message}, {"reason", reason},
              {"code", code}};
}
Json success() {
  return Json{{"kind", "Status"},
              {"apiVersion", "v1"},
              {"metadata", Json::object()},
              {"status", "Success"}};
}
Json created() {
  Json status = success();
  status["code"] = 201;
  return status;
}

std::string groupVersion(const ApiPath& path) {
  const std::string group = path.collection->group;
  return group.empty() ? path.version : group + "/" + path.version;
}

// An object by itself says what it is; those of a list do not. `object` is one of objects_: never
// empty.
std::string withItsKind(const ApiPath& path, const std::string& object) {
  return R"({"kind":")" + std::string(path.collection->kind) + R"(","apiVersion":")" +
         groupVersion(path) + R"(",)" + object.substr(1);
}

std::uint64_t numberOf(const std::string& words) {
  return words.empty() ? 0 : std::stoull(words);
}

// What is wrong with a body of another kind or version than its path; what it leaves out is what
// the path says. Empty: nothing is.
std::string otherKind(const ApiPath& path, const Json& object) {
  const bool evicts = path.sub == "eviction";
  const std::string kind = path.sub == "binding" ? "Binding"
                           : evicts              ? "Eviction"
                                                 : path.collection->kind;
  const std::string version = evicts ? "policy/v1" : groupVersion(path);
  const std::string saidKind = object.value("kind", kind);
  const std::string said = object.value("apiVersion", version);
  if (saidKind != kind || (evicts && said != "policy/v1" && said != "policy/v1beta1")) {
    return saidKind + " in version \"" + said.substr(said.find('/') + 1) +
           "\" cannot be handled as a " + kind;
  }
  if (said == version || evicts) return "";
  return "the API version in the data (" + said + ") does not match the expected API version (" +
         version + ")";
}

std::string cannotBeDone(const ApiPath& path, const std::string& what) {
  return "Operation cannot be fulfilled on " + what + " \"" + path.name + "\": ";
}
// Of a UID that is not the object's.
std::string otherUid(const ApiPath& path, const Json& wanted, const Json& before) {
  return cannotBeDone(path, path.resource()) +
         "StorageError: invalid object, Code: 4, Key: /registry/" + path.collection->name + "/" +
         path.key() +
         ", ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: " +
         wanted.get<std::string>() +
         ", UID in object meta: " + before["metadata"]["uid"].get<std::string>();
}
std::string isModified(const ApiPath& path) {
  return cannotBeDone(path, path.resource()) +
         "the object has been modified; please apply your changes to the latest version and try "
         "again";
}

// What a write by this path does not change: all but the status has one path, the status another,
// which both take metadata.
void keepApart(const ApiPath& path, const Json& before, Json& object) {
  if (!path.collection->keepsStatus) return;
  const char* kept = path.sub == "status" ? "spec" : "status";
  object.erase(kept);
  if (before.contains(kept)) object[kept] = before[kept];
}

}  // namespace

ApiStandIn::ApiStandIn(kj::Network& network, kj::Timer& timer, kj::Maybe<kj::TlsContext&> tls,
                       kj::WaitScope& scope)
    : network_(network), timer_(timer), tls_(tls) {
  kj::HttpHeaderTable::Builder builder;
  authorization_ = builder.add("Authorization");
  retryAfter_ = builder.add("Retry-After");
  table_ = builder.build();
  for (const ApiCollection& collection : apiCollections()) objects_[collection.name];
  listen(*network_.parseAddress("127.0.0.1").wait(scope));
  address_ = network_.parseAddress("127.0.0.1", port_).wait(scope);
}

ApiStandIn::~ApiStandIn() noexcept(false) {
  cut();
}

void ApiStandIn::listen(kj::NetworkAddress& address) {
  auto port = address.listen();
  port_ = port->getPort();
  KJ_IF_MAYBE (tls, tls_) port = tls->wrapPort(kj::mv(port));
  server_ = kj::heap<kj::HttpServer>(timer_, *table_, static_cast<kj::HttpService&>(*this));
  tasks_ = kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this));
  tasks_->add(server_->listenHttp(*port).attach(kj::mv(port)));
}

void ApiStandIn::cut() {
  tasks_ = nullptr;
  server_ = nullptr;
  watchers_.clear();
}

void ApiStandIn::restart() {
  listen(*address_);
}

void ApiStandIn::taskFailed(kj::Exception&&) {}

// --- objects ---

std::string ApiStandIn::keyOf(const Json& object) {
  const Json& meta = object.at("metadata");
  return meta.value("namespace", "") + "/" + meta.at("name").get<std::string>();
}

void ApiStandIn::tell(Change change) {
  history_.push_back(std::move(change));
  if (history_.size() > 10'000) {
    forgotten_ = history_.front().version;
    history_.pop_front();
  }
  for (Watcher* watcher : watchers_) {
    const std::string line = lineFor(*watcher, history_.back());
    if (line.empty()) continue;
    watcher->lines.push_back(line);
    KJ_IF_MAYBE (woken, watcher->woken) (*woken)->fulfill();
  }
}

// Empty: it is none of its own. To a watch by fields an object comes and goes with them, and what
// goes is told as it was, with its new version.
std::string ApiStandIn::lineFor(const Watcher& watcher, const Change& change) {
  if (watcher.path.collection->name != change.collection) return "";
  const std::string& space = watcher.path.nameSpace;
  if (!space.empty() && space != change.nameSpace) return "";
  std::string type = change.type, object = change.after;
  if (!watcher.selector.isEmpty()) {
    const bool was = !change.before.empty() && watcher.selector.matches(Json::parse(change.before));
    const bool is = type != "DELETED" && watcher.selector.matches(Json::parse(change.after));
    if (!was && !is) return "";
    if (!is && type != "DELETED") {
      Json last = Json::parse(change.before);
      last["metadata"]["resourceVersion"] = std::to_string(change.version);
      object = last.dump();
    }
    type = !is ? "DELETED" : was ? "MODIFIED" : "ADDED";
  }
  return "{\"type\":\"" + type + "\",\"object\":" + withItsKind(watcher.path, object) + "}\n";
}

void ApiStandIn::put(const std::string& collection, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  object.erase("kind");
  object.erase("apiVersion");
  Stored& stored = objects_.at(collection)[keyOf(object)];
  const bool added = stored.version == 0;
  std::string before = std::move(stored.text);
  stored = {object.dump(), version_};
  tell({version_, collection, object["metadata"].value("namespace", ""),
        added ? "ADDED" : "MODIFIED", std::move(before), stored.text});
}

void ApiStandIn::remove(const std::string& collection, const std::string& nameSpace,
                        const std::string& name) {
  auto& objects = objects_.at(collection);
  const auto found = objects.find(nameSpace + "/" + name);
  if (found == objects.end()) return;
  std::string before = std::move(found->second.text);
  Json object = Json::parse(before);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects.erase(found);
  tell({version_, collection, nameSpace, "DELETED", std::move(before), object.dump()});
}

Json ApiStandIn::find(const std::string& collection, const std::string& nameSpace,
                      const std::string& name) const {
  const auto& objects = objects_.at(collection);
  const auto found = objects.find(nameSpace + "/" + name);
  return found == objects.end() ? Json() : Json::parse(found->second.text);
}

std::vector<Json> ApiStandIn::all(const std::string& collection) const {
  std::vector<Json> out;
  for (const auto& [key, stored] : objects_.at(collection)) {
    out.push_back(Json::parse(stored.text));
  }
  return out;
}

// --- watches ---

void ApiStandIn::sayToWatches(const std::string& line) {
  for (Watcher* watcher : watchers_) {
    watcher->lines.push_back(line + "\n");
    KJ_IF_MAYBE (woken, watcher->woken) (*woken)->fulfill();
  }
}

void ApiStandIn::setLate(bool late) {
  late_ = late;
  for (Watcher* watcher : watchers_) {
    KJ_IF_MAYBE (woken, watcher->woken) (*woken)->fulfill();
  }
}

void ApiStandIn::bookmark() {
  for (Watcher* watcher : watchers_) {
    if (!watcher->bookmarks) continue;
    const Json meta{{"resourceVersion", std::to_string(version_)}, {"creationTimestamp", nullptr}};
    const Json object{{"kind", watcher->path.collection->kind}, {"metadata", meta}};
    watcher->lines.push_back(Json{{"type", "BOOKMARK"}, {"object", object}}.dump() + "\n");
    KJ_IF_MAYBE (woken, watcher->woken) (*woken)->fulfill();
  }
}

void ApiStandIn::forget() {
  history_.clear();
  forgotten_ = ++version_;
}

void ApiStandIn::endWatches() {
  for (Watcher* watcher : watchers_) {
    watcher->over = true;
    KJ_IF_MAYBE (woken, watcher->woken) (*woken)->fulfill();
  }
}

kj::Promise<void> ApiStandIn::watch(const ApiPath& path, FieldSelector selector,
                                    Response& response) {
  const std::uint64_t since = numberOf(path.asked("resourceVersion"));
  auto watcher = kj::heap<Watcher>();
  watcher->path = path;
  watcher->selector = std::move(selector);
  watcher->bookmarks = path.yes("allowWatchBookmarks");
  if (since < forgotten_) {
    watcher->over = true;
    const std::string why = "too old resource version: " + std::to_string(since) + " (" +
                            std::to_string(forgotten_) + ")";
    watcher->lines.push_back(
        Json{{"type", "ERROR"}, {"object", failure(410, "Expired", why)}}.dump() + "\n");
  }
  for (const Change& change : history_) {
    if (change.version <= since || watcher->over) continue;
    const std::string line = lineFor(*watcher, change);
    if (!line.empty()) watcher->lines.push_back(line);
  }
  kj::HttpHeaders headers(*table_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json");
  auto stream = response.send(200, "OK", headers);
  Watcher& ref = *watcher;
  watchers_.insert(&ref);
  ++begun_;
  if (const auto limit = numberOf(path.asked("timeoutSeconds")); limit != 0) {
    auto late = timer_.afterDelay(static_cast<std::int64_t>(limit) * kj::SECONDS);
    return feed(kj::mv(stream), ref)
        .exclusiveJoin(kj::mv(late))
        .attach(kj::defer([this, &ref]() { watchers_.erase(&ref); }), kj::mv(watcher));
  }
  return feed(kj::mv(stream), ref)
      .attach(kj::defer([this, &ref]() { watchers_.erase(&ref); }), kj::mv(watcher));
}

kj::Promise<void> ApiStandIn::feed(kj::Own<kj::AsyncOutputStream> stream, Watcher& watcher) {
  if (watcher.lines.empty() && watcher.over) return kj::READY_NOW;
  if (watcher.lines.empty() || late_) {
    auto paf = kj::newPromiseAndFulfiller<void>();
    watcher.woken = kj::mv(paf.fulfiller);
    return paf.promise.then([this, stream = kj::mv(stream), &watcher]() mutable {
      watcher.woken = nullptr;
      return feed(kj::mv(stream), watcher);
    });
  }
  auto lines = kj::heap<std::string>();
  while (!watcher.lines.empty() && lines->size() < 256 * 1024) {
    *lines += watcher.lines.front();
    watcher.lines.pop_front();
  }
  auto written = stream->write(lines->data(), lines->size()).attach(kj::mv(lines));
  return written.then([this, stream = kj::mv(stream), &watcher]() mutable {
    return feed(kj::mv(stream), watcher);
  });
}

// --- requests ---

kj::Promise<void> ApiStandIn::request(kj::HttpMethod method, kj::StringPtr url,
                                      const kj::HttpHeaders& headers, kj::AsyncInputStream& body,
                                      Response& response) {
  const std::string path = text(url);
  heard.push_back(text(kj::str(method)) + " " + path);
  if (onRequest) onRequest();
  std::string type, bearer;
  KJ_IF_MAYBE (given, headers.get(kj::HttpHeaderId::CONTENT_TYPE)) type = text(*given);
  KJ_IF_MAYBE (given, headers.get(authorization_)) bearer = text(*given);
  return body.readAllText().then(
      [this, method, path, type, bearer, &response](kj::String said) -> kj::Promise<void> {
        if (!type.empty()) {
          types.push_back(type);
          lastBody = text(said);
        }
        if (!token.empty() && bearer != "Bearer " + token) {
          return send(response, refuse(401, "Unauthorized", "Unauthorized"));
        }
        if (!refusals.empty()) {
          const Refusal refusal = refusals.front();
          refusals.pop_front();
          Reply reply = refuse(refusal.status, refusal.reason, refusal.message);
          reply.retryAfter = refusal.retryAfter;
          return send(response, std::move(reply));
        }
        if (path == "/version") {
          const Json version{{"major", "1"}, {"minor", minor}};
          return send(response, {200, version.dump(), ""});
        }
        const ApiPath meant = ApiPath::parse(path);
        FieldSelector selector;
        if (auto reply = refused(method, meant, bearer, selector)) {
          return send(response, std::move(*reply));
        }
        if (meant.verb(method) == "watch") return watch(meant, std::move(selector), response);
        Reply reply = answer(method, meant, selector, type, text(said));
        if (onDone) onDone(text(kj::str(method)) + " " + path);
        return send(response, std::move(reply));
      });
}

kj::Promise<void> ApiStandIn::send(Response& response, Reply reply) {
  kj::HttpHeaders headers(*table_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json");
  if (!reply.retryAfter.empty()) headers.set(retryAfter_, kj::str(reply.retryAfter.c_str()));
  auto body = kj::heap<std::string>(std::move(reply.body));
  auto stream = response.send(reply.status, "said", headers, body->size());
  auto written = stream->write(body->data(), body->size());
  return written.attach(kj::mv(stream), kj::mv(body));
}

ApiStandIn::Reply ApiStandIn::refuse(unsigned status, const std::string& reason,
                                     const std::string& message) {
  return {status, failure(status, reason, message).dump(), ""};
}

std::optional<ApiStandIn::Reply> ApiStandIn::refused(kj::HttpMethod method, const ApiPath& path,
                                                     const std::string& bearer,
                                                     FieldSelector& selector) {
  const std::string account = bearer.starts_with("Bearer ") ? bearer.substr(7) : "";
  if (roles && !roles->knows(account)) return refuse(401, "Unauthorized", "Unauthorized");
  if (path.collection == nullptr) {
    return refuse(404, "NotFound", "the server could not find the requested resource");
  }
  uses.insert({account, path.verb(method), path.collection->group,
               path.collection->name + (path.sub.empty() ? "" : "/" + path.sub), path.nameSpace,
               path.name});
  std::string why;
  auto fields = FieldSelector::parse(*path.collection, path.asked("fieldSelector"), why);
  if (!fields) return refuse(400, "BadRequest", why);
  selector = std::move(*fields);
  if (!roles) return std::nullopt;
  const std::string name = path.name.empty() ? selector.name() : path.name;
  why = roles->refusal(account, path.verb(method), path, name);
  if (why.empty()) return std::nullopt;
  return refuse(403, "Forbidden", why);
}

ApiStandIn::Reply ApiStandIn::answer(kj::HttpMethod method, const ApiPath& path,
                                     const FieldSelector& selector, const std::string& type,
                                     const std::string& body) {
  const std::string collection = path.collection->name;
  const auto& objects = objects_.at(collection);
  if (path.name.empty() && method == kj::HttpMethod::GET) return list(path, selector);
  const bool creates = method == kj::HttpMethod::POST;
  if (path.name.empty() && !creates) return refuse(405, "MethodNotAllowed", "not here");
  const auto found = objects.find(path.key());
  if (!path.name.empty() && found == objects.end()) {
    return refuse(404, "NotFound", path.resource() + " \"" + path.name + "\" not found");
  }
  if (method == kj::HttpMethod::GET) return {200, withItsKind(path, found->second.text), ""};
  if (method == kj::HttpMethod::DELETE) return end(path);
  Json said = Json::parse(body, nullptr, false);
  if (said.is_discarded()) return refuse(400, "BadRequest", "the body is no JSON");
  if (method == kj::HttpMethod::PATCH) return patch(path, type, said);
  if (const std::string why = otherKind(path, said); !why.empty()) {
    return refuse(400, "BadRequest", why);
  }
  if (creates) return create(path, std::move(said));
  if (method == kj::HttpMethod::PUT) return replace(path, std::move(said));
  return refuse(405, "MethodNotAllowed", "not here");
}

// A page's `continue` is the version of the first page and the key behind which the next begins.
ApiStandIn::Reply ApiStandIn::list(const ApiPath& path, const FieldSelector& selector) {
  const auto& objects = objects_.at(path.collection->name);
  const std::size_t limit = numberOf(path.asked("limit"));
  const std::string& from = path.asked("continue");
  std::uint64_t version = version_;
  auto at = objects.begin();
  if (!from.empty()) {
    const std::size_t colon = from.find(':');
    version = numberOf(from.substr(0, colon));
    if (version < forgotten_) {
      return refuse(410, "Expired",
                    "The provided continue parameter is too old to display a consistent list "
                    "result.");
    }
    at = objects.upper_bound(from.substr(colon + 1));
  }
  std::string items, next;
  std::size_t count = 0;
  for (; at != objects.end() && (limit == 0 || count < limit); ++at) {
    if (!path.nameSpace.empty() && !at->first.starts_with(path.nameSpace + "/")) continue;
    if (!selector.isEmpty() && !selector.matches(Json::parse(at->second.text))) continue;
    items += (count++ == 0 ? "" : ",") + at->second.text;
    next = at->first;
  }
  Json meta{{"resourceVersion", std::to_string(version)}};
  if (at != objects.end()) meta["continue"] = std::to_string(version) + ":" + next;
  return {200,
          R"({"kind":")" + std::string(path.collection->kind) + R"(List","apiVersion":")" +
              groupVersion(path) + R"(","metadata":)" + meta.dump() + R"(,"items":[)" + items +
              "]}",
          ""};
}

ApiStandIn::Reply ApiStandIn::create(const ApiPath& path, Json object) {
  if (path.sub == "binding") return bind(path, object);
  if (path.sub == "eviction") return evict(path, object);
  const std::string collection = path.collection->name;
  Json& meta = object["metadata"];
  if (!path.nameSpace.empty()) meta["namespace"] = path.nameSpace;
  if (!meta.contains("name")) {
    meta["name"] = meta.value("generateName", "x") + std::to_string(version_);
  }
  if (!find(collection, path.nameSpace, meta["name"]).is_null()) {
    return refuse(409, "AlreadyExists",
                  path.resource() + " \"" + std::string(meta["name"]) + "\" already exists");
  }
  char uid[40];
  std::snprintf(uid, sizeof uid, "a0000000-0000-4000-8000-%012" PRIx64, version_ + 1);
  meta["uid"] = uid;
  meta["creationTimestamp"] = "2026-01-01T00:00:00Z";
  if (collection == "pods") object["status"] = {{"phase", "Pending"}};
  if (collection == "namespaces") meta["labels"]["kubernetes.io/metadata.name"] = meta["name"];
  put(collection, object);
  return {201, whole(path, meta["name"]), ""};
}

std::string ApiStandIn::whole(const ApiPath& path, const std::string& name) const {
  return withItsKind(path, objects_.at(path.collection->name).at(path.nameSpace + "/" + name).text);
}

// What becomes of pods and devices is told by the object, of others that it is gone. A pod that is
// on a node stays until its kubelet takes it away.
ApiStandIn::Reply ApiStandIn::end(const ApiPath& path) {
  const std::string collection = path.collection->name;
  Json object = find(collection, path.nameSpace, path.name);
  const bool stays = collection == "pods" && object["spec"].contains("nodeName");
  if (stays) {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    put(collection, object);
  }
  const bool told =
      collection == "pods" || std::string(path.collection->group) == "resource.k8s.io";
  std::string last = told ? whole(path, path.name) : success().dump();
  if (!stays) remove(collection, path.nameSpace, path.name);
  return {200, std::move(last), ""};
}

ApiStandIn::Reply ApiStandIn::evict(const ApiPath& path, const Json& eviction) {
  Json pod = find("pods", path.nameSpace, path.name);
  const Json wanted = eviction.value("/deleteOptions/preconditions/uid"_json_pointer, Json());
  if (!wanted.is_null() && wanted != pod["metadata"]["uid"]) {
    return refuse(409, "Conflict",
                  cannotBeDone(path, "Pod") + "the UID in the precondition (" +
                      wanted.get<std::string>() + ") does not match the UID in record (" +
                      pod["metadata"]["uid"].get<std::string>() +
                      "). The object might have been deleted and then recreated");
  }
  ++evictions_;
  end(path);
  return {201, created().dump(), ""};
}

ApiStandIn::Reply ApiStandIn::bind(const ApiPath& path, const Json& binding) {
  Json pod = find("pods", path.nameSpace, path.name);
  const Json meta = binding.value("metadata", Json::object());
  if (meta.contains("uid") && meta["uid"] != pod["metadata"]["uid"]) {
    return refuse(409, "Conflict", otherUid(path, meta["uid"], pod));
  }
  if (pod["metadata"].contains("deletionTimestamp")) {
    return refuse(409, "Conflict",
                  cannotBeDone(path, "pods/binding") + "pod " + path.name +
                      " is being deleted, cannot be assigned to a host");
  }
  const Json& target = binding.at("target").at("name");
  if (pod["spec"].contains("nodeName")) {
    return refuse(409, "Conflict",
                  cannotBeDone(path, "pods/binding") + "pod " + path.name +
                      " is already assigned to node \"" +
                      pod["spec"]["nodeName"].get<std::string>() + "\"");
  }
  pod["spec"]["nodeName"] = target;
  put("pods", pod);
  return {201, created().dump(), ""};
}

ApiStandIn::Reply ApiStandIn::patch(const ApiPath& path, const std::string& type,
                                    const Json& change) {
  const std::string collection = path.collection->name;
  Json object = find(collection, path.nameSpace, path.name);
  const Json before = object;
  if (type == "application/json-patch+json") {
    try {
      object = object.patch(change);
    } catch (const Json::exception&) {  // a test that does not hold
      return refuse(422, "Invalid",
                    "the server rejected our request due to an error in our request");
    }
  } else if (type == "application/merge-patch+json" ||
             type == "application/strategic-merge-patch+json") {
    object.merge_patch(change);
  } else {
    return refuse(415, "UnsupportedMediaType", "415: Unsupported Media Type");
  }
  const auto changes = [&](const char* key) {
    return before["metadata"].value(key, "") != object["metadata"].value(key, "");
  };
  if (changes("resourceVersion")) return refuse(409, "Conflict", isModified(path));
  if (changes("uid")) {
    return refuse(422, "Invalid",
                  std::string(path.collection->kind) + " \"" + path.name +
                      "\" is invalid: metadata.uid: Invalid value: \"" +
                      object["metadata"].value("uid", "") + "\": field is immutable");
  }
  keepApart(path, before, object);
  if (object != before) put(collection, object);
  return {200, whole(path, path.name), ""};
}

ApiStandIn::Reply ApiStandIn::replace(const ApiPath& path, Json object) {
  const std::string collection = path.collection->name;
  const Json before = find(collection, path.nameSpace, path.name);
  const Json& meta = object["metadata"];
  const std::string wanted = meta.value("resourceVersion", "");
  if (wanted.empty() && collection == "leases") {
    return refuse(422, "Invalid",
                  path.resource() + " \"" + path.name +
                      "\" is invalid: metadata.resourceVersion: Invalid value: 0: must be "
                      "specified for an update");
  }
  if (!wanted.empty() && wanted != before["metadata"]["resourceVersion"]) {
    return refuse(409, "Conflict", isModified(path));
  }
  if (meta.contains("uid") && meta["uid"] != before["metadata"]["uid"]) {
    return refuse(409, "Conflict", otherUid(path, meta["uid"], before));
  }
  for (const char* key : {"uid", "creationTimestamp"}) {
    if (before["metadata"].contains(key)) object["metadata"][key] = before["metadata"][key];
  }
  keepApart(path, before, object);
  put(collection, object);
  return {200, whole(path, path.name), ""};
}

// --- objects to begin with ---

Json ApiStandIn::node(const std::string& name) {
  return Json{{"metadata",
               {{"name", name},
                {"uid", "uid-" + name},
                {"labels", {{"qgpu-device-enable", "enable"}}},
                {"annotations", Json::object()}}},
              {"spec", Json::object()},
              {"status",
               {{"allocatable", {{"cpu", "8"}}},
                {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}};
}

Json ApiStandIn::pod(const std::string& nameSpace, const std::string& name,
                     const std::string& uid) {
  const Json limits{{"tke.cloud.tencent.com/qgpu-core", "30"},
                    {"tke.cloud.tencent.com/qgpu-memory", "5"}};
  return Json{
      {"metadata",
       {{"name", name}, {"namespace", nameSpace}, {"uid", uid}, {"annotations", Json::object()}}},
      {"spec",
       {{"containers", Json::array({{{"name", "main"}, {"resources", {{"limits", limits}}}}})}}},
      {"status", {{"phase", "Pending"}}}};
}

}  // namespace qgpu::testing
