#include "services/kubernetes/webhook/webhook_keeper.h"

#include <simdjson.h>

#include "services/api/commands/schema_names.h"
#include "services/base/base64.h"
#include "services/base/json.h"

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

std::string configurationPath(const char* version, const std::string& name) {
  return std::string("/apis/admissionregistration.k8s.io/") + version +
         "/validatingwebhookconfigurations/" + urlEscaped(name);
}

// What stands in the configuration about one webhook.
struct Published {
  std::size_t index = 0;
  std::string bundle;     // as base64
  std::string condition;  // its expression
};

std::optional<Published> findWebhook(const std::string& body, const std::string& name) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array webhooks;
  if (parser.parse(body).get(root) != simdjson::SUCCESS ||
      root["webhooks"].get(webhooks) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  Published found;
  for (const simdjson::dom::element webhook : webhooks) {
    if (textAt(webhook, "/name") == name) {
      found.bundle = textAt(webhook, "/clientConfig/caBundle");
      found.condition = textAt(webhook, "/matchConditions/0/expression");
      return found;
    }
    ++found.index;
  }
  return std::nullopt;
}

// JSON patch; the test fails where somebody changed the order meanwhile. An empty condition is left
// out.
std::string patchOf(const Published& at, const std::string& name, const std::string& bundle,
                    const std::string& condition) {
  const std::string place = "/webhooks/" + std::to_string(at.index);
  JsonWriter json;
  json.beginArray().beginObject().field("op", "test").field("path", place + "/name");
  json.field("value", name).endObject();
  json.beginObject().field("op", "add").field("path", place + "/clientConfig/caBundle");
  json.field("value", bundle).endObject();
  if (!condition.empty()) {
    json.beginObject().field("op", "add").field("path", place + "/matchConditions");
    json.key("value").beginArray().beginObject().field("name", kConditionName);
    json.field("expression", condition).endObject().endArray().endObject();
  }
  json.endArray();
  return json.take();
}

}  // namespace

std::string matchExpression(const PodRules& rules) {
  const auto asks = [&](const std::string& list) {
    return "(has(c.resources." + list + ") && c.resources." + list + ".exists(r, r.startsWith('" +
           rules.prefix + "/qgpu-')))";
  };
  const std::string key = "'" + rules.prefix + "/app-class'";
  const auto has = [&](const std::string& pod) {
    return "(has(" + pod + ".metadata.annotations) && " + key + " in " + pod +
           ".metadata.annotations)";
  };
  const auto classOf = [&](const std::string& pod) {
    return "(" + has(pod) + " ? " + pod + ".metadata.annotations[" + key + "] : '')";
  };
  return "(request.operation != 'UPDATE' || " + classOf("object") + " != " + classOf("oldObject") +
         ") && (" + has("object") +
         " || (object.spec.containers + "
         "(has(object.spec.initContainers) ? object.spec.initContainers : [])).exists(c, "
         "has(c.resources) && (" +
         asks("limits") + " || " + asks("requests") + ")))";
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
    std::string bundle = got->ca;
    // First whom to trust, then what is to be trusted.
    return publish(std::move(bundle))
        .then([this, set = std::move(*got)](Status published) -> Status {
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

kj::Promise<Status> WebhookKeeper::publish(std::string bundle) {
  std::string path = configurationPath("v1", names_.configuration);
  return api_.get(path).then([this, path, bundle = std::move(bundle)](
                                 ApiAnswer found) mutable -> kj::Promise<Status> {
    if (found.fault != ApiFault::NotFound) {
      return publishTo(std::move(path), std::move(found), std::move(bundle));
    }
    // Before 1.16 there was no v1.
    std::string older = configurationPath("v1beta1", names_.configuration);
    return api_.get(older).then([this, older, bundle = std::move(bundle)](ApiAnswer again) mutable {
      return publishTo(std::move(older), std::move(again), std::move(bundle));
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

kj::Promise<Status> WebhookKeeper::publishTo(std::string path, ApiAnswer found,
                                             std::string bundle) {
  if (found.fault == ApiFault::NotFound) {
    if (!missing_) log_.info("webhook-not-installed", {{"configuration", names_.configuration}});
    missing_ = true;
    return Status(ok());
  }
  if (!found.ok()) return Status(found.error());
  missing_ = false;
  const auto at = findWebhook(found.body, names_.webhook);
  if (!at) {
    return Status(fail(ErrorCode::NotFound, "ValidatingWebhookConfiguration " +
                                                names_.configuration + " has no webhook " +
                                                names_.webhook));
  }
  return hasMatchConditions().then([this, path = std::move(path), at = *at,
                                    bundle = toBase64(bundle)](bool has) -> kj::Promise<Status> {
    const std::string condition = has ? matchExpression(rules_) : "";
    if (at.bundle == bundle && (!has || at.condition == condition)) return Status(ok());
    ApiCall call{kj::HttpMethod::PATCH, path, patchOf(at, names_.webhook, bundle, condition),
                 kJsonPatch};
    return api_.call(call)
        .then([this, call, at, bundle, has](ApiAnswer answer) mutable {
          if (answer.fault != ApiFault::Refused || !has)
            return kj::Promise<ApiAnswer>(std::move(answer));
          // Conditions spare calls only; a server that does not take them still gets the rest.
          log_.warn("webhook-without-conditions", {{"why", answer.message}});
          call.body = patchOf(at, names_.webhook, bundle, "");
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
