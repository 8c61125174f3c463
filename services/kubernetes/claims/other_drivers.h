#pragma once
// Whether a driver of others gives this node's cards too, by ResourceSlices of its own: NVIDIA's
// and AMD's give whole cards, and kube-scheduler, which counts each driver's devices apart, would
// give one twice.

#include <kj/async.h>
#include <string>
#include <string_view>

#include "runtime/log.h"
#include "services/kubernetes/client/api_client.h"

namespace qgpu {

inline constexpr std::string_view kWholeCardsDrivers[] = {"gpu.nvidia.com", "gpu.amd.com"};

// Whether a list of ResourceSlices has devices of such a driver.
bool listsWholeCards(std::string_view json);

class OtherDrivers {
 public:
  // Both outlive it.
  OtherDrivers(ApiClient& api, Log& log, const std::string& node);
  OtherDrivers(const OtherDrivers&) = delete;
  OtherDrivers& operator=(const OtherDrivers&) = delete;

  // To be called again and again, never while it is under way. Where the API server gives no list,
  // everything stays as it was last seen.
  kj::Promise<void> look();
  // Whether the API server has answered at all.
  bool known() const { return known_; }
  bool give() const { return give_; }

 private:
  ApiClient& api_;
  Log& log_;
  const std::string path_;
  bool known_ = false;
  bool give_ = false;
  std::string trouble_;  // as last told
};

}  // namespace qgpu
