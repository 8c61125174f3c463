#pragma once
// The wrappers that ask the gate, for every interface that has streams: one template serves all of
// its functions. The stream and the size of the work are found among the arguments by their types.
//
// An interface says by a type, `Api` here, where the functions are that wrappers stand before, and
// how much work a call is:
//   static constexpr auto& driver                 its table of functions
//   static cuda::Launch launchOf(arguments...)    as in cuda_work.h
//   static void enter()                           the runtime is called now
//   static cuda::Str streamAmong(arguments...)    that the call names; null: the default stream

#include "services/guest/cuda/cuda_paging.h"
#include "services/guest/cuda/cuda_streams.h"
#include "services/guest/cuda/cuda_work.h"
#include "services/guest/gate/estimates.h"
#include "services/guest/paging/pager.h"

namespace qgpu::guest {

// The estimate is only needed while the window applies. The way of a launch through an open gate is
// inlined whole: its calls would cost a third of it.
[[gnu::noinline]] inline CudaWork contendedWork(const cuda::Launch& launch) {
  if (!launch.kernel) return {0, nullptr, transferNs(launch.bytes)};
  const std::uint64_t key = estimateKey(launch.kernel, 3, launch.grid);
  return {key, launch.kernel, estimateOf(key)};
}

[[gnu::always_inline]] inline CudaWork workOf(const cuda::Launch& launch) {
  if (loadRelaxed(session.gate->gate) & QGPU_GATE_CONTENDED) [[unlikely]] {
    return contendedWork(launch);
  }
  return {0, nullptr, kUnknownEstimate};
}

// Where no call of this thread is inside the driver.
template <typename Call>
[[gnu::always_inline]] inline cuda::Result inDriver(Call call) {
  cudaThread.insideDriver = 1;
  const cuda::Result rc = call();
  cudaThread.insideDriver = 0;
  return rc;
}

// Without a record of its stream nobody can say when it ends.
template <typename Call>
[[gnu::noinline]] cuda::Result unfollowed(Call call) {
  const pager::OnCard memory;
  if (!memory.there()) return noDeviceAnyMore();
  const cuda::Result rc = call();
  if (rc == cuda::kSuccess && pager::active.load()) pager::neverIdle();
  return rc;
}

template <typename Call>
[[gnu::always_inline]] inline cuda::Result gated(cuda::Str handle, cuda::Stream0 zero,
                                                 const cuda::Launch& launch, MayBlock mayBlock,
                                                 Call call) {
  if (!looksAtCalls()) return call();
  if (captures.load(std::memory_order_relaxed)) [[unlikely]] {
    if (isCapturing(handle, zero)) return call();
  }
  CudaStream* stream = streamOf(handle, zero);
  if (!stream) return unfollowed(call);
  const CudaWork work = workOf(launch);
  Pass pass = admit(work.estimateNs, mayBlock);
  if (!pass.admitted) return noDeviceAnyMore();
  const bool paged = pager::active.load(std::memory_order_relaxed);
  if (paged && !paged::enter(pass, work.estimateNs, mayBlock)) [[unlikely]] {
    return noDeviceAnyMore();
  }
  wakeReaper();
  const cuda::Result rc = inDriver(call);
  if (rc != cuda::kSuccess) [[unlikely]] {
    retire(1, pass.windowNs, nowNs());
  } else {
    follow(*stream, pass, work);
  }
  if (paged) [[unlikely]]
    pager::leave();
  return rc;
}

// Of calls that a capture does not take up: what is launched runs. Nothing is left in a stream that
// is captured, so there its end is not followed.
template <typename Call>
inline cuda::Result gatedAlways(cuda::Str handle, cuda::Stream0 zero, const cuda::Launch& launch,
                                Call call) {
  const bool captured = looksAtCalls() && captures.load() && isCapturing(handle, zero);
  if (!captured) return gated(handle, zero, launch, MayBlock::kYes, call);
  const Pass pass = admit(workOf(launch).estimateNs, MayBlock::kYes);
  if (!pass.admitted) return noDeviceAnyMore();
  wakeReaper();
  const cuda::Result rc = inDriver(call);
  retire(1, pass.windowNs, nowNs());
  return rc;
}

template <typename Api, auto member, cuda::Stream0 zero, MayBlock mayBlock, typename F>
struct Gated;
template <typename Api, auto member, cuda::Stream0 zero, MayBlock mayBlock, typename... A>
struct Gated<Api, member, zero, mayBlock, cuda::Result (*)(A...)> {
  static cuda::Result call(A... a) {
    return gated(Api::streamAmong(a...), zero, Api::launchOf(a...), mayBlock,
                 [&] { return Api::enter(), (Api::driver.*member)(a...); });
  }
};

// As gated, and all that was on the stream is finished when it returns.
template <typename Api, auto member, cuda::Stream0 zero, typename F>
struct Draining;
template <typename Api, auto member, cuda::Stream0 zero, typename... A>
struct Draining<Api, member, zero, cuda::Result (*)(A...)> {
  static cuda::Result call(A... a) {
    CudaStream* stream = looksAtCalls() && !captures.load() ? streamOf(nullptr, zero) : nullptr;
    const std::uint64_t before = launchedOn(stream);
    const cuda::Result rc =
        Gated<Api, member, zero, MayBlock::kYes, cuda::Result (*)(A...)>::call(a...);
    if (rc == cuda::kSuccess && stream && !captures.load()) {
      // What other threads launched meanwhile may run on: then its own is left to the reaper.
      const bool alone = launchedOn(stream) == before + 1;
      drained(stream, alone ? before + 1 : before);
    }
    return rc;
  }
};

// As gated, and where its stream is captured it runs at once, held all the same.
template <typename Api, auto member, cuda::Stream0 zero, typename F>
struct GatedAlways;
template <typename Api, auto member, cuda::Stream0 zero, typename... A>
struct GatedAlways<Api, member, zero, cuda::Result (*)(A...)> {
  static cuda::Result call(A... a) {
    const auto inside = [&] { return Api::enter(), (Api::driver.*member)(a...); };
    return gatedAlways(Api::streamAmong(a...), zero, Api::launchOf(a...), inside);
  }
};

// Waits of a stream: the card is idle in them. They read memory all the same, so that in a process
// whose memory may leave each is followed to its end.
template <typename Api, auto member, cuda::Stream0 zero, typename F>
struct Noted;
template <typename Api, auto member, cuda::Stream0 zero, typename... A>
struct Noted<Api, member, zero, cuda::Result (*)(A...)> {
  static cuda::Result call(A... a) {
    if (!looksAtCalls()) return (Api::driver.*member)(a...);
    storeRelaxed(session.slot->last_submit_ns, coarseNs());
    const auto inside = [&] { return Api::enter(), (Api::driver.*member)(a...); };
    if (!pager::active.load(std::memory_order_relaxed)) return inDriver(inside);
    CudaStream* stream = streamOf(Api::streamAmong(a...), zero);
    const pager::OnCard memory;
    if (!memory.there()) return noDeviceAnyMore();
    const cuda::Result rc = inDriver(inside);
    if (rc != cuda::kSuccess) return rc;
    if (stream) {
      leaveLastMarker(*stream);
    } else {
      pager::neverIdle();
    }
    return rc;
  }
};

}  // namespace qgpu::guest
