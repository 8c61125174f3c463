#pragma once
// The scene of a load: simulated tenants in every shape on the cards of a running manager. Half of
// the cards hold ordinary tasks, the other half one online task that comes in bursts and offline
// tasks that always want more. Preemption is measured where it counts: from the online tenant's
// own clock before its submit to the last store that shut a gate of its card (HAZARDS 17).

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "bench/load_tenant.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/attach/testing/guest_client.h"
#include "services/ctl/answers/client.h"

namespace qgpu::bench {

struct SceneOptions {
  std::int64_t kernelUs = 500;
  std::int64_t gapUs = 0;
  std::int64_t cards = 8;
  std::int64_t perCard = 3;
};

class Scene {
 public:
  static constexpr std::int64_t kTenantsMax = 1'024;

  // Binds and starts all tenants; returns once they are attached. `client` outlives the scene.
  static Result<std::unique_ptr<Scene>> open(ctl::Client& client, const SceneOptions& options);
  // Kills the tenants and ends their tasks.
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // Adds each preemption that ended since the last call; call it every millisecond or so.
  void lookForPreemptions(std::vector<Nanos>& preemptions);
  std::uint64_t launches() const;
  std::size_t tenants() const { return tenants_.size(); }
  std::size_t alive();  // of the tenants

 private:
  struct Tenant {
    std::uint64_t task = 0;
    std::uint32_t card = 0;
    std::string taskClass;
    TenantPlan plan;
    TenantRecord* record = nullptr;
    pid_t pid = -1;
    std::unique_ptr<GuestClient> view;  // of an offline task's gate page
    std::uint64_t burstsSeen = 0;
  };

  explicit Scene(ctl::Client& client) : client_(client) {}
  Status bindAll(const SceneOptions& options);
  Result<Tenant> bindTenant(std::uint32_t card, const char* taskClass, const SceneOptions& options);
  Status startAll();

  ctl::Client& client_;
  std::vector<Tenant> tenants_;
  TenantRecord* records_ = nullptr;  // shared with the tenants
};

// Slices that all tasks of the node have had.
std::uint64_t turnsOf(ctl::Client& client);

}  // namespace qgpu::bench
