#pragma once
// Watches from the host whether the device's work-groups finish, and notes every standstill. This
// is what a suspended kernel looks like to its own program: the word that each group increments
// stops, and goes on later. It works where device and host share memory (any CPU device); elsewhere
// the word never moves and seen() stays false.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

class ProgressWatch {
 public:
  static constexpr std::int64_t kLookNs = 500'000;           // how often, and how exact
  static constexpr std::int64_t kStandstillNs = 20'000'000;  // shorter ones are not noted

  explicit ProgressWatch(const volatile std::uint32_t* word);
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  // Ends the watching; the results are complete afterwards.
  void stop();
  bool seen() const { return seen_; }
  const std::vector<Standstill>& standstills() const { return standstills_; }

 private:
  void watch();

  const volatile std::uint32_t* const word_;
  std::atomic<bool> stop_{false};
  bool seen_ = false;
  std::vector<Standstill> standstills_;
  std::thread thread_;
};

}  // namespace qgpu::demo
