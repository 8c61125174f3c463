#pragma once
// What one end of a link says within one turn of its loop, on its way to the other end in one
// call: a call costs many times what a message does. Bounded, so that each peer may read it at
// once.

#include <capnp/message.h>
#include <cstddef>
#include <kj/async.h>
#include <utility>
#include <vector>

#include "runtime/message_words.h"

namespace qgpu {

// Of one tellAll().
inline constexpr std::size_t kGatheredMax = 256;
inline constexpr std::size_t kGatheredWordsMax = 4 * 1024;

// The messages that wait, in the order in which they were added. Links has one for each node,
// SchedulerLink one for its connection; both empty it at the end of the turn of their loop, or when
// the next message does not fit. `Said`: schema::ToMember or schema::FromMember.
template <typename Said>
class Gathered {
 public:
  using Reader = typename Said::Reader;

  // False: what is here leaves first. A message of more than kGatheredWordsMax words never fits.
  bool fits(std::size_t size) const {
    return entries_.size() < kGatheredMax && size_ + size <= kGatheredWordsMax;
  }
  // A copy of the message. `size`: its words, as the caller counts what has not left yet.
  void add(Reader said, std::size_t size) {
    entries_.push_back(flatten(said));
    size_ += size;
  }
  bool empty() const { return entries_.empty(); }
  std::size_t count() const { return entries_.size(); }
  std::size_t size() const { return size_; }  // words, as add() was told
  Reader at(std::size_t i) const { return capnp::readMessageUnchecked<Said>(entries_[i].data()); }

  // For `end`, a MemberEnd or SchedulerEnd: one call with all of it. Nothing is here afterwards.
  template <typename End>
  kj::Promise<void> tell(End& end) {
    const Gathered all = std::exchange(*this, Gathered());
    const capnp::MessageSize hint{all.size() + 8, 0};
    if (all.count() == 1) {
      auto request = end.tellRequest(hint);
      request.setWords(all.at(0));
      return request.send();
    }
    auto request = end.tellAllRequest(hint);
    auto list = request.initAll(static_cast<kj::uint>(all.count()));
    for (kj::uint i = 0; i < all.count(); ++i) list.setWithCaveats(i, all.at(i));
    return request.send();
  }

 private:
  std::vector<Words> entries_;
  std::size_t size_ = 0;
};

}  // namespace qgpu
