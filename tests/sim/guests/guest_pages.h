#pragma once
// The pages of one task as its processes have them: mapped from descriptors of their own, so that
// they are there whatever becomes of the manager, and the threads that wait on a gate word.

#include <cstdint>
#include <memory>
#include <vector>

#include "services/attach/pages/task_pages.h"

namespace qgpu::sim {

class Program;

// A gate page of one life of the manager. Threads wait on its word in the order in which they came.
struct GateMap {
  struct Waiter {
    Program* program = nullptr;
    std::uint32_t thread = 0;  // as Program counts them
  };
  std::uint32_t life = 0;
  std::uint32_t users = 0;
  Mapping map;
  std::vector<Waiter> waiters;

  const qgpu_gate_page& page() const { return *map.as<const qgpu_gate_page>(); }
  // The kernel's FUTEX_WAKE: the first ones go on.
  void wake(int count);
  void forget(const Program& program, std::uint32_t thread);
};

struct ReportMap {
  std::uint64_t file = 0;  // which it is
  std::uint32_t users = 0;
  Fd fd;
  Mapping map;

  qgpu_report_page& page() const { return *map.as<qgpu_report_page>(); }
};

// All of one task. Maps stay as long as somebody uses them.
class GuestPages {
 public:
  GateMap& gate(std::uint32_t life, const TaskPages& pages);
  ReportMap& report(const TaskPages& pages);
  GateMap* find(std::uint32_t life);
  void drop(GateMap*& gate);
  void drop(ReportMap*& report);

 private:
  std::vector<std::unique_ptr<GateMap>> gates_;
  std::vector<std::unique_ptr<ReportMap>> reports_;
};

}  // namespace qgpu::sim
