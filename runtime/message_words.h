#pragma once
// The memory of one message or row, in words. It exists because clang refuses to copy a vector of
// capnp::word, which the library lets be copied as bytes only; here copies are made as bytes, with
// every compiler.

#include <capnp/message.h>
#include <cstring>
#include <utility>
#include <vector>

namespace qgpu {

class Words : public std::vector<capnp::word> {
 public:
  Words() = default;
  // That many words of zeros.
  explicit Words(std::size_t size) : vector(size) {}
  Words(const capnp::word* begin, const capnp::word* end)
      : Words(static_cast<std::size_t>(end - begin)) {
    if (begin != end) std::memcpy(static_cast<void*>(data()), begin, size() * sizeof *begin);
  }
  Words(std::vector<capnp::word>&& words) : vector(std::move(words)) {}
  Words(const Words& other) : Words(other.data(), other.data() + other.size()) {}
  Words(Words&&) noexcept = default;
  Words& operator=(const Words& other) { return *this = Words(other); }
  Words& operator=(Words&&) noexcept = default;
};

// A copy of what a reader reads, as one flat segment: the form in which rows are stored and
// messages are held back.
template <typename Reader>
Words flatten(Reader root) {
  Words words(root.totalSize().wordCount + 1);
  capnp::copyToUnchecked(root, kj::arrayPtr(words.data(), words.size()));
  return words;
}

}  // namespace qgpu
