#pragma once
// The driver as kubelet sees it: one gRPC server on two sockets, the one in the folder that kubelet
// watches, which says who we are, and the one where claims are prepared and taken back. Calls come
// in on gRPC's threads and are answered on the loop, by a ClaimPreparer; nothing is decided here.

#include <kj/async.h>
#include <memory>
#include <string>
#include <vector>

#include "runtime/loop.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/kubernetes/claims/claim.h"
#include "services/kubernetes/grpc/retired_servers.h"

namespace qgpu {

// A device of a claim that was prepared for containers.
struct PreparedDevice {
  std::string request;
  ClaimDevice device;
  std::vector<std::string> cdiDevices;  // full names
};

// Answers, on the loop.
class ClaimPreparer {
 public:
  using Devices = std::vector<PreparedDevice>;
  virtual kj::Promise<Result<Devices>> prepare(ClaimName claim) = 0;
  virtual kj::Promise<Status> unprepare(ClaimName claim) = 0;
  // Kubelet knows us from now on, or refuses us with this sentence.
  virtual void onRegistered(bool registered, const std::string& why) = 0;

 protected:
  ~ClaimPreparer() = default;
};

inline constexpr Nanos kHealthTold = seconds(60);  // after which kubelet believes it no more

struct ClaimSockets {
  std::string registration;  // in the folder that kubelet watches
  std::string driver;
};

struct DeviceHealth {
  std::string device;  // its name in our slice
  bool healthy = true;
};

class ClaimServer : public LoopServer {
 public:
  // To every kubelet that watches. To be told again within kHealthTold, also where it is the same.
  virtual void publish(const std::vector<DeviceHealth>& devices) = 0;

  // Serves from now on; whatever an earlier one left at these places is gone. `pool`: the name
  // under which our slice has its devices. `loop` and `preparer` outlive it. Unavailable: nobody
  // can listen there.
  static Result<std::unique_ptr<ClaimServer>> open(Loop& loop, ClaimPreparer& preparer,
                                                   ClaimSockets sockets, std::string pool);
};

}  // namespace qgpu
