#pragma once
// What Allocate gives a container before anybody knows whose container it is: a folder of its own,
// named after its devices, which is mounted into it. PreStartContainer fills it once the owner is
// known. The folder says what it is for, so that a plugin that was killed at any point goes on from
// what lies on disk:
//
//   DIR/memory-0123456789abcdef/devices    the ids, one a line; written by prepare()
//                              /settings   NAME=VALUE lines: version, task, namespace, pod, ...
//                              /environment  NAME=VALUE lines: which cards are its program's,
//                                            where these are NVIDIA's; libqgpu.so applies them
//                              /token      the tenant's token; written last
//                              /dev/       device nodes for the container (device_folder.h)
//
// Every file is written anew beside the old one and renamed over it: a reader has the old or the
// new, never half of one. DIR is closed to all but its owner; the files in it are not, since the
// user of a container is nobody we know.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/kubernetes/device_plugin/pod_devices.h"

namespace qgpu {

inline constexpr std::uint32_t kSettingsVersion = 1;

// A container's task, as its placeholder says.
struct Grant {
  std::uint64_t task = 0;
  std::string token;
  ContainerName container;
  std::vector<std::string> cards;
};

// Writes settings, environment and token of `grant` into `folder`, which is there.
Status writeGrant(const std::string& folder, const Grant& grant);

struct Placeholder {
  std::string key;         // of the folder
  std::uint64_t task = 0;  // 0: nobody has started it yet
  ContainerName owner{};   // who has; an init container has no name
  std::vector<std::string> ids{};
};

class Placeholders {
 public:
  // `dir` is made when it is needed; its parent exists.
  explicit Placeholders(std::string dir) : dir_(std::move(dir)) {}

  static std::string keyOf(Resource resource, const std::vector<std::string>& ids);
  std::string pathOf(const std::string& key) const { return dir_ + "/" + key; }

  // The folder of these devices, there from now on; its path. Whatever an earlier container of the
  // same devices left in it is gone, but for a repeated call for the same one, which can't be told
  // apart: kubelet asks again only before it starts the container.
  Result<std::string> prepare(Resource resource, const std::vector<std::string>& ids) const;
  // Fills it, and makes it again where it is gone.
  Status fill(Resource resource, const std::vector<std::string>& ids, const Grant& grant) const;

  // All that are there. Unreadable ones count as not started.
  std::vector<Placeholder> list() const;
  void remove(const std::string& key) const;

 private:
  Result<std::string> open(Resource resource, const std::vector<std::string>& ids) const;

  std::string dir_;
};

}  // namespace qgpu
