#pragma once
// A process with pageable memory on the simulated card: a program that allocates, frees and
// launches kernels which touch everything it has, and the library's thread, which asks the real
// PagedMemory for each step. What kernels wrote is checked wherever memory came back (M5), that
// all of it is there when one begins (M1), and that none runs where some leaves (M2).

#include <map>
#include <vector>

#include "services/guest/paging/paged_memory.h"
#include "tests/sim/paging/paging_options.h"
#include "tests/sim/paging/paging_site.h"

namespace qgpu::sim {

// What the processes of one task know of one another, by its report page.
struct PagedTask {
  TaskId id = TaskId::kNone;
  Bytes quota{0};
  Bytes firmQuota{0};
  PagingPage page;
  Bytes firm{0};
  Bytes has{0};  // pageable, of all processes, with what is being allocated
};

class PagedProcess {
 public:
  PagedProcess(PagingSite& site, const PagingOptions& options, PagedTask& task,
               std::uint32_t index);
  PagedProcess(const PagedProcess&) = delete;
  PagedProcess& operator=(const PagedProcess&) = delete;

  void start();
  void wake();  // its page changed
  void kill();
  void stopUntil(Nanos time);

  std::uint32_t index() const { return index_; }
  bool dead() const { return dead_; }
  bool torn() const { return torn_; }  // the card shows its memory free
  // Whether it may make memory on the card by what it heard of the manager.
  bool mayMake() const { return !dead_ && memory_.word().phase == paging::Phase::In; }
  // It is not in, though all of its memory is there and nothing of it moves or runs.
  bool couldGoOn() const;
  std::uint64_t kernels() const { return kernels_; }
  const guest::PagedMemory& memory() const { return memory_; }
  Bytes in() const;  // what counts of it on the card, with what it tries to allocate
  Bytes onCard() const;
  Bytes out() const;  // and off it
  Bytes wanted() const { return wanted_; }

 private:
  using Chunk = guest::PagedMemory::Chunk;
  using Step = guest::PagedMemory::Step;
  struct Content {
    Bytes bytes{0};
    bool firm = false, freed = false;
    bool onCard = true, onHost = false;
    std::uint64_t card = 0, host = 0, wrote = 0;
  };

  bool gatePasses() const;
  bool orphan() const;
  bool stopped() const { return site_.now() < stoppedUntil_; }
  void think();
  void act();
  void launch();
  Nanos kernelLasts();
  void kernelEnds();
  void allocate();
  void allocated(Bytes bytes, bool firm);
  void release();
  void wait();
  void pump();
  void finish(const Step& step);
  Nanos lasts(const Step& step);
  bool perform(const Step& step);
  void cameIn();
  void checkAllThere();
  void tell();
  void tearDown();

  PagingSite& site_;
  const PagingOptions& options_;
  PagedTask& task_;
  const std::uint32_t index_;
  guest::PagedMemory memory_;
  std::map<Chunk, Content> contents_;
  std::uint32_t running_ = 0;  // kernels
  Bytes pending_{0};           // being allocated
  Bytes wanted_{0};
  bool waits_ = false;     // for its page to change
  bool stepping_ = false;  // the thread makes a step
  bool looks_ = false;     // ... or will look again by itself
  bool wasIn_ = true;
  bool dead_ = false, torn_ = false;
  Nanos stoppedUntil_{0};
  std::uint64_t copied_ = 0;  // what the card held when the running copy began
  struct Told {
    paging::Answer answer = paging::Answer::None;
    std::uint32_t epoch = 0;
    Bytes in{0}, out{0}, wanted{0};
    bool operator==(const Told&) const = default;
  };
  Told told_;
  std::uint64_t serial_ = 0, kernels_ = 0;
};

}  // namespace qgpu::sim
