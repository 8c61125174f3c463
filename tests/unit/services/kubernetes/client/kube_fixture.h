#pragma once
// What tests of the API server's clients share: KJ on a loop of ours, as in the daemons, with the
// stand-in and its clients in one process, over real sockets.

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "runtime/kj/bridge.h"
#include "services/kubernetes/client/api_client.h"
#include "services/kubernetes/client/testing/api_stand_in.h"

namespace qgpu::testing {

struct KubeFixture : ::testing::Test {
  static constexpr auto kPatience = 20 * kj::SECONDS;

  KubeFixture() { serve(nullptr); }
  ~KubeFixture() noexcept override = default;

  void serve(kj::Maybe<kj::TlsContext&> tls) {
    server = std::make_unique<ApiStandIn>(kj.io().getNetwork(), kj.timer(), tls, scope());
  }
  KubeCredentials plain() const {
    KubeCredentials out;
    out.source = "test";
    out.host = "127.0.0.1";
    out.port = std::to_string(server->port());
    out.tls = false;
    return out;
  }
  static ApiLimits quick() {
    ApiLimits limits;
    limits.renewToken = Nanos(0);
    return limits;
  }
  ApiClient& client(KubeCredentials credentials, ApiLimits limits = quick()) {
    clients.push_back(std::make_unique<ApiClient>(std::move(credentials), kj.io().getNetwork(),
                                                  kj.timer(), 7, limits));
    return *clients.back();
  }
  kj::WaitScope& scope() { return kj.waitScope(); }

  template <typename T>
  T wait(kj::Promise<T> promise) {
    return kj.timer().timeoutAfter(kPatience, kj::mv(promise)).wait(scope());
  }
  // Runs the loop until `done`, false where that takes too long.
  bool served(const std::function<bool()>& done) {
    const kj::TimePoint end = kj.timer().now() + kPatience;
    while (!done()) {
      if (kj.timer().now() > end) return false;
      kj.timer().afterDelay(1 * kj::MILLISECONDS).wait(scope());
    }
    return true;
  }

  Loop loop;
  KjBridge kj{loop};
  std::unique_ptr<ApiStandIn> server;
  std::vector<std::unique_ptr<ApiClient>> clients;
};

}  // namespace qgpu::testing
