#pragma once
// Messages in memory. A message that we built ourselves is one flat segment, so that it is read in
// place without checks (capnp::readMessageUnchecked). Builders work in memory that is already
// there: a default MallocMessageBuilder costs 8 KiB a message and ten times the fan-in.

#include <algorithm>
#include <array>
#include <capnp/any.h>
#include <capnp/message.h>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/actor.h"
#include "runtime/message_words.h"

namespace qgpu {

// A message of one actor to another outside a ring: held back, or waiting for room.
struct OwnedMessage {
  ActorId from{};
  ActorId to{};
  Words words;
};

// Builds in zeroed memory that its user lends, a cell of a ring or of a scratch buffer, and which
// outlives it. What does not fit goes to segments of its own, from the heap: the message is then in
// several segments, and flatten() makes one of them.
class CellBuilder final : public capnp::MessageBuilder {
 public:
  explicit CellBuilder(kj::ArrayPtr<capnp::word> cell) : cell_(cell) {}

  kj::ArrayPtr<capnp::word> allocateSegment(kj::uint minimumSize) override {
    if (!cellTaken_ && minimumSize <= cell_.size()) {
      cellTaken_ = true;
      return cell_;
    }
    Words& more = extra_.emplace_back(std::max<std::size_t>(minimumSize, kExtraWords));
    return kj::arrayPtr(more.data(), more.size());
  }

 private:
  static constexpr std::size_t kExtraWords = 1024;
  kj::ArrayPtr<capnp::word> cell_;
  bool cellTaken_ = false;
  std::vector<Words> extra_;
};

// flatten() of a finished message. `Root` is the struct that the message was begun with.
template <typename Root>
Words flatten(capnp::MessageBuilder& message) {
  const auto segments = message.getSegmentsForOutput();
  if (segments.size() == 1) {
    Words words(segments[0].size());
    std::memcpy(words.data(), segments[0].begin(), words.size() * sizeof(capnp::word));
    return words;
  }
  return flatten(message.getRoot<Root>().asReader());
}

// Reusable zeroed memory for messages that do not go to a ring. One message at a time.
class ScratchBuilder {
 public:
  // Valid until finish(), which must follow before the next begin().
  capnp::MessageBuilder* begin() {
    return &builder_.emplace(kj::arrayPtr(words_.data(), words_.size()));
  }
  // What was built, as flatten() gives it. The memory is zero again.
  template <typename Root>
  Words finish() {
    Words flat = flatten<Root>(*builder_);
    const std::size_t used = builder_->getSegmentsForOutput()[0].size();
    builder_.reset();
    std::memset(static_cast<void*>(words_.data()), 0, used * sizeof(capnp::word));
    return flat;
  }

 private:
  static constexpr std::size_t kWords = 512;
  Words words_ = Words(kWords);
  std::optional<CellBuilder> builder_;
};

// Reads a flat message of ours where it lies, unchecked: never bytes of a peer or of the disk.
inline schema::Envelope::Reader readEnvelope(const capnp::word* words) {
  return capnp::readMessageUnchecked<schema::Envelope>(words);
}

// Readers of the cells at the warm beginning of a loop's ring to itself, where most messages lie.
// Reading a root costs library calls whose result is copied right after it was written, and the
// root of an envelope that we built looks the same each time, so a cell's reader is made once.
class KnownCells {
 public:
  explicit KnownCells(const capnp::word* begin) : begin_(begin) {}

  // `words` is the body of any message, in that ring or elsewhere.
  schema::Envelope::Reader read(const capnp::word* words) {
    const auto at = (address(words) - address(begin_)) / (2 * sizeof(capnp::word));
    if (at >= kCells) return readEnvelope(words);
    std::uint64_t root;
    std::memcpy(&root, words, sizeof root);
    Cell& cell = cells_[at];
    if (root != cell.root) cell = Cell{root, readEnvelope(words)};
    return cell.reader;
  }

 private:
  static std::uintptr_t address(const capnp::word* words) {
    return reinterpret_cast<std::uintptr_t>(words);
  }
  static constexpr std::size_t kCells = 256;  // two words each: every record's length is even
  struct Cell {
    std::uint64_t root = 0;  // the pointer that the reader was made of; never null in a message
    schema::Envelope::Reader reader;
  };
  const capnp::word* begin_;
  std::array<Cell, kCells> cells_;
};

}  // namespace qgpu
