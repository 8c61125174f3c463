#pragma once
// A kernel that keeps a card busy and shows that it goes on, as PTX, which every driver since CUDA
// 9 compiles for its card: so nobody here needs a CUDA compiler. Work is measured in iterations,
// never in time, so that a kernel that was taken off its card has as much left to do as before.

#include <cstdint>

namespace qgpu::suspend {

// spin(iterations, progress): each thread does so many multiplications; the first one counts in
// *progress (the host's memory) when it begins and at every 1024th.
inline constexpr const char* kSpinPtx = R"(
.version 6.0
.target sm_60
.address_size 64

.visible .entry nothing() { ret; }

.visible .entry spin(.param .u64 iterations, .param .u64 progress)
{
  .reg .pred first, done, between, never;
  .reg .u32 thread, block, either;
  .reg .u64 wanted, made, low, at, seen;
  .reg .f32 x;
  ld.param.u64 wanted, [iterations];
  ld.param.u64 at, [progress];
  mov.u32 thread, %tid.x;
  mov.u32 block, %ctaid.x;
  or.b32 either, thread, block;
  setp.eq.u32 first, either, 0;
  cvt.rn.f32.u32 x, thread;
  mov.u64 made, 0;
  bra count;
work:
  setp.ge.u64 done, made, wanted;
  @done bra end;
  fma.rn.f32 x, x, 0f3F800347, 0f3F000000;
  add.u64 made, made, 1;
  and.b64 low, made, 1023;
  setp.ne.u64 between, low, 0;
  @between bra work;
count:
  @!first bra work;
  ld.volatile.u64 seen, [at];
  add.u64 seen, seen, 1;
  st.volatile.u64 [at], seen;
  membar.sys;
  bra work;
end:
  setp.eq.f32 never, x, 0fBF800000;
  @never st.volatile.u64 [at], made;
  ret;
}
)";

// What one launch adds to *progress.
inline constexpr std::uint64_t countedBy(std::uint64_t iterations) {
  return 1 + iterations / 1024;
}

}  // namespace qgpu::suspend
