// Takes memory in one of the ways that CUDA has, until the driver refuses, then says what it got.

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <vector>

#include "tests/gpu/work_driver.h"

namespace qgpu::gpu {
namespace {

constexpr int kDeviceMemory = 1;  // CUmemLocationType and CUmemAllocationType "pinned"
constexpr U kAttachGlobal = 1;    // managed memory

class Taker {
 public:
  Taker(Work& work, std::string kind) : work_(work), kind_(std::move(kind)) {}

  // One piece more. What is taken is also used where a page counts only then.
  Result take(Size bytes);
  void giveBack();
  Size pieces() const {
    return plain_.size() + physical_.size() + mapped_.size() + arrays_.size() + graphs_;
  }

 private:
  struct Map {
    Ptr at;
    Size bytes;
  };

  Result takePhysical(Size bytes);
  Result takeMapped(Size bytes);
  Result takeArray(Size bytes);
  Result takeByGraph(Size bytes);
  void unmap(const Map& map);

  Work& work_;
  const std::string kind_;
  Pool pool_ = nullptr;
  std::vector<Ptr> plain_;
  std::vector<Mem> physical_;
  std::vector<Map> mapped_;
  std::vector<Arr> arrays_;
  Size graphs_ = 0;
};

Result Taker::takePhysical(Size bytes) {
  const MemProperties properties{kDeviceMemory, 0, {kDeviceMemory, 0}, nullptr, {}};
  Mem made = 0;
  const Result rc = work_.driver.cuMemCreate(&made, bytes, &properties, 0);
  if (rc == kSuccess) physical_.push_back(made);
  return rc;
}

// As allocators do that grow in place: once it is mapped the handle is released, and the map alone
// keeps the memory.
Result Taker::takeMapped(Size bytes) {
  const Driver& d = work_.driver;
  const stand_in::MemAccess access{{kDeviceMemory, 0}, stand_in::kReadWrite};
  if (Result rc = takePhysical(bytes)) return rc;
  const Mem made = physical_.back();
  physical_.pop_back();
  Map map{0, bytes};
  Result rc = d.cuMemAddressReserve(&map.at, bytes, 0, 0, 0);
  if (rc == kSuccess) rc = d.cuMemMap(map.at, bytes, 0, made, 0);
  if (rc == kSuccess) rc = d.cuMemSetAccess(map.at, bytes, &access, 1);
  d.cuMemRelease(made);
  if (rc == kSuccess) rc = d.cuMemsetD8Async(map.at, 1, bytes, work_.stream);
  if (rc == kSuccess) rc = d.cuStreamSynchronize(work_.stream);
  if (rc == kSuccess) {
    mapped_.push_back(map);
  } else {
    unmap(map);
  }
  return rc;
}

void Taker::unmap(const Map& map) {
  work_.driver.cuMemUnmap(map.at, map.bytes);
  work_.driver.cuMemAddressFree(map.at, map.bytes);
}

Result Taker::takeArray(Size bytes) {
  constexpr int kUnsigned8 = 1;
  constexpr Size kWidth = 16384;
  const ArrayShape shape{kWidth, bytes / kWidth / 4, kUnsigned8, 4};
  Arr made = nullptr;
  const Result rc = work_.driver.cuArrayCreate_v2(&made, &shape);
  if (rc == kSuccess) arrays_.push_back(made);
  return rc;
}

// A graph that allocates and does not free: its memory lives until somebody frees it.
Result Taker::takeByGraph(Size bytes) {
  const Driver& d = work_.driver;
  Ptr at = 0;
  Graph graph = nullptr;
  Exec exec = nullptr;
  if (Result rc = d.cuStreamBeginCapture_v2(work_.stream, kCaptureThreadLocal)) return rc;
  const Result took = d.cuMemAllocAsync(&at, bytes, work_.stream);
  const Result ended = d.cuStreamEndCapture(work_.stream, &graph);
  if (took) return took;
  if (ended) return ended;
  Result rc = d.cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (rc == kSuccess) rc = d.cuGraphLaunch(exec, work_.stream);
  if (rc == kSuccess) rc = d.cuStreamSynchronize(work_.stream);
  if (rc == kSuccess) ++graphs_;
  return rc;
}

Result Taker::take(Size bytes) {
  const Driver& d = work_.driver;
  if (kind_ == "physical") return takePhysical(bytes);
  if (kind_ == "mapped") return takeMapped(bytes);
  if (kind_ == "array") return takeArray(bytes);
  if (kind_ == "graph") return takeByGraph(bytes);
  Ptr at = 0;
  Result rc = kInvalidValue;
  if (kind_ == "plain") rc = d.cuMemAlloc_v2(&at, bytes);
  if (kind_ == "managed") rc = d.cuMemAllocManaged(&at, bytes, kAttachGlobal);
  if (kind_ == "async") rc = d.cuMemAllocAsync(&at, bytes, work_.stream);
  if (kind_ == "pool") {
    const PoolProperties properties{kDeviceMemory, 0, {kDeviceMemory, 0}, nullptr, 0, 0, {}};
    if (!pool_) rc = d.cuMemPoolCreate(&pool_, &properties);
    if (pool_) rc = d.cuMemAllocFromPoolAsync(&at, bytes, pool_, work_.stream);
  }
  if (rc == kSuccess) rc = d.cuMemsetD8Async(at, 1, bytes, work_.stream);
  if (rc == kSuccess) rc = d.cuStreamSynchronize(work_.stream);
  if (rc == kSuccess) plain_.push_back(at);
  return rc;
}

void Taker::giveBack() {
  const Driver& d = work_.driver;
  const bool ordered = kind_ == "async" || kind_ == "pool";
  for (const Ptr at : plain_) ordered ? d.cuMemFreeAsync(at, work_.stream) : d.cuMemFree_v2(at);
  for (const Mem each : physical_) d.cuMemRelease(each);
  for (const Map& each : mapped_) unmap(each);
  for (const Arr each : arrays_) d.cuArrayDestroy(each);
  d.cuStreamSynchronize(work_.stream);
  plain_.clear();
  physical_.clear();
  mapped_.clear();
  arrays_.clear();
}

}  // namespace

// --kind KIND --piece MIB --most MIB [--until FILE]: with FILE says "held" and keeps it till then.
int memoryWork(const Options& options) {
  const std::string kind = options.text("kind", "plain");
  const Size piece = options.number("piece", 64) * kMiB;
  const Size most = options.number("most", 1 << 20) * kMiB;
  Work work;
  Size free = 0, total = 0, freeAtEnd = 0;
  QGPU_MUST(work.driver.cuMemGetInfo_v2(&free, &total));
  Taker taker(work, kind);
  Result refusal = kSuccess;
  const std::uint64_t from = nowNs();
  std::uint64_t longest = 0;
  for (std::uint64_t last = from; refusal == kSuccess && taker.pieces() * piece < most;) {
    refusal = taker.take(piece);
    const std::uint64_t now = nowNs();
    longest = std::max(longest, now - last);
    last = now;
  }
  const double tookMs = static_cast<double>(nowNs() - from) / 1e6;
  const Size got = taker.pieces() * piece;
  QGPU_MUST(work.driver.cuMemGetInfo_v2(&freeAtEnd, &total));
  if (!options.text("until", "").empty()) {
    std::puts("held");
    std::fflush(stdout);
    while (!endAsked(options)) ::poll(nullptr, 0, 5);
  }
  taker.giveBack();
  const Result again = kind == "graph" ? kSuccess : taker.take(piece);
  std::printf(
      "{\"kind\":\"%s\",\"got_bytes\":%zu,\"error\":%d,\"free_bytes\":%zu,"
      "\"free_at_end_bytes\":%zu,\"total_bytes\":%zu,\"took_ms\":%.1f,\"longest_ms\":%.1f,"
      "\"again_error\":%d}\n",
      kind.c_str(), got, refusal, free, freeAtEnd, total, tookMs,
      static_cast<double>(longest) / 1e6, again);
  return 0;
}

}  // namespace qgpu::gpu
