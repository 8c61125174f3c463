#pragma once
// What the clients ask of the daemon itself rather than of its actor. The actor permits and audits
// it first, so that admin socket and RPC do the same.

#include <kj/async.h>

#include <functional>
#include <string>

#include "runtime/result.h"

namespace qgpu {

// What a daemon does itself once its actor has permitted and audited it.
class Housekeeping {
 public:
  // Starts a snapshot; `done` is called on the loop, perhaps before this returns.
  virtual void snapshot(std::function<void(Status)> done) = 0;
  // InvalidArgument where the level has no such name.
  virtual Status setLogLevel(const std::string& level) = 0;

 protected:
  ~Housekeeping() = default;
};

// How the snapshot went, once it is written.
kj::Promise<Status> snapshotOf(Housekeeping& keeping);

}  // namespace qgpu
