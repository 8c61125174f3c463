#pragma once
// CUDA memory that may leave the card while its task is held: what a program asks for by cuMemAlloc
// and cuMemAllocPitch is an address range of its own, and in it chunks of physical memory that are
// mapped there. The pager moves chunks; the range stays, so what programs, kernels and graphs have
// of addresses stays true. docs/internals/paging.md has the table of calls.
//
// Only in tasks that have pageable memory, of one card, where the driver has the virtual memory
// interface, and in the card's primary context, which CUDA's runtime has for all. What is below
// 2 MiB, what is allocated while a capture goes on, and all other kinds of memory are firm, as in
// any task.

#include "services/guest/cuda/cuda_driver.h"
#include "services/guest/gate/gate.h"

namespace qgpu::guest::paged {

// False: it is none of such memory, and to be asked of the driver.
bool allocate(cuda::Ptr* out, cuda::Size bytes, cuda::Result& rc);
bool allocatePitch(cuda::Ptr* out, cuda::Size* pitch, cuda::Size width, cuda::Size height,
                   cuda::Result& rc);
// False: the address is none of such memory. As the driver's own, it returns once work is finished;
// while a capture goes on, which no such wait may meet, it is freed when that is over.
bool release(cuda::Ptr address, cuda::Result& rc);
bool isAt(cuda::Ptr address);

// What was allocated in a context that may end: it ends with it.
struct Allocation;
class OfContext {
 public:
  explicit OfContext(cuda::Ctx context) : context_(context) {}  // null: none may end
  ~OfContext();
  OfContext(const OfContext&) = delete;
  OfContext& operator=(const OfContext&) = delete;
  void takeOut();  // before the driver is asked: what is made meanwhile is another context's
  void end();      // it did end; otherwise all is as it was

 private:
  const cuda::Ctx context_;
  Allocation* taken_ = nullptr;
};

// For launches, between admission and call: what is away comes first, then the launch is admitted
// anew. False: the task is gone. Otherwise pager::leave() after the call.
bool enter(Pass& pass, std::uint64_t estimateNs, MayBlock mayBlock);

}  // namespace qgpu::guest::paged
