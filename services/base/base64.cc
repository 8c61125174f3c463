#include "services/base/base64.h"

#include <openssl/evp.h>

namespace qgpu {

std::string toBase64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

std::optional<std::string> fromBase64(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != '\n' && c != '\r' && c != ' ') plain += c;
  }
  std::string out(plain.size() / 4 * 3 + 3, '\0');
  const int size = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(plain.data()),
                                     static_cast<int>(plain.size()));
  if (size < 0 || plain.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = plain.ends_with("==") ? 2 : plain.ends_with('=') ? 1 : 0;
  out.resize(static_cast<std::size_t>(size) - padding);
  return out;
}

}  // namespace qgpu
