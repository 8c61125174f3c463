#pragma once
// Cgroups of pods as kubelet makes them, and what a container runtime starts in them. They lie
// below a root of the test's own, as under kubelet's --cgroup-root, in version 2's hierarchy, which
// is mounted for this thread and what it starts. Needs root.

#include <map>
#include <string>
#include <vector>

#include "tests/e2e/testing_names.h"

namespace qgpu::e2e {

class KubeletCgroups {
 public:
  KubeletCgroups() = default;
  ~KubeletCgroups();  // and fails the test where a process is left in one
  KubeletCgroups(const KubeletCgroups&) = delete;
  KubeletCgroups& operator=(const KubeletCgroups&) = delete;

  // Empty; or why it can't be here.
  std::string mount();

  // A pod of the class burstable as the driver cgroupfs makes it, a guaranteed one as systemd does.
  void makeBurstable(const std::string& uid);
  void makeGuaranteed(const std::string& uid);
  void remove(const std::string& uid);

  // The pod's, as a container runtime is told of it: a path in the hierarchy.
  std::string pathOf(const std::string& uid) const;
  // Where the hierarchy is mounted.
  const std::string& place() const { return place_.path(); }
  // A command line for the same in a new container of the pod.
  std::vector<std::string> inPod(const std::string& uid, const std::vector<std::string>& argv);

 private:
  void make(const std::string& uid, const std::vector<std::string>& folders);

  TempFolder place_{"cgroups"};
  bool mounted_ = false;
  std::map<std::string, std::string> pods_;  // folder by uid
  std::vector<std::string> made_;            // folders, each behind the one above it
};

}  // namespace qgpu::e2e
