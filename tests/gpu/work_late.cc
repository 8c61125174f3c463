#include "tests/gpu/work_late.h"

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <unistd.h>

#include "tests/gpu/kernels.h"

namespace qgpu::gpu {
namespace {

constexpr int kHeardMs = 200;  // on an idle machine a manager has heard of new channels after that

}  // namespace

LateWork::LateWork(const Driver& driver, Asked asked)
    : driver_(driver), asked_(std::move(asked)), all_(asked_.count), thread_([this] { work(); }) {}

std::string LateWork::finish() {
  ending_ = true;
  thread_.join();
  const bool same = std::all_of(all_.begin(), all_.end(),
                                [&](const One& one) { return one.sum == all_.front().sum; });
  char text[128];
  std::snprintf(text, sizeof text,
                "\"late\":%zu,\"late_ran\":%u,\"late_sum\":\"%016llx\",\"late_same\":%s",
                all_.size(), ran_.load(),
                static_cast<unsigned long long>(all_.empty() ? 0 : all_.front().sum),
                same ? "true" : "false");
  return text;
}

void LateWork::ran(void* self) {
  std::printf("ran %u\n", ++static_cast<LateWork*>(self)->ran_);
  std::fflush(stdout);
}

void LateWork::await(const std::string& file) const {
  while (!exists(file) && !ending_) ::poll(nullptr, 0, 1);
}

void LateWork::work() {
  await(asked_.from);
  std::printf("process %d\n", ::getpid());
  std::fflush(stdout);
  std::size_t count = 0;
  for (One& one : all_) {
    QGPU_MUST(driver_.cuCtxCreate_v2(&one.context, 0, 0));
    QGPU_MUST(driver_.cuStreamCreate(&one.stream, kNonBlocking));
    std::printf("late %zu\n", ++count);
    std::fflush(stdout);
  }
  if (!all_.empty()) ::poll(nullptr, 0, kHeardMs);
  await(asked_.heard);
  for (One& one : all_) {
    QGPU_MUST(driver_.cuCtxSetCurrent(one.context));  // a driver may refuse another's stream
    QGPU_MUST(driver_.cuLaunchHostFunc(one.stream, ran, this));
  }
  for (One& one : all_) run(one);
}

void LateWork::run(One& one) {
  Mod module = nullptr;
  Fn mix = nullptr;
  Ptr sum = 0;
  QGPU_MUST(driver_.cuCtxSetCurrent(one.context));
  QGPU_MUST(driver_.cuModuleLoadData(&module, kWorkPtx));
  QGPU_MUST(driver_.cuModuleGetFunction(&mix, module, "mix"));
  QGPU_MUST(driver_.cuMemAlloc_v2(&sum, 8));
  QGPU_MUST(driver_.cuMemsetD8Async(sum, 0, 8, one.stream));
  void* arguments[] = {const_cast<std::uint64_t*>(&asked_.rounds), &sum};
  QGPU_MUST(driver_.cuLaunchKernel(mix, 8, 1, 1, Work::kThreads, 1, 1, 0, one.stream, arguments,
                                   nullptr));
  QGPU_MUST(driver_.cuStreamSynchronize(one.stream));
  QGPU_MUST(driver_.cuMemcpyDtoH_v2(&one.sum, sum, sizeof one.sum));
  QGPU_MUST(driver_.cuCtxDestroy_v2(one.context));
}

// --how memory|contexts, until --until FILE: takes 2 MiB and gives them back, or makes a context
// and ends it, over and over. What other programs of the card meet of it is the driver's locks.
int disturbWork(const Options& options) {
  constexpr Size kPiece = 2 << 20;
  const bool memory = options.text("how", "memory") == "memory";
  Work work;
  const Driver& driver = work.driver;
  std::puts("disturbs");
  std::fflush(stdout);
  std::uint64_t turns = 0;
  for (; !endAsked(options); ++turns) {
    Ptr piece = 0;
    Ctx context = nullptr;
    if (memory) {
      QGPU_MUST(driver.cuMemAlloc_v2(&piece, kPiece));
      QGPU_MUST(driver.cuMemFree_v2(piece));
    } else {
      QGPU_MUST(driver.cuCtxCreate_v2(&context, 0, 0));
      QGPU_MUST(driver.cuCtxDestroy_v2(context));
    }
  }
  std::printf("{\"turns\":%llu}\n", static_cast<unsigned long long>(turns));
  return 0;
}

}  // namespace qgpu::gpu
