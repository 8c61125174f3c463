// The processes on a card as a tenant is told them by NVML: its own task's, each with the memory
// that counts against the quota, so that their sum is what NVML and CUDA tell as used, and how busy
// each kept the card. Others' are not its affair. Which of the task's have work on the card the
// driver says; whose they are, and what they hold, the report page. nvidia-smi asks for its list
// past NVML's public functions: rm_ioctl.cc leaves only the task's in what the driver tells.
//
// How long an entry of a list of who holds memory is, its name does not say: _v3 had another length
// in the first releases of 535 than before and after, and callers were made for either. All begin
// with the process and its memory. So the driver fills memory of ours, and what it wrote tells.

#include <cstdlib>
#include <cstring>

#include "services/guest/cuda/cuda_driver.h"
#include "services/guest/gate/attach.h"
#include "services/wire/loans.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

constexpr Result kNotFound = 6, kInsufficientSize = 7, kNoMemory = 20;
constexpr U kEntriesMax = 4'096;
constexpr int kTries = 8;  // processes come while the driver is asked
constexpr std::size_t kEntryMin = 16, kEntryMax = 64;
constexpr int kUntouched = 0xa5;

// What is known of a list's entries.
struct Form {
  std::size_t size;   // 0: as the driver writes them
  std::size_t pidAt;  // an unsigned int
  bool memory;        // what the process holds is at kBytesAt, an unsigned long long
};
constexpr std::size_t kBytesAt = 8;
constexpr Form kHolding{0, 0, true};
constexpr Form kBusy{32, 0, false};        // nvmlProcessUtilizationSample_t
constexpr Form kBusyByTime{40, 8, false};  // nvmlProcessUtilizationInfo_v1_t

// What a process of the task holds, and whether it is one.
struct Own {
  bool is;
  std::uint64_t bytes;
};
Own ownOf(U pid) {
  const std::uint32_t slot = slotOf(pid);
  if (slot == QGPU_SLOTS) return {false, 0};
  return {true, loans::total(*session.report, 1ull << slot)};
}

class List {
 public:
  explicit List(const Form& form) : form_(form) {}
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

  bool empty() const { return count_ == 0; }

  Result give(U* count, void* to) const {
    const bool fits = count_ <= *count && (to || count_ == 0);
    if (fits && count_ != 0) memcpy(to, bytes_, count_ * size_);
    *count = count_;
    return fits ? kSuccess : kInsufficientSize;
  }

 private:
  // No room beyond what the driver has to write: it might clear it. A driver that wants no more
  // than there is wants to be asked again.
  bool grow() {
    if (count_ <= room_) return true;
    if (count_ > kEntriesMax) return false;
    void* more = realloc(bytes_, count_ * kEntryMax);
    if (!more) return false;
    bytes_ = static_cast<unsigned char*>(more);
    room_ = count_;
    return true;
  }

  // 0: nothing that could be entries was written.
  std::size_t sizeWritten() const {
    std::size_t end = room_ * kEntryMax;
    while (end > 0 && bytes_[end - 1] == kUntouched) --end;
    const std::size_t size = ((end + count_ - 1) / count_ + 7) / 8 * 8;
    return size < kEntryMin || size > kEntryMax ? 0 : size;
  }

  void keepOwn() {
    size_ = form_.size;
    if (size_ == 0 && count_ != 0) size_ = sizeWritten();
    U kept = 0;
    for (U i = 0; i < count_ && size_ != 0; ++i) {
      unsigned char* entry = bytes_ + i * size_;
      U pid;
      memcpy(&pid, entry + form_.pidAt, sizeof pid);
      const Own own = ownOf(pid);
      if (!own.is) continue;
      const unsigned long long bytes = own.bytes;
      // Of a task with several cards it is not known how much of it is on this one.
      const bool known = form_.memory && session.welcome.cards == 1;
      if (known) memcpy(entry + kBytesAt, &bytes, sizeof bytes);
      memmove(bytes_ + kept++ * size_, entry, size_);
    }
    count_ = kept;
  }

  const Form form_;
  unsigned char* bytes_ = nullptr;
  U room_ = 0, count_ = 0;
  std::size_t size_ = 0;
};

// --- who holds memory; a program that only looks, as nvidia-smi does, attaches with these ---

template <auto function>
Result holding(NvmlDevice device, U* count, void* to) {
  const auto driver = cudaDriver.*function;
  if (!count || !ensureAttached()) return driver(device, count, to);
  List list(kHolding);
  const auto ask = [&](U* found, void* entries) { return driver(device, found, entries); };
  const Result rc = list.read(ask);
  return rc == kSuccess ? list.give(count, to) : rc;
}

Result holdingInDetail(NvmlDevice device, NvmlProcesses* told) {
  const auto driver = cudaDriver.nvmlDeviceGetRunningProcessDetailList;
  if (!told || !ensureAttached()) return driver(device, told);
  List list(kHolding);
  const Result rc = list.read([&](U* found, void* entries) {
    NvmlProcesses all{told->version, told->mode, *found, entries};
    const Result answer = driver(device, &all);
    *found = all.count;
    return answer;
  });
  return rc == kSuccess ? list.give(&told->count, told->entries) : rc;
}

// --- who kept the card busy ---

// Who asks for the room alone is told the driver's own: what it has room for, whoever that was.
template <typename Ask>
Result busy(const Form& form, U* count, void* to, Ask ask) {
  List list(form);
  const Result rc = list.read(ask);
  if (rc != kSuccess) return rc;
  return list.empty() ? kNotFound : list.give(count, to);
}

Result utilization(NvmlDevice device, void* to, U* count, unsigned long long since) {
  const auto driver = cudaDriver.nvmlDeviceGetProcessUtilization;
  if (!to || !count || !ensureAttached()) return driver(device, to, count, since);
  return busy(kBusy, count, to,
              [&](U* found, void* entries) { return driver(device, entries, found, since); });
}

Result utilizationByTime(NvmlDevice device, NvmlUtilization* told) {
  const auto driver = cudaDriver.nvmlDeviceGetProcessesUtilizationInfo;
  if (!told || !told->entries || !ensureAttached()) return driver(device, told);
  return busy(kBusyByTime, &told->count, told->entries, [&](U* found, void* entries) {
    NvmlUtilization all{told->version, *found, told->since, entries};
    const Result answer = driver(device, &all);
    *found = all.count;
    return answer;
  });
}

}  // namespace

void wrapNvmlProcesses(Calls& table) {
#define QGPU_LIST(symbol, base, since, stream, types) table.symbol = holding<&Calls::symbol>;
  QGPU_NVML_LISTS(QGPU_LIST)
#undef QGPU_LIST
  table.nvmlDeviceGetRunningProcessDetailList = holdingInDetail;
  table.nvmlDeviceGetProcessUtilization = utilization;
  table.nvmlDeviceGetProcessesUtilizationInfo = utilizationByTime;
}

}  // namespace qgpu::guest
