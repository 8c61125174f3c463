#pragma once
// Kernels on every word of a block of memory, as PTX: what was elsewhere meanwhile and came back
// with a word that is another one, or at another place, is found.

namespace qgpu::gpu {

// fill(at, words, seed): word i becomes seed * 0x9E3779B97F4A7C15 + i. stir(at, words): each word
// becomes 6364136223846793005 times itself plus 1442695040888963407. check(at, words, seed, rounds,
// wrong): adds to *wrong how many are not what a fill and so many stirs make. Words have 64 bits,
// and any grid of one dimension will do.
inline constexpr const char* kBlockPtx = R"(
.version 6.0
.target sm_60
.address_size 64

.visible .entry fill(.param .u64 block, .param .u64 count, .param .u64 seed)
{
  .reg .pred done;
  .reg .u32 tid, width, number, blocks;
  .reg .u64 at, words, i, step, place, x, base;
  ld.param.u64 at, [block];
  ld.param.u64 words, [count];
  ld.param.u64 base, [seed];
  mul.lo.u64 base, base, 0x9E3779B97F4A7C15;
  mov.u32 tid, %tid.x;
  mov.u32 width, %ntid.x;
  mov.u32 number, %ctaid.x;
  mov.u32 blocks, %nctaid.x;
  mad.lo.u32 number, number, width, tid;
  cvt.u64.u32 i, number;
  mul.wide.u32 step, blocks, width;
each:
  setp.ge.u64 done, i, words;
  @done bra end;
  add.u64 x, base, i;
  shl.b64 place, i, 3;
  add.u64 place, place, at;
  st.u64 [place], x;
  add.u64 i, i, step;
  bra each;
end:
  ret;
}

.visible .entry stir(.param .u64 block, .param .u64 count)
{
  .reg .pred done;
  .reg .u32 tid, width, number, blocks;
  .reg .u64 at, words, i, step, place, x;
  ld.param.u64 at, [block];
  ld.param.u64 words, [count];
  mov.u32 tid, %tid.x;
  mov.u32 width, %ntid.x;
  mov.u32 number, %ctaid.x;
  mov.u32 blocks, %nctaid.x;
  mad.lo.u32 number, number, width, tid;
  cvt.u64.u32 i, number;
  mul.wide.u32 step, blocks, width;
each:
  setp.ge.u64 done, i, words;
  @done bra end;
  shl.b64 place, i, 3;
  add.u64 place, place, at;
  ld.u64 x, [place];
  mul.lo.u64 x, x, 6364136223846793005;
  add.u64 x, x, 1442695040888963407;
  st.u64 [place], x;
  add.u64 i, i, step;
  bra each;
end:
  ret;
}

.visible .entry check(.param .u64 block, .param .u64 count, .param .u64 seed,
                      .param .u64 rounds, .param .u64 wrong)
{
  .reg .pred done, right;
  .reg .u32 tid, width, number, blocks;
  .reg .u64 at, words, i, step, place, x, y, base, round, times, plus, out, old;
  ld.param.u64 at, [block];
  ld.param.u64 words, [count];
  ld.param.u64 base, [seed];
  ld.param.u64 round, [rounds];
  ld.param.u64 out, [wrong];
  mul.lo.u64 base, base, 0x9E3779B97F4A7C15;
  mov.u64 times, 1;
  mov.u64 plus, 0;
more:
  setp.eq.u64 done, round, 0;
  @done bra made;
  mul.lo.u64 times, times, 6364136223846793005;
  mul.lo.u64 plus, plus, 6364136223846793005;
  add.u64 plus, plus, 1442695040888963407;
  sub.u64 round, round, 1;
  bra more;
made:
  mov.u32 tid, %tid.x;
  mov.u32 width, %ntid.x;
  mov.u32 number, %ctaid.x;
  mov.u32 blocks, %nctaid.x;
  mad.lo.u32 number, number, width, tid;
  cvt.u64.u32 i, number;
  mul.wide.u32 step, blocks, width;
each:
  setp.ge.u64 done, i, words;
  @done bra end;
  add.u64 y, base, i;
  mul.lo.u64 y, y, times;
  add.u64 y, y, plus;
  shl.b64 place, i, 3;
  add.u64 place, place, at;
  ld.u64 x, [place];
  add.u64 i, i, step;
  setp.eq.u64 right, x, y;
  @right bra each;
  atom.add.u64 old, [out], 1;
  bra each;
end:
  ret;
}
)";

}  // namespace qgpu::gpu
