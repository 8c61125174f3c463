#pragma once
// The node's cards as a ResourceSlice (resource.k8s.io/v1): what kube-scheduler gives to claims. A
// card is a device that several requests may have, each a part of its capacity:
//
//   memory  bytes, in steps of --memory-unit; a request that names none takes all
//   core    percent. Of an ordinary card 1 to 100, and all where none is named. Of a hybrid one,
//           which online and offline tasks share, it is what offline tasks may take in their turn:
//           online ones name none
//   tasks   how many a card takes; each request is one
//
// Where a card is plugged in is told by the names that Kubernetes has for it
// (resource.kubernetes.io/pciBusID, pcieRoot and numaNode), so that one constraint of a claim may
// speak of devices of several drivers.
//
// Each card is counted by itself: no device draws from counters that others draw from as well,
// which kube-scheduler has counted wrong for shared devices (kubernetes/kubernetes#139034).
//
// The kind of a card is its node's: hybrid where the node is mixed. A card that takes nothing new
// has a taint that says why. Pure.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/cards/pci_place.h"
#include "services/kubernetes/claims/claim.h"
#include "services/kubernetes/pods/cards_annotation.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

inline constexpr const char* kResourceApi = "/apis/resource.k8s.io/v1";
inline constexpr const char* kCardTaint = "qgpu.io/unavailable";

struct SliceFacts {
  std::string node;     // its name, which is the pool's too
  std::string nodeUid;  // the slice goes with it
  bool mixed = false;
  std::uint32_t maxTasksPerCard = 0;  // 0: nominal GiB / 4
  MemoryUnit unit = MemoryUnit::GiB;
  std::vector<AnnotatedCard> cards;
  std::map<std::string, PciPlace> places{};  // of cards, by id, where they are known
};

// A DNS label for a card: its id, where it is one in lower case; else a begin of it and a hash.
std::string deviceName(std::string_view cardId);

std::string sliceName(std::string_view node);
// The whole object. `version` is the resourceVersion that it replaces; empty: it is new.
std::string writeSlice(const SliceFacts& facts, std::string_view version);

}  // namespace qgpu
