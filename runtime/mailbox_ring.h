#pragma once
// One ring of Cap'n Proto words from one sending loop to one receiving loop (single producer,
// single consumer, no locks). A message is built in the ring and read in the ring; the consumer
// zeroes what it read, because builders need zeroed memory. Records become visible in batches, at
// publish(), so that an unpublished one can still be taken back (the output gate needs that).
//
// Kept here: C5 (reserve() says no when full), C6 (records leave in the order of commit()).

#include <algorithm>
#include <atomic>
#include <capnp/common.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <kj/common.h>
#include <memory>

#include "runtime/check.h"

namespace qgpu {

// The header of an entry; its body of `words` words follows in the ring.
struct Record {
  enum class Kind : std::uint32_t {
    Skip,     // the rest of the ring's end is unused
    Message,  // words of a message
    Heap,     // one word: pointer to Words that the record owns
    Timer,    // one word: id of an actor's timer that is due
  };
  std::uint32_t to = 0;     // ActorId of who gets it
  std::uint32_t from = 0;   // ActorId of who sent it
  std::uint32_t words = 0;  // of the body, even
  Kind kind = Kind::Skip;
};
inline constexpr std::size_t kRecordWords = sizeof(Record) / sizeof(capnp::word);
static_assert(kRecordWords == 2);

// The dispatcher of the sending loop is the producer, that of the receiving loop the consumer; a
// loop's ring to itself has one thread as both. Who calls a method of the other side has a bug.
class MailboxRing {
 public:
  // A message gets at least this much contiguous room, at most kCellMax; a larger one goes to the
  // heap and leaves a pointer here.
  static constexpr std::size_t kCellMin = 64;
  static constexpr std::size_t kCellMax = 1024;
  static constexpr std::size_t kWarmWords = 256;  // see rewindBehindFront()

  // `words` is a power of two. The memory is touched only as it is used.
  explicit MailboxRing(std::size_t words)
      : size_(words), words_(static_cast<capnp::word*>(std::calloc(words, sizeof(capnp::word)))) {
    QGPU_CHECK((words & (words - 1)) == 0 && words >= 4 * kCellMin, "ring size is a power of two");
    if (words_ == nullptr) fatal(ExitCode::Environment, "out of memory for a mailbox ring");
  }
  MailboxRing(const MailboxRing&) = delete;
  MailboxRing& operator=(const MailboxRing&) = delete;

  // --- producer ---

  // Zeroed room for a body; empty when the ring is full. Nothing is taken until commit().
  kj::ArrayPtr<capnp::word> reserve() {
    std::size_t offset = write_ & (size_ - 1);
    std::size_t atEnd = (offset < takenBegin_ ? takenBegin_ : size_) - offset;
    if (atEnd < kCellMin + kRecordWords) {
      const std::size_t gap = offset < takenBegin_ ? takenEnd_ - offset : atEnd;
      if (!hasRoom(gap + kCellMin + kRecordWords)) return nullptr;
      if (gap > 0) *recordAt(write_) = Record{0, 0, bodyWords(gap), Record::Kind::Skip};
      write_ += gap;
      offset = write_ & (size_ - 1);
      atEnd = size_ - offset;
    } else if (!hasRoom(kCellMin + kRecordWords)) {
      return nullptr;
    }
    const std::size_t free = size_ - (write_ - headSeen_);
    const std::size_t room = std::min({free, atEnd, kCellMax + kRecordWords}) - kRecordWords;
    return kj::arrayPtr(words_.get() + offset + kRecordWords, room);
  }

  // The body that reserve() lent holds `words` words.
  void commit(std::uint32_t to, std::uint32_t from, Record::Kind kind, std::size_t words) {
    const std::size_t even = (words + 1) & ~std::size_t{1};
    *recordAt(write_) = Record{to, from, static_cast<std::uint32_t>(even), kind};
    write_ += even + kRecordWords;
  }

  // True if there was something new. The order of its store pairs with a sleeper's empty().
  bool publish() {
    if (published_ == write_) return false;
    published_ = write_;
    tail_.store(write_, std::memory_order_seq_cst);
    return true;
  }
  // Where producer and consumer are one thread there is nobody to order with.
  void publishToSelf() {
    published_ = write_;
    tail_.store(write_, std::memory_order_relaxed);
  }

  // Where the next record will be: for takeBack().
  std::uint64_t mark() const { return write_; }

  // Takes back the unpublished records since `mark`, in order: visit(const Record&, body).
  template <typename Visit>
  void takeBack(std::uint64_t mark, Visit&& visit) {
    std::uint64_t at = mark;
    while (at != write_) {
      Record* record = recordAt(at);
      const std::size_t words = record->words + kRecordWords;
      if (record->kind != Record::Kind::Skip) visit(*record, bodyAt(at));
      std::memset(static_cast<void*>(record), 0, words * sizeof(capnp::word));
      at += words;
    }
    write_ = mark;
  }

  // --- consumer ---

  // The oldest published record, or nullptr.
  const Record* front() {
    for (;;) {
      if (read_ == tailSeen_) {
        tailSeen_ = tail_.load(std::memory_order_acquire);
        if (read_ == tailSeen_) return nullptr;
      }
      Record* record = recordAt(read_);
      if (record->kind != Record::Kind::Skip) return record;
      pop();
    }
  }
  // Of the record that front() gave; valid until pop().
  const capnp::word* frontBody() const { return bodyAt(read_); }
  // Where bodies begin.
  const capnp::word* firstBody() const { return bodyAt(0); }

  // Takes out the record that front() gave, and zeroes its words.
  void pop() {
    if (takenEnd_ != 0) return popTaken();
    Record* record = recordAt(read_);
    const std::size_t words = record->words + kRecordWords;
    const std::size_t used = record->kind == Record::Kind::Skip ? kRecordWords : words;
    std::memset(static_cast<void*>(record), 0, used * sizeof(capnp::word));
    read_ += words;
    head_.store(read_, std::memory_order_release);
  }

  // For a consumer about to sleep: sees whatever was published before the producer looked at it.
  bool empty() const { return tail_.load(std::memory_order_seq_cst) == read_; }

  // Where producer and consumer are one thread: an empty ring starts over in warm memory.
  void rewindIfEmpty() {
    if (read_ == write_) rewind();
  }
  // The same before its last record is handled: that one stays where it is until pop(), and what
  // its handler sends starts over, around it.
  void rewindBehindFront() {
    const std::size_t offset = read_ & (size_ - 1);
    if (offset < kWarmWords) return;
    const std::size_t end = offset + recordAt(read_)->words + kRecordWords;
    const bool last = write_ - read_ == end - offset;
    if (!last || end + kCellMin + kRecordWords > size_) return;
    takenBegin_ = offset;
    takenEnd_ = end;
    rewind();
  }

 private:
  void rewind() {
    read_ = write_ = published_ = headSeen_ = tailSeen_ = 0;
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
  }
  struct Free {
    void operator()(capnp::word* words) const { std::free(words); }
  };
  static std::uint32_t bodyWords(std::size_t whole) {
    return static_cast<std::uint32_t>(whole - kRecordWords);
  }
  Record* recordAt(std::uint64_t at) const {
    return reinterpret_cast<Record*>(words_.get() + (at & (size_ - 1)));
  }
  const capnp::word* bodyAt(std::uint64_t at) const {
    return words_.get() + (at & (size_ - 1)) + kRecordWords;
  }
  void popTaken() {
    std::memset(static_cast<void*>(recordAt(takenBegin_)), 0,
                (takenEnd_ - takenBegin_) * sizeof(capnp::word));
    takenBegin_ = takenEnd_ = 0;
  }
  bool hasRoom(std::size_t need) {
    if (write_ + need - headSeen_ <= size_) return true;
    headSeen_ = head_.load(std::memory_order_acquire);
    return write_ + need - headSeen_ <= size_;
  }

  const std::size_t size_;
  const std::unique_ptr<capnp::word, Free> words_;
  alignas(64) std::atomic<std::uint64_t> tail_{0};  // written by the producer
  std::uint64_t write_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t headSeen_ = 0;
  alignas(64) std::atomic<std::uint64_t> head_{0};  // written by the consumer
  std::uint64_t read_ = 0;
  std::uint64_t tailSeen_ = 0;
  // On a line of their own: the producer reads them, and the consumer writes the line above.
  alignas(64) std::size_t takenBegin_ = 0;  // of the record that rewindBehindFront() left in place
  std::size_t takenEnd_ = 0;                // 0: none
};

}  // namespace qgpu
