#pragma once
// What a pod asks of qgpu: from its JSON to one ask for each container, or the sentence that says
// which rule it breaks. The extender's filter, the admission webhook, the bridge of pods and the
// device plugin all read pods by this, so that a pod which is admitted is also understood.
//
// Pure: no clock, no I/O, nothing kept between calls. Any key case and unknown keys are taken, as
// the API server's own decoder does; what is no pod is refused, whatever its bytes (C7).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/ledger/fit.h"
#include "runtime/result.h"

namespace qgpu {

inline constexpr const char* kResourcePrefix = "tke.cloud.tencent.com";
inline constexpr const char* kAssignedAnnotation = "qgpu.io/assigned";
inline constexpr const char* kModelsAnnotation = "qgpu.io/card-models";  // "Tesla T4, A10"
inline constexpr const char* kGroupAnnotation = "qgpu.io/group";         // a name
inline constexpr const char* kGroupByAnnotation = "qgpu.io/group-by";    // or the key of a label
inline constexpr const char* kGroupSizeAnnotation = "qgpu.io/group-size";

enum class MemoryUnit : std::uint8_t { GiB, MiB };

struct PodRules {
  std::string prefix = kResourcePrefix;  // of resources and of the annotation app-class
  MemoryUnit unit = MemoryUnit::GiB;     // of PREFIX/qgpu-memory
};

enum class ContainerKind : std::uint8_t {
  Main,
  Sidecar,  // an init container with restartPolicy Always: runs beside the main ones
  Init,     // ends before the next one starts
};

// A container that asks for a share of a card, or for cards.
struct ContainerDemand {
  std::string name;
  ContainerKind kind = ContainerKind::Main;
  LedgerAsk ask;  // as checkAsk() takes it; its `card` is empty
  // An init container runs before the main ones and needs room of its own only where none of
  // theirs is at least as large: else this is the place, in `containers`, of the one whose cards
  // and room it uses. So room is never counted too low.
  std::optional<std::size_t> sharesWith;

  bool operator==(const ContainerDemand&) const = default;
};

// Pods of one namespace that start together or not at all.
struct PodGroup {
  std::string name;        // "NAME", or "KEY=VALUE" of a label; empty: the pod is in none
  std::uint32_t size = 0;  // pods that start together, 1 to kGroupSizeMax

  bool operator==(const PodGroup&) const = default;
};

struct PodDemands {
  static constexpr std::size_t kContainersMax = 64;  // that ask for something of ours

  std::string nameSpace;
  std::string name;
  std::string uid;
  std::string resourceVersion;
  std::string nodeName;       // bound already; else empty
  std::string application;    // its controller's uid, for replicas; else empty
  std::string assigned;       // annotation qgpu.io/assigned, as it is; else empty
  std::int32_t priority = 0;  // spec.priority
  TaskClass taskClass = TaskClass::Ordinary;
  std::vector<std::string> models;  // of cards, allowed; empty: any. Sorted, no two alike
  PodGroup group;
  std::vector<ContainerDemand> containers;  // in the pod's order, init containers first

  bool operator==(const PodDemands&) const = default;
  bool asksNothing() const { return containers.empty(); }
  bool namesOurs = false;  // a resource of ours is written in it, if only as 0
};

// InvalidArgument: the rule that is broken, what was found, and what to write instead. Limits on
// the text are the caller's.
Result<PodDemands> readPod(std::string_view json, const PodRules& rules);
// The same of a pod that may be bound with its decision: that one keeps the class in which it was
// bound, which its resources show, whatever its annotation was changed to since.
Result<PodDemands> readHeldPod(std::string_view json, const PodRules& rules);
// Whose JSON it is, also where it breaks a rule: namespace, name and uid, as far as they are there.
PodDemands podNamed(std::string_view json);

}  // namespace qgpu
