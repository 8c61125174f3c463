#include "services/ctl/output.h"

#include <cstdio>

#include "services/base/yaml.h"

namespace qgpu::ctl {

std::string documentOf(const std::string& json, Output output) {
  if (output == Output::Json) return json + "\n";
  const Result<std::string> yaml = jsonToYaml(json);
  return yaml ? *yaml : json + "\n";
}

std::string streamed(const std::string& json, Output output) {
  return (output == Output::Yaml ? "---\n" : "") + documentOf(json, output);
}

void writeOut(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace qgpu::ctl
