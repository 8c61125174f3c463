#pragma once
// The tenants of one act: started together, watched while they run, ended with a report each. While
// watching, every task's counters are sampled about 20 times a second; the same samples feed the
// lines and the figures.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/demo/tenants/live_view.h"
#include "services/demo/tenants/statistics.h"
#include "services/demo/tenants/tenant_host.h"

namespace qgpu::demo {

class TenantGroup {
 public:
  static constexpr std::int64_t kSampleNs = 50'000'000;

  // `title` says what they play, to who looks on; empty: nobody does.
  TenantGroup(TenantHost& node, const std::string& title, std::vector<TenantSpec> specs);

  // Returns when every workload has launched a few kernels, so that nothing is compiled later.
  Status warmUp();
  // Samples for `ns`, and shows it. Fails when a tenant ends or the manager is lost. To ask
  // takes some percent of a card that is a CPU: who measures closer than that asks less often.
  Status watch(std::int64_t ns, std::int64_t everyNs = kSampleNs);
  // Tells every workload "go", "pause", or "mark": to note how much it has done by now.
  void say(const std::string& word);
  // Samples until the named tenant ended by itself; gives its exit status.
  Result<int> watchUntilEnd(const std::string& name, std::int64_t nsMax);
  // Ends every workload and gives their reports by name; tenants with a program of their own,
  // and those that ended before, have none.
  Result<std::map<std::string, WorkReport>> finish();

  Child& child(const std::string& name) { return *tenants_.at(name).child; }
  const std::vector<TenantSpec>& specs() const { return specs_; }
  std::int64_t lastSampleNs() const { return lastNs_; }
  // Used time of a task, from the first watch() on; not empty after one.
  const Series& used(const std::string& name) const { return tenants_.at(name).used; }
  // The same of GPU time as measured by profiling.
  const Series& gpu(const std::string& name) const { return tenants_.at(name).gpu; }

 private:
  struct Tenant {
    std::unique_ptr<Child> child;
    Series used;
    Series gpu;
    bool mayEnd = false;
    bool ended = false;
  };

  Status sample();
  Status checkAlive();
  void draw();

  TenantHost& node_;
  std::vector<TenantSpec> specs_;
  std::map<std::string, Tenant> tenants_;
  std::optional<LiveView> view_;
  std::int64_t lastNs_ = 0;
  std::int64_t drawnNs_ = 0;  // 0: nothing yet
};

}  // namespace qgpu::demo
