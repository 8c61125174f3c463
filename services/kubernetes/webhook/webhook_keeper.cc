#include "services/kubernetes/webhook/webhook_keeper.h"

#include <algorithm>
#include <simdjson.h>

#include "services/api/commands/schema_names.h"
#include "services/base/base64.h"
#include "services/base/json.h"
#include "services/kubernetes/claims/claim.h"

namespace qgpu {
namespace {

constexpr Nanos kRetryMin = seconds(2);
constexpr std::uint64_t kConditionsSince = 28;  // minor version of the API server
constexpr const char* kConditionName = "asks-for-qgpu";

// The parts of a set, as they are called in the Secret.
constexpr std::pair<const char*, std::string CertificateSet::*> kParts[] = {
    {"ca.crt", &CertificateSet::ca},
    {"ca.key", &CertificateSet::caKey},
    {"tls.crt", &CertificateSet::cert},
    {"tls.key", &CertificateSet::key},
};

std::string textAt(simdjson::dom::element root, std::string_view pointer) {
  std::string_view text;
  if (root.at_pointer(pointer).get(text) != simdjson::SUCCESS) return {};
  return std::string(text);
}

std::string configurationPath(const char* version, const std::string& collection,
                              const std::string& name) {
  return std::string("/apis/admissionregistration.k8s.io/") + version + "/" + collection + "/" +
         urlEscaped(name);
}

// What stands in a configuration about one webhook of ours.
struct Published {
  std::size_t index = 0;
  std::string name;
  // As they are, and as they are to be. Of the path, empty: it stays as it is.
  std::string bundle{}, wantedBundle{};        // as base64
  std::string path{}, wantedPath{};            // of its service
  std::string condition{}, wantedCondition{};  // its expression

  bool isRight(bool conditions) const {
    return bundle == wantedBundle && (wantedPath.empty() || path == wantedPath) &&
           (!conditions || condition == wantedCondition);
  }
};

// Those of ours in a configuration, whose `word` the API server is to know.
std::vector<Published> findWebhooks(const std::string& body, const std::string& collection,
                                    const PodRules& rules, const std::string& bundle,
                                    const std::string& word) {
  std::vector<Published> all;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array webhooks;
  if (parser.parse(body).get(root) != simdjson::SUCCESS ||
      root["webhooks"].get(webhooks) != simdjson::SUCCESS) {
    return all;
  }
  std::size_t index = 0;
  for (const simdjson::dom::element webhook : webhooks) {
    Published one{.index = index++, .name = textAt(webhook, "/name")};
    const auto ours = std::find_if(
        std::begin(kPublishedWebhooks), std::end(kPublishedWebhooks),
        [&](const auto& row) { return collection == row.collection && one.name == row.name; });
    if (ours == std::end(kPublishedWebhooks)) continue;
    one.bundle = textAt(webhook, "/clientConfig/caBundle");
    one.wantedBundle = toBase64(bundle);
    one.path = textAt(webhook, "/clientConfig/service/path");
    const bool byService = !textAt(webhook, "/clientConfig/service/name").empty();
    if (byService && std::string_view(ours->path).ends_with('/'))
      one.wantedPath = ours->path + word;
    one.condition = textAt(webhook, "/matchConditions/0/expression");
    one.wantedCondition = ours->condition(rules);
    all.push_back(std::move(one));
  }
  return all;
}

void writeStep(JsonWriter& json, const char* op, const std::string& path,
               const std::string& value) {
  json.beginObject().field("op", op).field("path", path).field("value", value).endObject();
}

// JSON patch; the tests fail where somebody changed the order meanwhile.
std::string patchOf(const std::vector<Published>& all, bool conditions) {
  JsonWriter json;
  json.beginArray();
  for (const Published& one : all) {
    const std::string place = "/webhooks/" + std::to_string(one.index);
    writeStep(json, "test", place + "/name", one.name);
    writeStep(json, "add", place + "/clientConfig/caBundle", one.wantedBundle);
    if (!one.wantedPath.empty()) {
      writeStep(json, "add", place + "/clientConfig/service/path", one.wantedPath);
    }
    if (!conditions) continue;
    json.beginObject().field("op", "add").field("path", place + "/matchConditions");
    json.key("value").beginArray().beginObject().field("name", kConditionName);
    json.field("expression", one.wantedCondition).endObject().endArray().endObject();
  }
  json.endArray();
  return json.take();
}

}  // namespace

std::string askingPodsExpression(const PodRules& rules) {
  const auto asks = [&](const std::string& list) {
    return "(has(c.resources." + list + ") && c.resources." + list + ".exists(r, r.startsWith('" +
           rules.prefix + "/qgpu-')))";
  };
  return "(object.spec.containers + "
         "(has(object.spec.initContainers) ? object.spec.initContainers : [])).exists(c, "
         "has(c.resources) && (" +
         asks("limits") + " || " + asks("requests") + "))";
}

std::string podsExpression(const PodRules& rules) {
  const std::string key = "'" + rules.prefix + "/app-class'";
  const auto has = [&](const std::string& pod) {
    return "(has(" + pod + ".metadata.annotations) && " + key + " in " + pod +
           ".metadata.annotations)";
  };
  const auto classOf = [&](const std::string& pod) {
    return "(" + has(pod) + " ? " + pod + ".metadata.annotations[" + key + "] : '')";
  };
  return "(request.operation != 'UPDATE' || " + classOf("object") + " != " + classOf("oldObject") +
         ") && (" + has("object") + " || " + askingPodsExpression(rules) + ")";
}

// A request names its class in itself, under `exactly` or in each of its alternatives.
std::string claimsExpression(const PodRules&) {
  std::string classes;
  for (const TaskClass one : {TaskClass::Ordinary, TaskClass::Online, TaskClass::Offline}) {
    classes += (classes.empty() ? "'" : ", '") + deviceClassOf(one) + "'";
  }
  return "(request.operation != 'UPDATE' || object.spec != oldObject.spec) && "
         "[request.resource.resource == 'deviceclasses' ? object.spec : "
         "request.resource.resource == 'resourceclaims' ? object.spec.devices : "
         "object.spec.spec.devices].exists(d, "
         "(has(d.config) && d.config.exists(c, has(c.opaque) && c.opaque.driver == '" +
         std::string(kClaimDriver) +
         "')) || (has(d.requests) && d.requests.exists(r, "
         "([r] + (has(r.exactly) ? [r.exactly] : []) + "
         "(has(r.firstAvailable) ? r.firstAvailable : [])).exists(a, "
         "has(a.deviceClassName) && a.deviceClassName in [" +
         classes + "]))))";
}

WebhookKeeper::WebhookKeeper(WebhookNames names, PodRules rules, ApiClient& api,
                             WebhookServer& server, UnixSeconds clock, Log& log)
    : names_(std::move(names)),
      rules_(std::move(rules)),
      api_(api),
      server_(server),
      clock_(std::move(clock)),
      log_(log),
      backoff_(api.backoff(kRetryMin, kRetryMax)),
      tasks_(*this) {}

void WebhookKeeper::start() {
  tasks_.add(run());
}

kj::Promise<void> WebhookKeeper::run() {
  return look().then([this](Status status) {
    if (status) {
      backoff_.reset();
    } else {
      log_.warn("webhook-not-kept", {{"why", status.error().message}});
    }
    const Nanos pause = status ? kRound : backoff_.next();
    return api_.timer().afterDelay(pause.value * kj::NANOSECONDS).then([this]() { return run(); });
  });
}

kj::Promise<Status> WebhookKeeper::look() {
  return certificates(0).then([this](Result<CertificateSet> got) -> kj::Promise<Status> {
    if (!got) return Status(got.error());
    const Trust trust{got->ca, pathWord(*got)};
    server_.useWord(trust.word);
    // First whom to trust, then what is to be trusted.
    return publish(trust).then([this, set = std::move(*got)](Status published) -> Status {
      const Status shown = show(set);
      return published ? shown : published;
    });
  });
}

Status WebhookKeeper::show(const CertificateSet& set) {
  if (shown_ == set.cert) return ok();
  if (Status status = server_.useCertificate(set.cert, set.key); !status) return status;
  const auto expiry = expiryOf(set.cert);
  if (!expiry) return expiry.error();
  shown_ = set.cert;
  expiry_ = *expiry;
  log_.info("webhook-certificate", {{"address", server_.address()}, {"ends_unix", expiry_}});
  return ok();
}

// --- the Secret ---

std::string WebhookKeeper::secretPath() const {
  return "/api/v1/namespaces/" + urlEscaped(names_.nameSpace) + "/secrets/" +
         urlEscaped(names_.secret);
}

std::vector<std::string> WebhookKeeper::dnsNames() const {
  const std::string name = names_.service + "." + names_.nameSpace;
  return {name + ".svc", name + ".svc.cluster.local", name};
}

WebhookKeeper::StoredSecret WebhookKeeper::read(const ApiAnswer& answer) const {
  StoredSecret held;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(answer.body).get(root) != simdjson::SUCCESS) return held;
  held.version = textAt(root, "/metadata/resourceVersion");
  CertificateSet set;
  for (const auto& [name, part] : kParts) {
    const auto text = fromBase64(textAt(root, std::string("/data/") + name));
    if (text) set.*part = *text;
  }
  held.set = std::move(set);
  return held;
}

kj::Promise<Result<CertificateSet>> WebhookKeeper::certificates(int conflicts) {
  return api_.get(secretPath())
      .then([this, conflicts](ApiAnswer answer) -> kj::Promise<Result<CertificateSet>> {
        if (answer.fault == ApiFault::NotFound) {
          return Result<CertificateSet>(
              fail(ErrorCode::NotFound, "there is no Secret " + names_.nameSpace + "/" +
                                            names_.secret + ": apply deploy/kubernetes again"));
        }
        if (!answer.ok()) return Result<CertificateSet>(answer.error());
        const StoredSecret held = read(answer);
        auto next = renewed(held.set, dnsNames(), clock_());
        if (!next) return Result<CertificateSet>(next.error());
        if (!*next) return Result<CertificateSet>(*held.set);
        return store(std::move(**next), held.version, conflicts);
      });
}

kj::Promise<Result<CertificateSet>> WebhookKeeper::store(CertificateSet set, std::string version,
                                                         int conflicts) {
  JsonWriter json;
  json.beginObject().key("metadata").beginObject().field("resourceVersion", version).endObject();
  json.key("data").beginObject();
  for (const auto& [name, part] : kParts) json.field(name, toBase64(set.*part));
  json.endObject().endObject();
  ApiCall call{kj::HttpMethod::PATCH, secretPath(), json.take(), kMergePatch};
  return api_.call(std::move(call))
      .then([this, conflicts, set = std::move(set)](
                ApiAnswer answer) mutable -> kj::Promise<Result<CertificateSet>> {
        if (answer.ok()) {
          log_.info("webhook-certificate-made", {{"secret", names_.secret}});
          return Result<CertificateSet>(std::move(set));
        }
        if (answer.fault == ApiFault::Conflict && conflicts < kConflictsMax)
          return certificates(conflicts + 1);
        return Result<CertificateSet>(answer.error());
      });
}

// --- the configuration ---

// Both kinds, whatever becomes of the first.
kj::Promise<Status> WebhookKeeper::publish(Trust trust) {
  return publishIn(kValidating, trust).then([this, trust](Status validating) {
    return publishIn(kMutating, trust).then([validating](Status mutating) {
      return validating ? mutating : validating;
    });
  });
}

kj::Promise<Status> WebhookKeeper::publishIn(std::string collection, Trust trust) {
  std::string path = configurationPath("v1", collection, names_.configuration);
  return api_.get(path).then([this, path, collection, trust](ApiAnswer found) mutable {
    if (found.fault != ApiFault::NotFound) {
      return publishTo(collection, std::move(path), std::move(found), trust);
    }
    // Before 1.16 there was no v1.
    std::string older = configurationPath("v1beta1", collection, names_.configuration);
    return api_.get(older).then([this, older, collection, trust](ApiAnswer again) mutable {
      return publishTo(collection, std::move(older), std::move(again), trust);
    });
  });
}

kj::Promise<bool> WebhookKeeper::hasMatchConditions() {
  return api_.get("/version").then([](ApiAnswer answer) {
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    if (!answer.ok() || parser.parse(answer.body).get(root) != simdjson::SUCCESS) return false;
    std::string minor = textAt(root, "/minor");  // "28+" at some providers
    minor.resize(std::min(minor.find_first_not_of("0123456789"), minor.size()));
    const auto number = parseUint(minor);
    return textAt(root, "/major") == "1" && number.has_value() && *number >= kConditionsSince;
  });
}

kj::Promise<Status> WebhookKeeper::publishTo(std::string collection, std::string path,
                                             ApiAnswer found, Trust trust) {
  if (found.fault == ApiFault::NotFound) {
    if (missing_.insert(collection).second) {
      log_.info("webhook-not-installed",
                {{"configuration", names_.configuration}, {"of", collection}});
    }
    return Status(ok());
  }
  if (!found.ok()) return Status(found.error());
  missing_.erase(collection);
  std::vector<Published> all =
      findWebhooks(found.body, collection, rules_, trust.bundle, trust.word);
  if (all.empty()) {
    return Status(fail(ErrorCode::NotFound, names_.configuration + " of " + collection +
                                                " has no webhook of ours: apply "
                                                "deploy/kubernetes again"));
  }
  return hasMatchConditions().then([this, path = std::move(path),
                                    all = std::move(all)](bool has) -> kj::Promise<Status> {
    const bool right =
        std::all_of(all.begin(), all.end(), [&](const Published& one) { return one.isRight(has); });
    if (right) return Status(ok());
    ApiCall call{kj::HttpMethod::PATCH, path, patchOf(all, has), kJsonPatch};
    return api_.call(call)
        .then([this, call, all, has](ApiAnswer answer) mutable {
          if (answer.fault != ApiFault::Refused || !has)
            return kj::Promise<ApiAnswer>(std::move(answer));
          // Conditions spare calls only; a server that does not take them still gets the rest.
          log_.warn("webhook-without-conditions", {{"why", answer.message}});
          call.body = patchOf(all, false);
          return api_.call(std::move(call));
        })
        .then([](ApiAnswer answer) -> Status {
          if (answer.ok()) return ok();
          return answer.error();
        });
  });
}

void WebhookKeeper::taskFailed(kj::Exception&& exception) {
  log_.error("webhook-keeper-failed", {{"why", view(exception.getDescription())}});
}

}  // namespace qgpu
