#pragma once
// YAML as Kubernetes writes it, turned into JSON, so that everything behind it reads one format;
// and JSON as YAML for people. It exists for files of other programs: a KUBECONFIG, the
// configuration and manifest of a kube-scheduler, our own manifests in their tests.
//
// Scalars become what kubectl makes of them: plain true, yes, on, null, ~, 0644 and 1.5 are a
// boolean, nothing and numbers, whatever stands in quotes is text. Refused, because a reader would
// silently lose something: a key that comes twice, a key that is no scalar. Aliases are
// followed, and what they grow to is limited as is what was written.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kYamlBytesMax = 4U << 20U;
inline constexpr std::size_t kYamlNodesMax = 200'000;  // with aliases followed
inline constexpr int kYamlNestingMax = 64;

// One JSON document for each YAML document that holds something. Error: InvalidArgument, with the
// line where it went wrong.
Result<std::vector<std::string>> yamlToJson(std::string_view text);

// One document that reads back as the same JSON. InvalidArgument where `json` is none.
Result<std::string> jsonToYaml(std::string_view json);

}  // namespace qgpu
