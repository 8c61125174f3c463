#pragma once
// Base64 as Secrets, KUBECONFIG and caBundle have it.

#include <optional>
#include <string>
#include <string_view>

namespace qgpu {

// On one line.
std::string toBase64(std::string_view bytes);
// Blanks and line ends are passed over; nothing where the rest is no base64.
std::optional<std::string> fromBase64(std::string_view text);

}  // namespace qgpu
