#include "tests/sim/guests/guest_pages.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/check.h"
#include "tests/sim/guests/guest_program.h"

namespace qgpu::sim {
namespace {

Mapping mapPage(int fd, std::size_t bytes, int protection) {
  void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
  QGPU_CHECK(at != MAP_FAILED, "this machine has memory for a page");
  return Mapping(at, bytes);
}

template <typename Map>
void dropFrom(std::vector<std::unique_ptr<Map>>& maps, Map*& map) {
  if (map != nullptr && --map->users == 0) {
    std::erase_if(maps, [map](const auto& entry) { return entry.get() == map; });
  }
  map = nullptr;
}

}  // namespace

void GateMap::wake(int count) {
  const std::size_t n = std::min(waiters.size(), static_cast<std::size_t>(count));
  const std::vector<Waiter> first(waiters.begin(),
                                  waiters.begin() + static_cast<std::ptrdiff_t>(n));
  waiters.erase(waiters.begin(), waiters.begin() + static_cast<std::ptrdiff_t>(n));
  for (const Waiter& waiter : first) waiter.program->woken(waiter.thread);
}

void GateMap::forget(const Program& program, std::uint32_t thread) {
  std::erase_if(waiters, [&](const Waiter& waiter) {
    return waiter.program == &program && waiter.thread == thread;
  });
}

GateMap* GuestPages::find(std::uint32_t life) {
  for (const auto& gate : gates_) {
    if (gate->life == life) return gate.get();
  }
  return nullptr;
}

GateMap& GuestPages::gate(std::uint32_t life, const TaskPages& pages) {
  GateMap* gate = find(life);
  if (gate == nullptr) {
    gate = gates_.emplace_back(std::make_unique<GateMap>()).get();
    gate->life = life;
    gate->map = mapPage(pages.gateFd(), kGatePageBytes, PROT_READ);
  }
  gate->users++;
  return *gate;
}

ReportMap& GuestPages::report(const TaskPages& pages) {
  struct stat found {};
  QGPU_CHECK(::fstat(pages.reportFd(), &found) == 0, "a page can be examined");
  for (const auto& report : reports_) {
    if (report->file != found.st_ino) continue;
    report->users++;
    return *report;
  }
  ReportMap& report = *reports_.emplace_back(std::make_unique<ReportMap>());
  report.file = found.st_ino;
  report.fd.reset(::fcntl(pages.reportFd(), F_DUPFD_CLOEXEC, 0));
  report.map = mapPage(report.fd.get(), kReportPageBytes, PROT_READ | PROT_WRITE);
  report.users++;
  return report;
}

void GuestPages::drop(GateMap*& gate) {
  dropFrom(gates_, gate);
}
void GuestPages::drop(ReportMap*& report) {
  dropFrom(reports_, report);
}

}  // namespace qgpu::sim
