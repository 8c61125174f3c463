#pragma once
// A small kubelet: what the device plugin and the API server see of one, and the pods between them.
// It sees the pods that are bound to its node, admits them (the stand-in chooses and allocates
// devices), starts their containers one after the other (PreStartContainer, then the command with
// the environment of its answers), and sets the pods' phases. A pod that is deleted gets SIGTERM,
// then SIGKILL, keeps its devices until its processes are gone, and leaves the API server last.
// A pod whose admission fails is Failed for good, as the real one does it.
//
// Each pod has a thread of its own, as it has a worker there; the test is told of each step on it
// and can stop it there.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "services/kubernetes/device_plugin/testing/kubelet_stand_in.h"
#include "tests/e2e/kubernetes/served_api.h"
#include "tests/e2e/testing_names.h"

namespace qgpu::e2e {

class SmallKubelet {
 public:
  enum class Step {
    Allocated,   // every device of the pod
    Prestarted,  // the first resource of a container, others may follow
    Released,    // its processes are gone and its devices are free
  };
  using Hook = std::function<void(Step, const std::string& pod)>;

  // `dir`: what --kubelet-dir names.
  SmallKubelet(ServedApi& api, std::string dir, std::string prefix, std::string node);
  ~SmallKubelet();  // ends all processes
  SmallKubelet(const SmallKubelet&) = delete;
  SmallKubelet& operator=(const SmallKubelet&) = delete;

  void start();  // wipes the sockets; its pods are those that it knew
  void stop();   // processes of containers go on
  testing::KubeletStandIn& devices() { return devices_; }
  // Called on the pod's thread after each step; before any pod is there.
  void setHook(Hook hook) { hook_ = std::move(hook); }

  // What a container's start failed with last; empty: nothing.
  std::string trouble(const std::string& pod) const;
  // Processes of the pod that live.
  std::size_t processes(const std::string& pod) const;

 private:
  struct Pod;

  void watch();
  void look();
  void begin(const Json& object);
  void live(Pod& pod);
  bool runInits(Pod& pod);
  bool startContainer(Pod& pod, const Json& container);
  bool wait(Pod& pod, const std::function<bool()>& until);
  void endProcesses(Pod& pod);
  void over(Pod& pod, bool succeeded);
  void tellEnded(Pod& pod, const char* part, const std::string& container);
  void change(Pod& pod, const std::function<void(Json&)>& how);
  void setPhase(Pod& pod, const std::string& phase, const std::string& why);
  std::vector<testing::KubeletStandIn::Asking> askingOf(const Json& spec) const;
  void pause();
  void tell(Step step, const Pod& pod);

  ServedApi& api_;
  const std::string prefix_;
  const std::string node_;
  testing::KubeletStandIn devices_;
  Hook hook_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, std::unique_ptr<Pod>> pods_;  // by uid
  bool runs_ = false;
  std::atomic<bool> over_{false};
  std::thread thread_;  // last
};

}  // namespace qgpu::e2e
