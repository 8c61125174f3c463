#pragma once
// YAML as Kubernetes writes it, turned into JSON, so that everything behind it reads one format;
// and JSON as YAML for people. It exists for files of other programs: a KUBECONFIG, the
// configuration and manifest of a kube-scheduler, our own manifests in their tests.
//
// Scalars become what kubectl makes of them: plain true, yes, on, null, ~, 0644 and 1.5 are a
// boolean, nothing and numbers, whatever stands in quotes is text. Refused, because a reader would
// silently lose something: a key that comes twice, a key that is no scalar. Aliases are
// followed, and what they grow to is limited as is what was written.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/base/json.h"

namespace YAML {
class Emitter;
}

namespace qgpu {

inline constexpr std::size_t kYamlBytesMax = 4U << 20U;
inline constexpr std::size_t kYamlNodesMax = 200'000;  // with aliases followed
inline constexpr int kYamlNestingMax = 64;

// One JSON document for each YAML document that holds something. Error: InvalidArgument, with the
// line where it went wrong.
Result<std::vector<std::string>> yamlToJson(std::string_view text);

// One document that reads back as the same JSON; its numbers stand as JSON has them.
class YamlWriter final : public DocumentWriter {
 public:
  YamlWriter();
  ~YamlWriter() override;
  YamlWriter(const YamlWriter&) = delete;
  YamlWriter& operator=(const YamlWriter&) = delete;

  YamlWriter& beginObject() override;
  YamlWriter& endObject() override;
  YamlWriter& beginArray() override;
  YamlWriter& endArray() override;
  YamlWriter& key(std::string_view name) override;
  YamlWriter& string(std::string_view text) override;
  YamlWriter& number(std::int64_t n) override;
  YamlWriter& number(std::uint64_t n) override;
  YamlWriter& real(double n) override;
  YamlWriter& boolean(bool b) override;
  YamlWriter& null() override;

  // With a newline at its end; call it when all is closed.
  std::string text() const;

 private:
  template <typename What>
  YamlWriter& put(const What& what);

  std::unique_ptr<YAML::Emitter> out_;  // keeps the library out of this header
};

// InvalidArgument where `json` is none.
Result<std::string> jsonToYaml(std::string_view json);

}  // namespace qgpu
