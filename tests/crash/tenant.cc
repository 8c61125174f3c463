// qgpu-crash-tenant: a tenant without a driver. It runs the guest library's own code for the gate,
// the quota and the tie to the manager, but its kernels are pauses, so that dozens of it run on a
// small machine. It holds more than half of its quota and asks for the whole of it now and then.
//
// usage: qgpu-crash-tenant RECORD_FILE KERNEL_US GAP_US HELD_BYTES [LAUNCHES]
// Exit status: 0 LAUNCHES done or told to end, 1 not attached, 2 no memory within the quota, 3 gate
// closed.

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "services/guest/gate/gate.h"
#include "services/guest/gate/quota.h"
#include "tests/crash/tenant_record.h"

namespace qgpu::crash {
namespace {

constexpr std::uint64_t kQuotaAskedEvery = 8;  // launches

TenantRecord* mapRecord(const char* path) {
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* map = ::mmap(nullptr, sizeof(TenantRecord), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return map == MAP_FAILED ? nullptr : static_cast<TenantRecord*>(map);
}

void lookAtQuota(TenantRecord& record) {
  const std::uint64_t all = guest::loadRelaxed(guest::session.gate->quota_bytes);
  const std::uint32_t generation = guest::session.generation.load();
  if (!guest::reserve(all)) {
    record.refusals.fetch_add(1);
    return;
  }
  guest::release(all, generation);
  record.overQuota.fetch_add(1);
}

void lookAtIncarnation(TenantRecord& record) {
  const std::uint32_t now = guest::loadRelaxed(guest::session.gate->incarnation);
  if (now < record.incarnation.load()) record.incarnationsBack.fetch_add(1);
  record.incarnation.store(now);
}

void noteLaunch(TenantRecord& record, std::int64_t& lastNs) {
  const auto now = static_cast<std::int64_t>(guest::nowNs());
  if (now - lastNs > record.longestGapNs.load()) record.longestGapNs.store(now - lastNs);
  lastNs = now;
  record.launches.fetch_add(1);
}

void wait(std::uint64_t microseconds) {
  const timespec time = guest::timespecOf(microseconds * guest::kNsPerUs);
  ::ppoll(nullptr, 0, &time, nullptr);
}

int run(TenantRecord& record, std::uint64_t kernelUs, std::uint64_t gapUs, std::uint64_t held,
        std::uint64_t launches) {
  if (!guest::ensureAttached()) return 1;
  if (!guest::reserve(held)) return 2;
  record.attached.store(1);
  auto lastNs = static_cast<std::int64_t>(guest::nowNs());
  for (std::uint64_t n = 0; launches == 0 || n < launches; n++) {
    if (record.end.load() != 0) return 0;
    const guest::Pass pass = guest::admit(kernelUs * guest::kNsPerUs, guest::MayBlock::kYes);
    if (!pass.admitted) return 3;
    wait(kernelUs);
    guest::retire(1, pass.windowNs, guest::nowNs());
    noteLaunch(record, lastNs);
    lookAtIncarnation(record);
    if (n % kQuotaAskedEvery == 0) lookAtQuota(record);
    wait(gapUs);
  }
  return 0;
}

}  // namespace
}  // namespace qgpu::crash

int main(int argc, char** argv) {
  if (argc < 5 || argc > 6) {
    std::fprintf(stderr, "usage: %s RECORD_FILE KERNEL_US GAP_US HELD_BYTES [LAUNCHES]\n", argv[0]);
    return 64;
  }
  qgpu::crash::TenantRecord* record = qgpu::crash::mapRecord(argv[1]);
  if (record == nullptr) {
    std::perror(argv[1]);
    return 64;
  }
  const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
  return qgpu::crash::run(*record, number(2), number(3), number(4), number(5));
}
