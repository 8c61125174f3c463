#pragma once
// In which form a command's answer goes to stdout.

#include <cstdint>
#include <string>

#include "services/ctl/answers/document.h"

namespace qgpu::ctl {

enum class Output : std::uint8_t { Table, Wide, Json, Yaml, Name, Env };

// For people; the others are for programs.
inline bool isTable(Output output) {
  return output == Output::Table || output == Output::Wide;
}

// A document for programs, as JSON or YAML.
std::string documentOf(Value document, Output output);
std::string documentOf(const std::string& json, Output output);
// One of several documents: a line of JSON each, or YAML's with their marks.
std::string streamed(Value document, Output output);

// At once. A reader that left, as `| head` does, is no failure.
void writeOut(const std::string& text);

}  // namespace qgpu::ctl
