#include "services/webhook/webhook_door.h"

#include "services/kube/wall_time.h"

namespace qgpu {

Result<WebhookDoor::Opened> WebhookDoor::open(const std::string& address,
                                              const KubeSurroundings& around) {
  auto credentials = findCredentials(around);
  if (!credentials) return credentials.error();
  auto listener = TcpListener::open(address, "--webhook", Reach::Anywhere);
  if (!listener) return listener.error();
  return Opened{std::move(*listener), std::move(*credentials)};
}

WebhookDoor::WebhookDoor(Opened opened, PodRules rules, kj::LowLevelAsyncIoProvider& io,
                         kj::Network& network, kj::Timer& timer, std::uint64_t seed, Log& log)
    : api_(std::move(opened.credentials), network, timer, seed),
      server_(rules, io, timer, std::move(opened.listener)),
      keeper_(
          WebhookNames{}, rules, api_, server_, []() { return unixMsNow() / 1000; }, log) {
  keeper_.start();
}

}  // namespace qgpu
