#pragma once
// What this project wants of nodes and pods, out of the API server's JSON: pages of lists and lines
// of watches. The rest of each object, most of it, is skipped and never kept, so that 100,000 pods
// fit into little memory.
//
// What is no such JSON is Corrupt; nothing here throws (C7).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

inline constexpr const char* kEnableLabel = "qgpu-device-enable";

struct KubeNode {
  std::string name;
  std::string uid;
  std::string resourceVersion;
  std::string cards;      // annotation qgpu.io/cards, as it is
  std::string cordoned;   // annotation qgpu.io/cordoned, as it is
  bool labelled = false;  // label qgpu-device-enable, whatever it says
  bool enabled = false;   // label qgpu-device-enable=enable
  bool claims = false;    // label qgpu.io/claims=enable: its cards are given by claims
  bool mixed = false;     // label mixed-qgpu-enable=enable
  std::string policy;     // label PREFIX/qgpu-schedule-policy, as it is
  bool ready = false;
  bool unschedulable = false;
  std::string wholeCards;  // a resource of others that gives its cards whole; empty: none
  std::string runtime;     // of containers, "containerd://1.7.2"; empty: kubelet has not told
  bool operator==(const KubeNode&) const = default;
};

struct KubePod {
  PodDemands demands;              // also who it is, and where
  bool deleting = false;           // has a deletionTimestamp
  bool gated = false;              // has schedulingGates: kube-scheduler does not try it
  bool over = false;               // phase Succeeded or Failed: all its containers have ended
  std::vector<std::string> ended;  // its containers that have ended for good
};

// Whether nothing will use the room of this container (a place in demands.containers) again: it has
// ended for good, and so have those that share it.
bool isRoomOver(const KubePod& pod, std::size_t container);

template <typename Object>
struct KubePage {
  std::vector<Object> objects;  // of pods: those that ask for a card or hold one
  std::string resourceVersion;
  std::string next;  // empty: the last page
};

enum class KubeChange : std::uint8_t { Added, Modified, Deleted, Bookmark, Error };

template <typename Object>
struct KubeLine {
  KubeChange change = KubeChange::Bookmark;
  Object object;     // not of Bookmark and Error; of a pod that breaks a rule: who it is
  bool ours = true;  // of pods: it asks for a card or holds one
  std::string resourceVersion;
  unsigned status = 0;  // of Error, as the message
  std::string message;
};

class KubeReader {
 public:
  explicit KubeReader(PodRules rules = {});
  ~KubeReader();
  KubeReader(const KubeReader&) = delete;
  KubeReader& operator=(const KubeReader&) = delete;

  // `body` gets room for the parser behind its end.
  Status read(std::string& body, KubePage<KubeNode>& page);
  Status read(std::string& body, KubePage<KubePod>& page);
  // `line` has the parser's padding behind it.
  Status read(std::string_view line, KubeLine<KubeNode>& out);
  Status read(std::string_view line, KubeLine<KubePod>& out);

 private:
  struct Parts;  // keeps simdjson out of this header
  std::unique_ptr<Parts> parts_;
};

// Objects are known by these while they live, and again after; by their UIDs one is told from the
// next.
inline const std::string& keyOf(const KubeNode& node) {
  return node.name;
}
inline const std::string& uidOf(const KubePod& pod) {
  return pod.demands.uid;
}
inline std::string keyOf(const KubePod& pod) {
  return pod.demands.nameSpace + "/" + pod.demands.name;
}

}  // namespace qgpu
