#pragma once
// What a terminal sends, as the keys that a person pressed. Pure: bytes in, keys out. A sequence
// may come in parts; one that means nothing here is passed over as a whole.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu::ctl {

struct Key {
  enum class Kind : std::uint8_t {
    Text,  // one character, in UTF-8
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Erase,
  };
  Kind kind = Kind::Text;
  std::string text{};

  bool operator==(const Key&) const = default;
};

class KeyReader {
 public:
  std::vector<Key> read(std::string_view bytes);
  // A sequence has begun, and its rest may be on its way; or somebody pressed Escape.
  bool waits() const { return !begun_.empty(); }
  // Nothing more came: what was begun is the Escape key, or nothing.
  std::vector<Key> end();

 private:
  std::string begun_;
};

}  // namespace qgpu::ctl
