// The processes on a card as a tenant is told them, by NVML and so by nvidia-smi: its own task's,
// each with the memory that counts against the quota, so that their sum is what NVML and CUDA tell
// as used. Others' are not its affair. Which of the task's have work on the card the driver says;
// whose they are, and what they hold, the report page.
//
// How long an entry is, the driver's name for the list does not say: _v3 had another length in the
// first releases of 535 than before and after, and callers were made for either. All begin with the
// process and its memory. So the driver fills memory of ours, and what it wrote tells the length.

#include <cstdlib>
#include <cstring>

#include "services/guest/attach.h"
#include "services/guest/cuda_driver.h"
#include "services/guest/loans.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

constexpr Result kInsufficientSize = 7, kNoMemory = 20;
constexpr U kEntriesMax = 4'096;
constexpr int kTries = 8;  // processes come while the driver is asked
constexpr std::size_t kEntryMin = 16, kEntryMax = 64;
constexpr int kUntouched = 0xa5;

// The start of every entry.
struct Entry {
  U pid;
  unsigned long long bytes;
};
static_assert(sizeof(Entry) == kEntryMin);

// What a process of the task holds; none: it is not of the task.
struct Own {
  bool is;
  std::uint64_t bytes;
};
Own ownOf(U pid) {
  for (std::uint32_t slot = 0; slot < QGPU_SLOTS && pid != 0; ++slot) {
    if (loadRelaxed(session.report->slot[slot].pid) != pid) continue;
    return {true, loans::total(*session.report, 1ull << slot)};
  }
  return {false, 0};
}

class List {
 public:
  List() = default;
  ~List() { free(bytes_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  // `ask` has the driver write so many entries, and tells how many there are.
  template <typename Ask>
  Result read(Ask ask) {
    Result rc = kInsufficientSize;
    for (int i = 0; i < kTries && rc == kInsufficientSize; ++i) {
      count_ = room_;
      if (bytes_) memset(bytes_, kUntouched, room_ * kEntryMax);
      rc = ask(&count_, bytes_);
      if (rc == kInsufficientSize && !grow()) return kNoMemory;
    }
    if (count_ > room_) count_ = room_;
    if (rc == kSuccess) keepOwn();
    return rc;
  }

  Result give(U* count, void* to) const {
    const bool fits = count_ <= *count && (to || count_ == 0);
    if (fits && count_ != 0) memcpy(to, bytes_, count_ * size_);
    *count = count_;
    return fits ? kSuccess : kInsufficientSize;
  }

 private:
  // No room beyond what the driver has to write: it might clear it.
  bool grow() {
    if (count_ > kEntriesMax) return false;
    void* more = realloc(bytes_, count_ * kEntryMax);
    if (!more) return false;
    bytes_ = static_cast<unsigned char*>(more);
    room_ = count_;
    return true;
  }

  // 0: nothing that could be entries was written.
  std::size_t entrySize() const {
    std::size_t end = room_ * kEntryMax;
    while (end > 0 && bytes_[end - 1] == kUntouched) --end;
    const std::size_t size = (end + count_ - 1) / count_;
    const std::size_t whole = (size + 7) / 8 * 8;
    return whole < kEntryMin || whole > kEntryMax ? 0 : whole;
  }

  void keepOwn() {
    size_ = count_ != 0 ? entrySize() : 0;
    U kept = 0;
    for (U i = 0; i < count_ && size_ != 0; ++i) {
      Entry entry;
      memcpy(&entry, bytes_ + i * size_, sizeof entry);
      const Own own = ownOf(entry.pid);
      if (!own.is) continue;
      // Of a task with several cards it is not known how much of it is on this one.
      if (session.welcome.cards == 1) entry.bytes = own.bytes;
      memmove(bytes_ + kept * size_, bytes_ + i * size_, size_);
      memcpy(bytes_ + kept++ * size_, &entry, sizeof entry);
    }
    count_ = kept;
  }

  unsigned char* bytes_ = nullptr;
  U room_ = 0, count_ = 0;
  std::size_t size_ = 0;
};

// A program that only looks, as nvidia-smi does, attaches with these.
template <auto function>
Result listed(NvmlDevice device, U* count, void* to) {
  const auto driver = cudaDriver.*function;
  if (!count || !ensureAttached()) return driver(device, count, to);
  List list;
  const Result rc =
      list.read([&](U* found, void* entries) { return driver(device, found, entries); });
  return rc == kSuccess ? list.give(count, to) : rc;
}

Result listedWithDetails(NvmlDevice device, NvmlProcesses* told) {
  const auto driver = cudaDriver.nvmlDeviceGetRunningProcessDetailList;
  if (!told || !ensureAttached()) return driver(device, told);
  List list;
  const Result rc = list.read([&](U* found, void* entries) {
    NvmlProcesses all{told->version, told->mode, *found, entries};
    const Result answer = driver(device, &all);
    *found = all.count;
    return answer;
  });
  return rc == kSuccess ? list.give(&told->count, told->entries) : rc;
}

}  // namespace

void wrapNvmlProcesses(Calls& table) {
#define QGPU_LIST(symbol, base, since, stream, types) table.symbol = listed<&Calls::symbol>;
  QGPU_NVML_LISTS(QGPU_LIST)
#undef QGPU_LIST
  table.nvmlDeviceGetRunningProcessDetailList = listedWithDetails;
}

}  // namespace qgpu::guest
