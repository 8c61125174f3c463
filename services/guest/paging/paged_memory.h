#pragma once
// The memory of this process that may leave the card, and the way that it goes. Pure: it says what
// to do next, a step at a time, and hears what became of it; the driver's calls are made by who
// asks. The same steps bring a process out of every state that a refusal, a free, another word of
// the manager or its death leave it in.
//
// What is allocated is in *chunks*, each with an address that stays. A chunk is on the card, on the
// host, or has both while it moves: on the way out its place on the card is given up once the copy
// on the host is whole, on the way in the copy is given up once everything is in.
//
// Kept here: M1 (nothing is begun while a chunk is away), M2 (nothing leaves before the driver said
// that nothing runs), M5 (what comes back is what left), M7 (without a manager, who is out stays
// out), M8 (firm chunks never move). docs/internals/paging.md.
//
// All of it with one lock of the caller held. In libqgpu.so: no C++ runtime.

#include <cstdint>

#include "services/wire/paging.h"

namespace qgpu::guest {

class PagedMemory {
 public:
  using Chunk = std::uint32_t;
  static constexpr Chunk kNone = UINT32_MAX;

  struct Step {
    enum class Kind : std::uint8_t {
      None,      // nothing to do until a word, a leave() or a free
      AskIdle,   // asks the driver whether anything of any context runs or is queued; where it
                 // does, the next step is the same, and the caller's to delay
      CopyOut,   // card to host, to its end
      Release,   // unmaps and releases its memory on the card; the address stays reserved
      Make,      // makes memory on the card and maps it there
      CopyIn,    // host to card, to its end
      DropCopy,  // gives up its place on the host
      Gone,      // the program freed it, and it has nothing left: the address too is free
    };
    Kind kind = Kind::None;
    Chunk chunk = kNone;
  };

  PagedMemory() = default;
  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;
  ~PagedMemory();

  // --- what the program does ---
  // Before each call that begins work or names an address, and after it. False: it waits.
  bool enter();
  void leave();
  // Memory that was made and mapped within an enter(). `firm`: it never leaves, and counts nowhere
  // here. kNone: the host has no memory for the record.
  Chunk add(std::uint64_t bytes, bool firm);
  // At any time: its steps come first. What the driver does not release is tried again after the
  // next word, and counts until then.
  void freed(Chunk chunk);

  // --- what the manager wants ---
  void follow(paging::Word word);
  // It is silent for longer than programs wait for it.
  void orphaned();

  // --- what is to be done: one step at a time, done() before the next ---
  Step next();
  Step nextOfFreed();  // of chunks that were freed alone
  void done(Step step, bool well);

  // --- what is told ---
  paging::Word word() const { return word_; }
  paging::Answer answer() const { return answer_; }
  std::uint64_t bytesIn() const { return in_; }
  std::uint64_t bytesOut() const { return out_; }
  bool isIn() const { return phase_ == Phase::In; }

 private:
  enum class Phase : std::uint8_t { In, Draining, Leaving, Out, Returning };
  enum class Place : std::uint8_t { Nowhere, Card, Both, Host, Made };  // Made: and Host
  struct Record {
    std::uint64_t bytes;
    Place place;
    bool used, firm, freed;
    bool stays;  // could not be copied or released since the word came
  };

  Step stepOfFreed();
  Step stepOut();
  Step nextMove() const;
  Step stepIn();
  void move(Record& record, Place place);
  void turnBack(const Record& record);

  Record* records_ = nullptr;
  Chunk count_ = 0, room_ = 0;
  std::uint64_t in_ = 0, out_ = 0;
  paging::Word word_;
  paging::Answer answer_ = paging::Answer::None;
  Phase phase_ = Phase::In;
  std::uint32_t entered_ = 0;
  bool idle_ = false;    // proven since it was in
  bool noRoom_ = false;  // on the way out again
  bool busy_ = false;    // a step is being done
};

}  // namespace qgpu::guest
