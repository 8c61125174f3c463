#include "services/kubernetes/client/testing/api_roles.h"

#include <algorithm>

namespace qgpu::testing {
namespace {

using Names = std::vector<std::string>;

bool has(const Names& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// "pods", "pods/binding", and both of them by "*".
bool hasResource(const Names& all, const std::string& resource, const std::string& sub) {
  if (has(all, "*")) return true;
  return sub.empty() ? has(all, resource) : has(all, resource + "/" + sub) || has(all, "*/" + sub);
}

}  // namespace

ApiRoles::ApiRoles(const std::vector<Json>& documents) {
  for (const Json& binding : documents) {
    const std::string kind = binding.value("kind", "");
    if (kind != "ClusterRoleBinding" && kind != "RoleBinding") continue;
    const Json& meant = binding.at("roleRef");
    const auto role = std::find_if(documents.begin(), documents.end(), [&](const Json& one) {
      return one.value("kind", "") == meant.at("kind") &&
             one.at("metadata").at("name") == meant.at("name");
    });
    if (role == documents.end()) continue;  // a server takes such a binding, and it grants nothing
    const std::string within =
        kind == "RoleBinding" ? binding.at("metadata").value("namespace", "default") : "";
    for (const Json& subject : binding.at("subjects")) {
      if (subject.at("kind") != "ServiceAccount") continue;
      for (const Json& rule : role->at("rules")) {
        rules_.push_back({subject.at("name"), within, rule.at("apiGroups").get<Names>(),
                          rule.at("resources").get<Names>(), rule.at("verbs").get<Names>(),
                          rule.value("resourceNames", Names())});
      }
    }
  }
}

bool ApiRoles::knows(const std::string& account) const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [&](const Rule& rule) { return rule.account == account; });
}

std::string ApiRoles::refusal(const std::string& account, const std::string& verb,
                              const ApiPath& path, const std::string& name) const {
  const std::string resource = path.collection->name;
  for (const Rule& rule : rules_) {
    const bool meant =
        rule.account == account && (rule.nameSpace.empty() || rule.nameSpace == path.nameSpace) &&
        (has(rule.groups, path.collection->group) || has(rule.groups, "*")) &&
        hasResource(rule.resources, resource, path.sub) &&
        (has(rule.verbs, verb) || has(rule.verbs, "*")) &&
        // The name of what is created is not known yet.
        (rule.names.empty() || (has(rule.names, name) && !(verb == "create" && path.sub.empty())));
    if (meant) return "";
  }
  const std::string whole = resource + (path.sub.empty() ? "" : "/" + path.sub);
  return path.resource() + (name.empty() ? "" : " \"" + name + "\"") +
         " is forbidden: User \"system:serviceaccount:kube-system:" + account + "\" cannot " +
         verb + " resource \"" + whole + "\" in API group \"" + path.collection->group + "\" " +
         (path.nameSpace.empty() ? "at the cluster scope"
                                 : "in the namespace \"" + path.nameSpace + "\"");
}

}  // namespace qgpu::testing
