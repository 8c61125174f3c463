#pragma once
// What a ResourceClaim (resource.k8s.io/v1) gives on this node, by kube-scheduler's decision in its
// status: each of its requests that this driver serves here is one task, whose class the device
// class or the claim itself names:
//
//   parameters of driver qgpu.io:
//     {"apiVersion": "qgpu.io/v1", "kind": "TaskParameters", "class": "offline"}
//
// Consumed capacity is what the task gets: `memory` in bytes, `core` in percent (offline: greedy
// percent). All of a card's core is all of the card. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "actors/model.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

inline constexpr const char* kClaimDriver = "qgpu.io";
inline constexpr const char* kClaimParameters = "TaskParameters";
inline constexpr const char* kClaimParametersVersion = "qgpu.io/v1";
inline constexpr std::string_view kCapacityMemory = "memory";
inline constexpr std::string_view kCapacityCore = "core";
inline constexpr std::string_view kCapacityTasks = "tasks";

struct ClaimName {
  std::string nameSpace;
  std::string name;
  std::string uid;
  std::string text() const { return nameSpace + "/" + name; }
};

// A device as the claim's status names it.
struct ClaimDevice {
  std::string device;  // name in our ResourceSlice
  std::string share;   // shareID; empty: the device is given to one request alone
  bool operator==(const ClaimDevice&) const = default;
};

// One request of a claim: one task.
struct ClaimPart {
  std::string request;  // "gpu"; of alternatives "gpu/large"
  std::vector<ClaimDevice> devices;
  TaskClass taskClass = TaskClass::Ordinary;
  Bytes mem{0};        // of each device; 0: all of it, for whole cards alone
  Permille share{0};   // ordinary: of compute; offline: greedy; online: 0
  bool admin = false;  // for monitoring: it gets the cards to look at, and no task
  bool operator==(const ClaimPart&) const = default;
};

// The parts of the claim in `json`, which must be `claim`, on the devices of `pool`. NotFound: it
// is another claim, or gives nothing here (yet); InvalidArgument: what it gives is no task.
Result<std::vector<ClaimPart>> readClaim(std::string_view json, const ClaimName& claim,
                                         std::string_view pool);

// The pods that a claim is reserved for, which are those that use it.
struct ClaimUsers {
  static constexpr std::size_t kPodsMax = 256;  // by its API
  struct Pod {
    std::string name;
    std::string uid;
    bool operator==(const Pod&) const = default;
  };
  std::string uid;  // of the claim
  std::vector<Pod> pods;
};
// What is no claim has none, and no uid.
ClaimUsers readClaimUsers(std::string_view json);

// The device class of deploy/kubernetes for tasks of this class: "offline.qgpu.io".
std::string deviceClassOf(TaskClass taskClass);

}  // namespace qgpu
