#include "services/ctl/output.h"

#include <cstdio>

#include "services/base/yaml.h"

namespace qgpu::ctl {

std::string documentOf(Value document, Output output) {
  if (output == Output::Json) return jsonOf(document) + "\n";
  YamlWriter yaml;
  document.write(yaml);
  return yaml.text();
}

std::string documentOf(const std::string& json, Output output) {
  if (output == Output::Json) return json + "\n";
  const Result<std::string> yaml = jsonToYaml(json);
  return yaml ? *yaml : json + "\n";
}

std::string streamed(Value document, Output output) {
  return (output == Output::Yaml ? "---\n" : "") + documentOf(document, output);
}

void writeOut(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace qgpu::ctl
