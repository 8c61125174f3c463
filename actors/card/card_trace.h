#pragma once
// What happened on one card, for people who look: the newest moves of its tasks in a ring of fixed
// length, numbered from 1 on. Who asks for "everything after N" gets the oldest of it first, and is
// told how much of it was overwritten. It decides nothing, and adding allocates nothing: the card
// actor does so in the turns that pass the card on. Names are kept beside the ring, also those of
// tasks that went, as long as entries may name them.
//
// Times are on the card actor's clock (CLOCK_MONOTONIC): that of its turn or, where a gate stamped
// the moment, the stamp. So numbers grow by one each, and times almost always grow with them.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/model.h"
#include "runtime/check.h"
#include "runtime/units.h"
#include "schema/types.capnp.h"

namespace qgpu {

// CardActor has one, and answers traceAsked from it.
class CardTrace {
 public:
  using Kind = schema::TraceKind;

  // A slice has three entries and lasts at least 2 ms: some five seconds of the busiest card, and
  // minutes of most. 256 KiB.
  static constexpr std::size_t kKept = 8'192;
  static constexpr std::size_t kPerReply = 512;  // a turn stays short; a reader comes again
  static constexpr std::size_t kGoneKept = 256;  // names of tasks that left

  struct Entry {
    Nanos at{0};     // when it happened
    Nanos since{0};  // as the kind has it; 0: nothing
    std::uint64_t task = 0;
    Kind kind = Kind::JOINED;
  };
  struct Named {
    std::string name;
    TaskClass taskClass = TaskClass::Ordinary;
  };

  // `kept`: a power of two; 0 keeps nothing.
  explicit CardTrace(std::size_t kept = kKept) : entries_(kept), mask_(kept - 1) {
    QGPU_CHECK(kept == 0 || std::has_single_bit(kept), "numbers become places by a mask");
  }

  // A new entry; the oldest one makes room. `since`: as the kind has it.
  void add(Kind kind, std::uint64_t task, Nanos at, Nanos since = Nanos(0)) {
    if (entries_.empty()) return;
    entries_[newest_++ & mask_] = {at, since, task, kind};
  }

  // The number of the newest entry; 0: there is none.
  std::uint64_t newest() const { return newest_; }

  struct Part {
    std::uint64_t first = 1;  // number of the first entry; it may be one that is to come
    std::size_t count = 0;    // at most kPerReply
    std::uint64_t lost = 0;   // entries after `since` that were overwritten
  };
  // What a reader is given who has seen all up to `since`. A number above the newest is of an
  // earlier life of the manager and reads as 0.
  Part after(std::uint64_t since) const {
    if (since > newest_) since = 0;
    const std::uint64_t kept = std::min<std::uint64_t>(newest_, entries_.size());
    const std::uint64_t first = std::max(since, newest_ - kept) + 1;
    const auto count = std::min<std::uint64_t>(newest_ + 1 - first, kPerReply);
    return {first, static_cast<std::size_t>(count), first - 1 - since};
  }
  // By its number, which is that of an entry still kept.
  const Entry& operator[](std::uint64_t number) const { return entries_[(number - 1) & mask_]; }

  // --- names: not in the turns that pass the card on ---
  void name(std::uint64_t task, Named named) { names_[task] = std::move(named); }
  // It left: its name is forgotten once kGoneKept others left after it.
  void gone(std::uint64_t task) {
    gone_.push_back(task);
    if (gone_.size() <= kGoneKept) return;
    names_.erase(gone_.front());
    gone_.pop_front();
  }
  // Null for one that is forgotten.
  const Named* nameOf(std::uint64_t task) const {
    const auto found = names_.find(task);
    return found == names_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<Entry> entries_;
  const std::uint64_t mask_;
  std::uint64_t newest_ = 0;
  std::unordered_map<std::uint64_t, Named> names_;  // never iterated
  std::deque<std::uint64_t> gone_;
};

}  // namespace qgpu
