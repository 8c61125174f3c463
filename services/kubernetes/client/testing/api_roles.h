#pragma once
// RBAC as an API server has it: what the roles of some manifests grant to the service accounts that
// they are bound to, and nothing else. An account proves itself by a token that is its name.

#include <string>
#include <vector>

#include "services/kubernetes/client/testing/api_paths.h"

namespace qgpu::testing {

class ApiRoles {
 public:
  // Of documents as they stand in deploy/kubernetes, in any order; others than roles and bindings
  // are passed over.
  explicit ApiRoles(const std::vector<Json>& documents);

  bool knows(const std::string& account) const;
  // Empty: it may. Else what the server says of it. `name`: of the object that is meant, also by a
  // field selector.
  std::string refusal(const std::string& account, const std::string& verb, const ApiPath& path,
                      const std::string& name) const;

 private:
  struct Rule {
    std::string account, nameSpace;  // empty: everywhere
    std::vector<std::string> groups, resources, verbs, names;
  };
  std::vector<Rule> rules_;
};

}  // namespace qgpu::testing
