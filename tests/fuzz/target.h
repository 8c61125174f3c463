#pragma once
// What every fuzz target has: the entry that libFuzzer (or replay.cc) calls with one input, a
// check that ends the process where a promise is broken, and a reader that cuts an input into
// numbers and bytes. An input that is too short reads as zeros, so that each one means something.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace qgpu::fuzz {

// A promise of the product, about to be looked at.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

  template <typename Int>
  Int number() {
    Int value{};
    const std::size_t size = std::min(sizeof value, rest_.size());
    if (size != 0) std::memcpy(&value, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  bool flag() { return (byte() & 1U) != 0; }

  // At most that many bytes.
  std::span<const std::uint8_t> bytes(std::size_t most) {
    const auto taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::string text(std::size_t most) {
    const auto taken = bytes(most);
    return {taken.begin(), taken.end()};
  }
  // What is before the next `end`, which is dropped.
  std::string textUpTo(std::uint8_t end) {
    const auto at = std::find(rest_.begin(), rest_.end(), end);
    std::string found(rest_.begin(), at);
    rest_ = rest_.subspan(found.size() + (at == rest_.end() ? 0 : 1));
    return found;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace qgpu::fuzz
