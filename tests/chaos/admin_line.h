#pragma once
// A question to an admin socket, and whether it can have had an effect where no answer came. Beside
// askSocket() of tests/testing, which does not tell those apart and waits where a daemon that
// stands still has too many who ask.

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

namespace qgpu::chaos {

struct Answer {
  bool asked = false;   // it left, whole
  nlohmann::json said;  // null: nothing within the limit, or no JSON
  bool ok() const { return said.is_object() && said.value("ok", false); }
  std::string code() const { return said.is_object() ? said.value("code", "") : ""; }
};

Answer askAdmin(const std::string& socket, const std::string& line,
                std::chrono::milliseconds limit);

}  // namespace qgpu::chaos
