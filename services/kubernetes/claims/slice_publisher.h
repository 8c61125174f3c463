#pragma once
// Keeps the node's ResourceSlice at the API server up to date. Others change it, too: kubelet
// deletes it when the driver is away for half a minute, as while a manager is replaced, and an
// administrator may edit it. So the slice is read every `lookEvery`, and written again where it
// differs from what was written last.

#include <kj/async.h>
#include <optional>
#include <string>

#include "runtime/log.h"
#include "services/kubernetes/claims/resource_slice.h"
#include "services/kubernetes/client/api_client.h"

namespace qgpu {

class SlicePublisher {
 public:
  // Both outlive it.
  SlicePublisher(ApiClient& api, Log& log, std::string node, Nanos lookEvery = seconds(10))
      : api_(api), log_(log), node_(std::move(node)), lookEvery_(lookEvery) {}
  SlicePublisher(const SlicePublisher&) = delete;
  SlicePublisher& operator=(const SlicePublisher&) = delete;

  // Makes the slice what `facts` say; without facts it is deleted. NodeClaims calls it again and
  // again, and never before the last call is done; it costs nothing where nothing changed. A
  // failure is logged once, and the next call tries again.
  kj::Promise<void> publish(std::optional<SliceFacts> facts);

 private:
  std::string path(bool named) const;
  kj::Promise<void> write(const SliceFacts& facts, const std::string& text,
                          const std::string& version);
  kj::Promise<void> withdraw();
  void tell(const ApiAnswer& answer);

  ApiClient& api_;
  Log& log_;
  const std::string node_;
  const Nanos lookEvery_;
  // The slice as the API server has it, without its version; empty: there is none; none: not known.
  std::optional<std::string> published_;
  std::string version_;  // that it had then
  kj::TimePoint lookedAt_ = kj::origin<kj::TimePoint>();
  std::string trouble_;  // as last told
};

}  // namespace qgpu
