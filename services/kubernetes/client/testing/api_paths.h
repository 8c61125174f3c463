#pragma once
// What a request names, as an API server reads it: a collection that it serves in a group and
// version, an object, a subresource. What no server has is Missing, so that a misspelt path of ours
// is answered 404 as in a cluster.

#include <cstdint>
#include <kj/compat/http.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace qgpu::testing {

using Json = nlohmann::json;

struct ApiCollection {
  const char* name;  // "pods"
  const char* kind;
  const char* group;  // empty: the core's
  std::vector<std::string> versions;
  bool namespaced;
  std::vector<std::string> subresources;
  bool keepsStatus;  // apart: its writes by the one path leave the other's part alone
  std::vector<std::string> fields;  // that a field selector may name, beside metadata's
};

// Those that the stand-in has.
const std::vector<ApiCollection>& apiCollections();

struct ApiPath {
  const ApiCollection* collection = nullptr;  // null: nobody serves this path
  std::string version, nameSpace, name;
  std::string sub;  // "binding", "eviction", "status"; empty: the object itself
  std::map<std::string, std::string> query;

  static ApiPath parse(const std::string& url);
  const std::string& asked(const char* key) const;  // of the query; empty: nothing
  bool yes(const char* key) const;                  // the query says true, or 1
  // As refusals name what is asked for: "pods", "leases.coordination.k8s.io".
  std::string resource() const;
  std::string key() const { return nameSpace + "/" + name; }
  // As RBAC names what is done here: "get", "list", "watch", "create", "update", "patch", "delete".
  std::string verb(kj::HttpMethod method) const;
};

// A field selector: terms that all must hold.
class FieldSelector {
 public:
  // Nothing and a reason where the server knows no such field of the collection.
  static std::optional<FieldSelector> parse(const ApiCollection& collection,
                                            const std::string& words, std::string& why);
  bool matches(const Json& object) const;
  bool isEmpty() const { return terms_.empty(); }
  // The one that is asked for by metadata.name; empty: none is.
  std::string name() const;

 private:
  struct Term {
    std::string field;
    std::string value;
    bool equal = true;
  };
  std::vector<Term> terms_;
};

}  // namespace qgpu::testing
