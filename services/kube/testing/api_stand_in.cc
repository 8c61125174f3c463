#include "services/kube/testing/api_stand_in.h"

#include <algorithm>

namespace qgpu::testing {
namespace {

std::string text(kj::StringPtr words) {
  return std::string(words.begin(), words.size());
}

std::string unescaped(const std::string& part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '%' && i + 2 < part.size()) {
      out += static_cast<char>(std::stoi(part.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += part[i] == '+' ? ' ' : part[i];
    }
  }
  return out;
}

std::vector<std::string> split(const std::string& whole, char by) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (from <= whole.size()) {
    const std::size_t to = std::min(whole.find(by, from), whole.size());
    if (to > from) parts.push_back(whole.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

Json statusOf(unsigned code, const std::string& reason, const std::string& message) {
  return Json{{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
              {"message", message}, {"reason", reason},   {"code", code}};
}

const std::string& named(const std::map<std::string, std::string>& query, const char* key) {
  static const std::string kNone;
  const auto found = query.find(key);
  return found == query.end() ? kNone : found->second;
}

std::uint64_t numberOf(const std::string& words) {
  return words.empty() ? 0 : std::stoull(words);
}

}  // namespace

ApiStandIn::ApiStandIn(kj::Network& network, kj::Timer& timer, kj::Maybe<kj::TlsContext&> tls,
                       kj::WaitScope& scope)
    : network_(network), timer_(timer), tls_(tls) {
  kj::HttpHeaderTable::Builder builder;
  authorization_ = builder.add("Authorization");
  retryAfter_ = builder.add("Retry-After");
  table_ = builder.build();
  for (const char* collection : {"nodes", "pods", "events", "leases", "secrets",
                                 "validatingwebhookconfigurations"}) {
    objects_[collection];
  }
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

void ApiStandIn::tell(const std::string& collection, const std::string& type, const Json& object) {
  std::string line = Json{{"type", type}, {"object", object}}.dump() + "\n";
  history_.push_back(Change{version_, collection, line});
  if (history_.size() > 10'000) {
    forgotten_ = history_.front().version;
    history_.pop_front();
  }
  for (Watcher* watcher : watchers_) {
    if (watcher->collection != collection) continue;
    watcher->lines.push_back(line);
    KJ_IF_MAYBE (woken, watcher->woken) (*woken)->fulfill();
  }
}

void ApiStandIn::put(const std::string& collection, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  Stored& stored = objects_.at(collection)[keyOf(object)];
  const bool added = stored.version == 0;
  stored = {object.dump(), version_};
  tell(collection, added ? "ADDED" : "MODIFIED", object);
}

void ApiStandIn::remove(const std::string& collection, const std::string& nameSpace,
                        const std::string& name) {
  auto& objects = objects_.at(collection);
  const auto found = objects.find(nameSpace + "/" + name);
  if (found == objects.end()) return;
  Json object = Json::parse(found->second.text);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects.erase(found);
  tell(collection, "DELETED", object);
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
  const Json meta{{"resourceVersion", std::to_string(version_)}, {"creationTimestamp", nullptr}};
  sayToWatches(Json{{"type", "BOOKMARK"}, {"object", {{"metadata", meta}}}}.dump());
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

kj::Promise<void> ApiStandIn::watch(const Where& where, Response& response) {
  const std::uint64_t since = numberOf(named(where.query, "resourceVersion"));
  auto watcher = kj::heap<Watcher>();
  watcher->collection = where.collection;
  if (since < forgotten_) {
    watcher->over = true;
    watcher->lines.push_back(
        Json{{"type", "ERROR"}, {"object", statusOf(410, "Expired", "too old resource version")}}
            .dump() +
        "\n");
  }
  for (const Change& change : history_) {
    if (change.collection == where.collection && change.version > since && !watcher->over) {
      watcher->lines.push_back(change.line);
    }
  }
  kj::HttpHeaders headers(*table_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json");
  auto stream = response.send(200, "OK", headers);
  Watcher& ref = *watcher;
  watchers_.insert(&ref);
  ++begun_;
  if (const auto limit = numberOf(named(where.query, "timeoutSeconds")); limit != 0) {
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

ApiStandIn::Where ApiStandIn::parse(const std::string& url) {
  Where where;
  const std::size_t mark = std::min(url.find('?'), url.size());
  for (const std::string& pair : split(mark < url.size() ? url.substr(mark + 1) : "", '&')) {
    const std::size_t equal = std::min(pair.find('='), pair.size());
    where.query[pair.substr(0, equal)] =
        unescaped(equal < pair.size() ? pair.substr(equal + 1) : "");
  }
  std::vector<std::string> parts = split(url.substr(0, mark), '/');
  // api/v1/..., or apis/GROUP/v1/...
  const std::size_t head = parts.empty() || parts[0] == "api" ? 2 : 3;
  parts.erase(parts.begin(),
              parts.begin() + static_cast<std::ptrdiff_t>(std::min(head, parts.size())));
  for (std::string& part : parts) part = unescaped(part);
  if (parts.size() > 2 && parts[0] == "namespaces") {
    where.nameSpace = parts[1];
    parts.erase(parts.begin(), parts.begin() + 2);
  }
  if (!parts.empty()) where.collection = parts[0];
  if (parts.size() > 1) where.name = parts[1];
  if (parts.size() > 2) where.sub = parts[2];
  return where;
}

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
        const Where where = parse(path);
        if (method == kj::HttpMethod::GET && !named(where.query, "watch").empty()) {
          return watch(where, response);
        }
        Reply reply = answer(method, where, type, text(said));
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
  return {status, statusOf(status, reason, message).dump(), ""};
}

ApiStandIn::Reply ApiStandIn::answer(kj::HttpMethod method, const Where& where,
                                     const std::string& type, const std::string& body) {
  if (!objects_.contains(where.collection)) {
    return refuse(404, "NotFound", "the server could not find the requested resource");
  }
  const auto& objects = objects_.at(where.collection);
  if (where.name.empty() && method == kj::HttpMethod::GET) return list(where);
  const bool creates = method == kj::HttpMethod::POST;
  if (where.name.empty() && !creates) return refuse(405, "MethodNotAllowed", "not here");
  const auto found = objects.find(where.nameSpace + "/" + where.name);
  if (!where.name.empty() && found == objects.end()) {
    return refuse(404, "NotFound", where.collection + " \"" + where.name + "\" not found");
  }
  switch (method) {
    case kj::HttpMethod::GET:
      return {200, found->second.text, ""};
    case kj::HttpMethod::POST:
      return create(where, body);
    case kj::HttpMethod::PATCH:
      return patch(where, type, body);
    case kj::HttpMethod::PUT:
      return replace(where, body);
    case kj::HttpMethod::DELETE:
      remove(where.collection, where.nameSpace, where.name);
      return {200, statusOf(200, "", "").dump(), ""};
    default:
      return refuse(405, "MethodNotAllowed", "not here");
  }
}

// A page's `continue` is the version of the first page and the key behind which the next begins.
ApiStandIn::Reply ApiStandIn::list(const Where& where) {
  const auto& objects = objects_.at(where.collection);
  const std::size_t limit = numberOf(named(where.query, "limit"));
  const std::string& from = named(where.query, "continue");
  std::uint64_t version = version_;
  auto at = objects.begin();
  if (!from.empty()) {
    const std::size_t colon = from.find(':');
    version = numberOf(from.substr(0, colon));
    if (version < forgotten_) return refuse(410, "Expired", "the continue token is too old");
    at = objects.upper_bound(from.substr(colon + 1));
  }
  std::string items, next;
  std::size_t count = 0;
  for (; at != objects.end() && (limit == 0 || count < limit); ++at) {
    if (!where.nameSpace.empty() && !at->first.starts_with(where.nameSpace + "/")) continue;
    items += (count++ == 0 ? "" : ",") + at->second.text;
    next = at->first;
  }
  Json meta{{"resourceVersion", std::to_string(version)}};
  if (at != objects.end()) meta["continue"] = std::to_string(version) + ":" + next;
  return {200,
          R"({"kind":"List","apiVersion":"v1","metadata":)" + meta.dump() + R"(,"items":[)" +
              items + "]}",
          ""};
}

ApiStandIn::Reply ApiStandIn::create(const Where& where, const std::string& body) {
  Json object = Json::parse(body, nullptr, false);
  if (object.is_discarded()) return refuse(400, "BadRequest", "the body is no JSON");
  if (where.sub == "binding") return bind(where, object);
  if (where.sub == "eviction") {
    ++evictions_;
    Json pod = find("pods", where.nameSpace, where.name);
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    put("pods", pod);
    return {201, statusOf(201, "", "").dump(), ""};
  }
  Json& meta = object["metadata"];
  if (!where.nameSpace.empty()) meta["namespace"] = where.nameSpace;
  if (!meta.contains("name")) {
    meta["name"] = meta.value("generateName", "x") + std::to_string(version_);
  }
  if (!find(where.collection, where.nameSpace, meta["name"]).is_null()) {
    return refuse(409, "AlreadyExists",
                  where.collection + " \"" + std::string(meta["name"]) + "\" already exists");
  }
  put(where.collection, object);
  return {201, find(where.collection, where.nameSpace, object["metadata"]["name"]).dump(), ""};
}

ApiStandIn::Reply ApiStandIn::bind(const Where& where, const Json& binding) {
  Json pod = find("pods", where.nameSpace, where.name);
  const Json meta = binding.value("metadata", Json::object());
  if (meta.contains("uid") && meta["uid"] != pod["metadata"]["uid"]) {
    return refuse(409, "Conflict", "Precondition failed: UID in precondition");
  }
  const Json& target = binding.at("target").at("name");
  if (pod["spec"].contains("nodeName")) {
    return refuse(409, "Conflict",
                  "pod " + where.name + " is already assigned to node \"" +
                      pod["spec"]["nodeName"].get<std::string>() + "\"");
  }
  pod["spec"]["nodeName"] = target;
  put("pods", pod);
  return {201, statusOf(201, "", "").dump(), ""};
}

ApiStandIn::Reply ApiStandIn::patch(const Where& where, const std::string& type,
                                    const std::string& body) {
  Json object = find(where.collection, where.nameSpace, where.name);
  const Json before = object;
  const Json change = Json::parse(body, nullptr, false);
  if (change.is_discarded()) return refuse(400, "BadRequest", "the patch is no JSON");
  if (type == "application/json-patch+json") {
    object = object.patch(change);
  } else if (type == "application/merge-patch+json" ||
             type == "application/strategic-merge-patch+json") {
    object.merge_patch(change);
  } else {
    return refuse(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
  }
  for (const char* key : {"uid", "resourceVersion"}) {
    if (before["metadata"].value(key, "") != object["metadata"].value(key, "")) {
      return refuse(409, "Conflict", std::string("the object has been modified: ") + key);
    }
  }
  if (object != before) put(where.collection, object);
  return {200, find(where.collection, where.nameSpace, where.name).dump(), ""};
}

ApiStandIn::Reply ApiStandIn::replace(const Where& where, const std::string& body) {
  Json object = Json::parse(body, nullptr, false);
  if (object.is_discarded()) return refuse(400, "BadRequest", "the body is no JSON");
  const Json before = find(where.collection, where.nameSpace, where.name);
  const std::string wanted = object["metadata"].value("resourceVersion", "");
  if (!wanted.empty() && wanted != before["metadata"]["resourceVersion"]) {
    return refuse(409, "Conflict",
                  "the object has been modified; please apply your changes to "
                  "the latest version and try again");
  }
  put(where.collection, object);
  return {200, find(where.collection, where.nameSpace, where.name).dump(), ""};
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
