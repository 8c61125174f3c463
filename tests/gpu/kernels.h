#pragma once
// The kernels of tests/gpu as PTX, beside the one that the self-test of suspend runs. They are
// here for their results and for how they are launched: a checksum that shows any lost register, a
// kernel whose blocks wait for each other, and a product of matrices.

#include "services/cards/suspend/spin_kernel.h"

namespace qgpu::gpu {

// mix(rounds, sum): blocks of 256 threads; each thread turns a number of its own and now and then
// takes its neighbour's, and all end in one exclusive or: any lost register, shared word or lane
// shows. together(rounds, iterations, meeting): all blocks work, then wait for each other on
// *meeting, `rounds` times: what only a cooperative launch may do.
// multiply(a, b, c, n): c = a * b, square matrices of 32-bit floats, a thread for each element.
inline constexpr const char* kWorkPtx = R"(
.version 6.0
.target sm_60
.address_size 64

.visible .entry mix(.param .u64 rounds, .param .u64 sum)
{
  .shared .align 8 .b64 row[256];
  .reg .pred done, between;
  .reg .u32 thread, block, width, number, place, other, base;
  .reg .u64 wanted, made, low, at, x, y;
  ld.param.u64 wanted, [rounds];
  ld.param.u64 at, [sum];
  mov.u32 thread, %tid.x;
  mov.u32 block, %ctaid.x;
  mov.u32 width, %ntid.x;
  mad.lo.u32 number, block, width, thread;
  add.u32 number, number, 1;
  cvt.u64.u32 x, number;
  mul.lo.u64 x, x, 0x9E3779B97F4A7C15;
  mov.u32 base, row;
  shl.b32 place, thread, 3;
  add.u32 place, place, base;
  add.u32 other, thread, 1;
  and.b32 other, other, 255;
  shl.b32 other, other, 3;
  add.u32 other, other, base;
  mov.u64 made, 0;
turn:
  setp.ge.u64 done, made, wanted;
  @done bra end;
  shl.b64 y, x, 13;
  xor.b64 x, x, y;
  shr.u64 y, x, 7;
  xor.b64 x, x, y;
  shl.b64 y, x, 17;
  xor.b64 x, x, y;
  add.u64 made, made, 1;
  and.b64 low, made, 63;
  setp.ne.u64 between, low, 0;
  @between bra turn;
  st.shared.u64 [place], x;
  bar.sync 0;
  ld.shared.u64 y, [other];
  add.u64 x, x, y;
  bar.sync 0;
  bra turn;
end:
  atom.xor.b64 y, [at], x;
  ret;
}

.visible .entry together(.param .u64 rounds, .param .u64 iterations, .param .u64 meeting)
{
  .reg .pred done, leader, early, never;
  .reg .u32 thread, blocks;
  .reg .u64 wanted, round, inner, made, at, target, step, seen;
  .reg .f32 x;
  ld.param.u64 wanted, [rounds];
  ld.param.u64 inner, [iterations];
  ld.param.u64 at, [meeting];
  mov.u32 thread, %tid.x;
  mov.u32 blocks, %nctaid.x;
  cvt.u64.u32 step, blocks;
  setp.eq.u32 leader, thread, 0;
  cvt.rn.f32.u32 x, thread;
  mov.u64 round, 0;
  mov.u64 target, 0;
next:
  setp.ge.u64 done, round, wanted;
  @done bra end;
  mov.u64 made, 0;
work:
  fma.rn.f32 x, x, 0f3F800347, 0f3F000000;
  add.u64 made, made, 1;
  setp.lt.u64 early, made, inner;
  @early bra work;
  add.u64 round, round, 1;
  add.u64 target, target, step;
  bar.sync 0;
  @!leader bra met;
  membar.gl;
  atom.add.u64 seen, [at], 1;
wait:
  ld.volatile.u64 seen, [at];
  setp.lt.u64 early, seen, target;
  @early bra wait;
met:
  bar.sync 0;
  bra next;
end:
  setp.eq.f32 never, x, 0fBF800000;
  @never st.volatile.u64 [at], made;
  ret;
}

.visible .entry multiply(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)
{
  .reg .pred done;
  .reg .u32 column, row, tid, ntid;
  .reg .u64 left, right, out, size, stride, place, k;
  .reg .f32 x, y, sum;
  ld.param.u64 left, [a];
  ld.param.u64 right, [b];
  ld.param.u64 out, [c];
  ld.param.u64 size, [n];
  mov.u32 column, %ctaid.x;
  mov.u32 ntid, %ntid.x;
  mov.u32 tid, %tid.x;
  mad.lo.u32 column, column, ntid, tid;
  mov.u32 row, %ctaid.y;
  mov.u32 ntid, %ntid.y;
  mov.u32 tid, %tid.y;
  mad.lo.u32 row, row, ntid, tid;
  shl.b64 stride, size, 2;
  cvt.u64.u32 place, row;
  mad.lo.u64 left, place, stride, left;
  mad.lo.u64 out, place, stride, out;
  cvt.u64.u32 place, column;
  shl.b64 place, place, 2;
  add.u64 right, right, place;
  add.u64 out, out, place;
  mov.u64 k, 0;
  mov.f32 sum, 0f00000000;
each:
  ld.f32 x, [left];
  ld.f32 y, [right];
  fma.rn.f32 sum, x, y, sum;
  add.u64 left, left, 4;
  add.u64 right, right, stride;
  add.u64 k, k, 1;
  setp.lt.u64 done, k, size;
  @done bra each;
  st.f32 [out], sum;
  ret;
}
)";

}  // namespace qgpu::gpu
