#include "services/kubernetes/client/testing/api_paths.h"

#include <algorithm>

namespace qgpu::testing {
namespace {

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

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// As a selector compares it: a boolean is "true" or "false", what is not there is empty.
std::string valueAt(const Json& object, const std::string& field) {
  const Json* at = &object;
  for (const std::string& step : split(field, '.')) {
    if (!at->is_object() || !at->contains(step)) return "";
    at = &at->at(step);
  }
  return at->is_string() ? at->get<std::string>() : at->dump();
}

}  // namespace

const std::vector<ApiCollection>& apiCollections() {
  static const std::vector<ApiCollection> all = {
      {"nodes", "Node", "", {"v1"}, false, {"status"}, true, {"spec.unschedulable"}},
      {"pods",
       "Pod",
       "",
       {"v1"},
       true,
       {"binding", "eviction", "status"},
       true,
       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.phase", "status.podIP", "status.nominatedNodeName"}},
      {"events",
       "Event",
       "",
       {"v1"},
       true,
       {},
       false,
       {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "reason", "type"}},
      {"namespaces", "Namespace", "", {"v1"}, false, {}, false, {"status.phase"}},
      {"secrets", "Secret", "", {"v1"}, true, {}, false, {"type"}},
      {"leases", "Lease", "coordination.k8s.io", {"v1", "v1beta1"}, true, {}, false, {}},
      {"resourceslices",
       "ResourceSlice",
       "resource.k8s.io",
       {"v1"},
       false,
       {},
       false,
       {"spec.driver", "spec.nodeName"}},
      {"resourceclaims", "ResourceClaim", "resource.k8s.io", {"v1"}, true, {"status"}, true, {}},
      {"resourceclaimtemplates",
       "ResourceClaimTemplate",
       "resource.k8s.io",
       {"v1"},
       true,
       {},
       false,
       {}},
      {"mutatingwebhookconfigurations",
       "MutatingWebhookConfiguration",
       "admissionregistration.k8s.io",
       {"v1", "v1beta1"},
       false,
       {},
       false,
       {}},
      {"validatingwebhookconfigurations",
       "ValidatingWebhookConfiguration",
       "admissionregistration.k8s.io",
       {"v1", "v1beta1"},
       false,
       {},
       false,
       {}},
  };
  return all;
}

ApiPath ApiPath::parse(const std::string& url) {
  ApiPath path;
  const std::size_t mark = std::min(url.find('?'), url.size());
  for (const std::string& pair : split(mark < url.size() ? url.substr(mark + 1) : "", '&')) {
    const std::size_t equal = std::min(pair.find('='), pair.size());
    path.query[pair.substr(0, equal)] =
        unescaped(equal < pair.size() ? pair.substr(equal + 1) : "");
  }
  // api/v1/..., or apis/GROUP/v1/...
  std::vector<std::string> parts = split(url.substr(0, mark), '/');
  for (std::string& part : parts) part = unescaped(part);
  const bool isCore = !parts.empty() && parts[0] == "api";
  const std::size_t head = isCore ? 2 : 3;
  if (parts.size() <= head || (!isCore && parts[0] != "apis")) return path;
  const std::string group = isCore ? "" : parts[1];
  path.version = parts[head - 1];
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(head));
  if (parts.size() > 2 && parts[0] == "namespaces") {
    path.nameSpace = parts[1];
    parts.erase(parts.begin(), parts.begin() + 2);
  }
  if (parts.size() > 1) path.name = parts[1];
  if (parts.size() > 2) path.sub = parts[2];
  for (const ApiCollection& one : apiCollections()) {
    const bool served =
        parts[0] == one.name && group == one.group && has(one.versions, path.version) &&
        parts.size() <= 3 && (path.sub.empty() || has(one.subresources, path.sub)) &&
        (one.namespaced ? path.name.empty() || !path.nameSpace.empty() : path.nameSpace.empty());
    if (served) path.collection = &one;
  }
  return path;
}

const std::string& ApiPath::asked(const char* key) const {
  static const std::string kNone;
  const auto found = query.find(key);
  return found == query.end() ? kNone : found->second;
}

bool ApiPath::yes(const char* key) const {
  return asked(key) == "1" || asked(key) == "true";
}

std::string ApiPath::resource() const {
  const std::string group = collection->group;
  return collection->name + (group.empty() ? "" : "." + group);
}

std::string ApiPath::verb(kj::HttpMethod method) const {
  switch (method) {
    case kj::HttpMethod::GET:
      return yes("watch") ? "watch" : name.empty() ? "list" : "get";
    case kj::HttpMethod::POST:
      return "create";
    case kj::HttpMethod::PUT:
      return "update";
    case kj::HttpMethod::PATCH:
      return "patch";
    case kj::HttpMethod::DELETE:
      return name.empty() ? "deletecollection" : "delete";
    default:
      return "";
  }
}

std::optional<FieldSelector> FieldSelector::parse(const ApiCollection& collection,
                                                  const std::string& words, std::string& why) {
  FieldSelector out;
  for (const std::string& term : split(words, ',')) {
    const std::size_t equal = term.find('=');
    if (equal == std::string::npos) {
      why = "invalid field selector: " + term;
      return std::nullopt;
    }
    const bool isNot = equal > 0 && term[equal - 1] == '!';
    const std::string field = term.substr(0, equal - (isNot ? 1 : 0));
    const std::size_t value = term.find_first_not_of('=', equal);
    const bool known = field == "metadata.name" ||
                       (field == "metadata.namespace" && collection.namespaced) ||
                       has(collection.fields, field);
    if (!known) {
      why = "field label not supported: " + field;
      return std::nullopt;
    }
    out.terms_.push_back({field, value == std::string::npos ? "" : term.substr(value), !isNot});
  }
  return out;
}

bool FieldSelector::matches(const Json& object) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    return (valueAt(object, term.field) == term.value) == term.equal;
  });
}

std::string FieldSelector::name() const {
  for (const Term& term : terms_) {
    if (term.equal && term.field == "metadata.name") return term.value;
  }
  return "";
}

}  // namespace qgpu::testing
