// Works on all of a large memory, piece after piece, as training does, and at its end looks at
// every word: memory that left the card meanwhile is back as it was, or the words tell.

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/gpu/paging/block_kernels.h"
#include "tests/gpu/work_driver.h"

namespace qgpu::gpu {
namespace {

class Blocks {
 public:
  Blocks(Work& work, Size bytes, Size piece);
  void stir();            // the next one
  std::uint64_t wrong();  // words of all

 private:
  struct Block {
    Ptr at;
    std::uint64_t words;
    std::uint64_t stirred = 0;
  };
  template <typename... Arguments>
  void launch(Fn kernel, Arguments... arguments) {
    void* all[] = {&arguments...};
    QGPU_MUST(work_.driver.cuLaunchKernel(kernel, 4 * work_.blocks, 1, 1, Work::kThreads, 1, 1, 0,
                                          work_.stream, all, nullptr));
  }

  Work& work_;
  Fn fill_ = nullptr, stir_ = nullptr, check_ = nullptr;
  Ptr wrong_ = 0;
  std::vector<Block> all_;  // the number of each is its seed
  std::size_t next_ = 0;
};

Blocks::Blocks(Work& work, Size bytes, Size piece) : work_(work) {
  Mod module = nullptr;
  QGPU_MUST(work.driver.cuModuleLoadData(&module, kBlockPtx));
  QGPU_MUST(work.driver.cuModuleGetFunction(&fill_, module, "fill"));
  QGPU_MUST(work.driver.cuModuleGetFunction(&stir_, module, "stir"));
  QGPU_MUST(work.driver.cuModuleGetFunction(&check_, module, "check"));
  QGPU_MUST(work.driver.cuMemAlloc_v2(&wrong_, sizeof(std::uint64_t)));
  for (Size left = bytes; left > 0;) {
    const Size part = std::min(left, piece);
    Block block{0, part / sizeof(std::uint64_t)};
    QGPU_MUST(work.driver.cuMemAlloc_v2(&block.at, part));
    launch(fill_, block.at, block.words, std::uint64_t{all_.size()});
    all_.push_back(block);
    left -= part;
  }
}

void Blocks::stir() {
  Block& block = all_[next_++ % all_.size()];
  launch(stir_, block.at, block.words);
  ++block.stirred;
}

std::uint64_t Blocks::wrong() {
  std::uint64_t count = 0;
  QGPU_MUST(work_.driver.cuMemsetD8Async(wrong_, 0, sizeof count, work_.stream));
  for (std::uint64_t seed = 0; seed < all_.size(); ++seed) {
    launch(check_, all_[seed].at, all_[seed].words, seed, all_[seed].stirred, wrong_);
  }
  QGPU_MUST(work_.driver.cuStreamSynchronize(work_.stream));
  QGPU_MUST(work_.driver.cuMemcpyDtoH_v2(&count, wrong_, sizeof count));
  return count;
}

}  // namespace

// --mib N in blocks of --piece MIB, until --until FILE: one after the other is changed. Two of
// these kernels are in the stream at any time; each is told as it ends.
int lendWork(const Options& options) {
  const Size bytes = options.number("mib", 1024) * kMiB;
  Work work;
  const std::uint64_t from = nowNs();
  Blocks blocks(work, bytes, options.number("piece", 1024) * kMiB);
  TwoInFlight two(work);
  QGPU_MUST(work.driver.cuStreamSynchronize(work.stream));
  const double tookMs = static_cast<double>(nowNs() - from) / 1e6;
  std::puts("lends");
  std::fflush(stdout);
  std::uint64_t kernels = 0;
  for (; !endAsked(options); ++kernels) {
    blocks.stir();
    if (!two.put()) continue;
    std::printf("made %llu\n", static_cast<unsigned long long>(kernels));
    std::fflush(stdout);
  }
  std::printf("{\"bytes\":%zu,\"took_ms\":%.1f,\"kernels\":%llu,\"wrong\":%llu}\n", bytes, tookMs,
              static_cast<unsigned long long>(kernels),
              static_cast<unsigned long long>(blocks.wrong()));
  return 0;
}

}  // namespace qgpu::gpu
