#pragma once
// In which form a command's answer goes to stdout.

#include <cstdint>
#include <string>

namespace qgpu::ctl {

enum class Output : std::uint8_t { Table, Wide, Json, Yaml, Name };

// For people; the others are for programs.
inline bool isTable(Output output) { return output == Output::Table || output == Output::Wide; }

// A document for programs: JSON as it came, or as YAML.
std::string documentOf(const std::string& json, Output output);
// One of several documents: a line of JSON each, or YAML's with their marks.
std::string streamed(const std::string& json, Output output);

// At once. A reader that left, as `| head` does, is no failure.
void writeOut(const std::string& text);

}  // namespace qgpu::ctl
