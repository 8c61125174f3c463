#pragma once
// What the clients ask of the daemon itself rather than of its actor. The actor permits and audits
// it first, so that admin socket and RPC do the same.

#include <functional>
#include <kj/async.h>
#include <string>

#include "runtime/result.h"

namespace qgpu {

// A token that nobody has yet: `hash` is what a scheduler keeps of it, `text` what one person
// carries to the machine that is to join at `door`, HOST:PORT.
struct Invitation {
  std::string id;
  std::string hash;
  std::string text;
  std::string door;
};

// What a daemon does itself once its actor has permitted and audited it.
class Housekeeping {
 public:
  // Starts a snapshot; `done` is called on the loop, perhaps before this returns.
  virtual void snapshot(std::function<void(Status)> done) = 0;
  // All rows as a file of store/row_copy.h, in base64. `done` is called on the loop.
  virtual void save(std::function<void(Result<std::string>)> done) {
    done(fail(ErrorCode::Unsupported, "this daemon keeps no rows"));
  }
  // InvalidArgument where the level has no such name.
  virtual Status setLogLevel(const std::string& level) = 0;
  // Unsupported where no machine can join by a token.
  virtual Result<Invitation> invite(const std::string&) {
    return fail(ErrorCode::Unsupported,
                "this scheduler has no door for machines that join: start it with "
                "--join=HOST:PORT and --join-ca-key=FILE");
  }

 protected:
  ~Housekeeping() = default;
};

// How the snapshot went, once it is written.
kj::Promise<Status> snapshotOf(Housekeeping& keeping);
kj::Promise<Result<std::string>> saveOf(Housekeeping& keeping);

}  // namespace qgpu
