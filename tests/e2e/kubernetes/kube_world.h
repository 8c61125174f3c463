#pragma once
// A cluster of one node in which everything of ours is real: qgpu-scheduler, qgpu-manager and its
// qgpu-kubelet-plugin, and tenants that attach. API server, kubelet and kube-scheduler are played,
// over real HTTP and gRPC.
//
// What must hold in every quiet moment is agrees(): on each card the requests of the pods that
// live, as their annotations say where, are what the scheduler counts and what the manager has
// bound. Nothing double, nothing lost.

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "tests/crash/tenant_record.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/kubernetes/served_api.h"
#include "tests/e2e/kubernetes/small_kube_scheduler.h"
#include "tests/e2e/kubernetes/small_kubelet.h"

namespace qgpu::e2e {

inline constexpr const char* kNode = "n1";
inline constexpr const char* kSpace = "web";
// The tokens of the daemons at the API server, called like their accounts.
inline constexpr const char* kManagerAccount = "qgpu-manager";
inline constexpr const char* kSchedulerAccount = "qgpu-scheduler";

// A tenant without a driver, in a container: attaches, launches, and ends when it is told to.
class PlainTenant {
 public:
  explicit PlainTenant(const std::string& file);
  ~PlainTenant();
  PlainTenant(const PlainTenant&) = delete;
  PlainTenant& operator=(const PlainTenant&) = delete;

  std::vector<std::string> command() const;
  void end() { record_->end.store(1); }
  bool launchesOn();  // at least one more than when this is called, soon
  bool attached() const { return record_->attached.load() != 0; }
  const crash::TenantRecord& record() const { return *record_; }

 private:
  std::string file_;
  crash::TenantRecord* record_ = nullptr;
};

struct KubeWorld : ::testing::Test {
  KubeWorld();
  ~KubeWorld() noexcept override;

  // Everything, until the plugin serves kubelet and the scheduler may place on the node.
  void startAll(const std::string& cards = "sim:2x16", std::vector<std::string> more = {});

  struct Asks {  // of a container
    int percent = 0;
    int gib = 0;
    std::string taskClass = "";  // "online", "offline"; else ordinary
  };
  static Json container(const std::string& name, const Asks& asks,
                        const std::vector<std::string>& command);
  // Creates it at the API server; unbound.
  void createPod(const std::string& name, const std::vector<Json>& containers,
                 const std::vector<Json>& inits = {}, const std::string& taskClass = "",
                 const Json& annotations = Json::object());
  void create(const std::string& name, const Asks& asks, const std::vector<std::string>& command);
  Json pod(const std::string& name) { return api.find("pods", kSpace, name); }
  void erase(const std::string& name);  // as `kubectl delete`: marked, kubelet does the rest
  std::string phase(const std::string& name);
  bool reaches(const std::string& name, const std::string& phase);
  bool vanishes(const std::string& name);

  // kube-scheduler's part: filter, priorities and bind; what the bind answers, or the filter where
  // it passes no node on. Null where nobody answers.
  Json cycle(const std::string& name);
  // The same up to the bind, which may be made beside other cycles.
  SmallKubeScheduler::Tried tryPod(const std::string& name);
  // Cycles until the pod is bound; a failure says what the last one was answered.
  ::testing::AssertionResult schedule(const std::string& name);

  pid_t pluginPid() const;  // 0: none runs
  bool served();            // kubelet by the plugin
  // The three views of the cards are one; waits for it. What they say goes with a failure.
  ::testing::AssertionResult agrees();
  std::uint64_t boundGib();  // by the manager

  std::vector<std::string> schedulerFlags;
  Environment schedulerEnvironment;

  TempFolder dir;
  ServedApi api;
  SmallKubelet kubelet;
  std::unique_ptr<Manager> manager;
  std::unique_ptr<Scheduler> scheduler;

 private:
  Json viewOf(const std::vector<Json>& cards) const;
  Json viewOfPods();
  std::uint64_t uids_ = 0;
};

}  // namespace qgpu::e2e
