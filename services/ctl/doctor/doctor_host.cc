// What the machine itself gives or withholds: room on the disk, the clock, and what the kernel and
// the NVIDIA driver offer to each way in which a card is held.

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include "runtime/fd.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/doctor/doctor.h"
#include "services/ctl/doctor/doctor_look.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::ctl {
namespace {

constexpr std::uint64_t kDiskLeast = std::uint64_t{64} << 20U;
constexpr std::uint64_t kDiskLow = std::uint64_t{1} << 30U;
// A daemon empties it whenever it has a moment of rest.
constexpr std::uint64_t kWalLarge = std::uint64_t{256} << 20U;
constexpr const char* kStateFolder = "/var/lib/qgpu";

std::uint64_t sizeOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

void checkDisk(DoctorContext& context) {
  struct statvfs disk {};
  const std::string folder = context.path(kStateFolder);
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  std::uint64_t wal = 0;
  for (const std::string& name : namesIn(folder, "", "-wal")) {
    wal = std::max(wal, sizeOf(folder + "/" + name));
  }
  judgeDisk(context, kStateFolder, {disk.f_bavail * disk.f_frsize, disk.f_favail, wal});
}

void checkClock(DoctorContext& context) {
  if (context.options.root != "/") return;  // the clock is this machine's
  timex clock{};
  const int state = ::adjtimex(&clock);
  if (state < 0) return;
  judgeClock(context, state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0);
}

// As the pages that manager and programs share are made.
void checkSeals(DoctorContext& context) {
  if (context.options.root != "/") return;
  const Fd page(::memfd_create("qgpu-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool sealed = page && ::ftruncate(page.get(), 4096) == 0 &&
                      ::fcntl(page.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  if (sealed) return context.well("memory can be shared and sealed, as tasks and manager need it");
  context.finding("memory-seals", "the kernel gives no memory that can be sealed (memfd_create)",
                  "leave the kernel's CONFIG_MEMFD_CREATE on, and no filter of system calls in "
                  "its way");
}

rm::Layout driverLayout(const std::string& driver) {
  return rm::layoutOf(driver.c_str(), driver.size() + 1);
}

std::string unlessTried(const std::string& driver) {
  if (!rm::isNewer(driver.c_str(), driver.size() + 1)) return "";
  return ", unless the manager found that it is asked as the newest of them (`qgpuctl cards -o "
         "wide` says so)";
}

}  // namespace

void judgeDisk(DoctorContext& context, const std::string& folder, const DiskRoom& room) {
  const std::string free = folder + " has " + humanBytes(room.freeBytes) + " left";
  if (room.freeBytes < kDiskLeast || room.freeFiles == 0) {
    context.finding("disk-full",
                    room.freeFiles == 0 ? folder + " has no room for another file" : free,
                    "make room there: df -h " + folder + "; daemons go on by themselves then");
  } else if (room.freeBytes < kDiskLow) {
    context.finding("disk-low", free, "make room there before it is full: du -xsh " + folder);
  } else {
    context.well(free);
  }
  if (room.walBytes > kWalLarge) {
    context.finding("wal-large",
                    "a database in " + folder + " has a log of " + humanBytes(room.walBytes) +
                        " that was not taken over",
                    "qgpuctl snapshot; where it stays, look for storage-failed in qgpuctl events");
  }
}

void judgeClock(DoctorContext& context, bool synchronised) {
  if (synchronised) return context.well("the clock is kept right by the network");
  context.finding("clock-unsynced",
                  "nothing keeps this machine's clock right: certificates and the times of events "
                  "count on it",
                  "timedatectl set-ntp true, or start chronyd; where the host's clock is a "
                  "container's, look there");
}

void judgeCounting(DoctorContext& context, const std::string& driver) {
  if (driverLayout(driver) != rm::Layout::kUnknown) {
    return context.well("driver " + driver +
                        " is known to qgpu: memory of its cards counts where it is asked for");
  }
  const std::string range =
      std::to_string(rm::kOldestKnown) + " to " + std::to_string(rm::kNewestKnown);
  context.finding("driver-unknown",
                  "NVIDIA's driver " + driver + " is not known to this qgpu (" + range +
                      " are): the guard has no cap of its cards' memory, which counts at CUDA's "
                      "calls, without contexts and what pools keep" +
                      unlessTried(driver),
                  "install a driver of " + range +
                      ", or a qgpu that knows this one; until then leave room on the card beside "
                      "the quotas");
}

void judgeRm(DoctorContext& context, const std::string& driver,
             const std::vector<unsigned>& kernel) {
  const std::vector<unsigned> needed = {5, 6};
  const auto* first =
      std::ranges::find(rm::kKnownDrivers, rm::Layout::kFrom535, &rm::KnownDriver::layout);
  const std::string range =
      std::to_string(first->major) + " to " + std::to_string(rm::kNewestKnown);
  if (driverLayout(driver) != rm::Layout::kFrom535) {
    context.finding("driver-rm",
                    "NVIDIA's driver " + driver + " is none of those (" + range +
                        ") whose cards can be held by rm: their tasks are held by gates" +
                        unlessTried(driver),
                    "install one of them, or live with gates: others may wait for long kernels");
  } else if (!kernel.empty() && kernel < needed) {
    context.finding("kernel-rm",
                    "this kernel has no pidfd_getfd, so no card can be held by rm: its tasks are "
                    "held by gates",
                    "run Linux 5.6 or later");
  } else {
    context.well("driver " + driver + " and kernel have what a hold by rm needs (" + range +
                 ", Linux 5.6)");
  }
}

void examineHost(DoctorContext& context) {
  checkSeals(context);
  checkDisk(context);
  checkClock(context);
}

}  // namespace qgpu::ctl
