#include "services/kubernetes/webhook/webhook_service.h"

#include <utility>

#include "runtime/kj/bridge.h"
#include "services/base/wall_time.h"
#include "services/kubernetes/client/api_client.h"
#include "services/kubernetes/webhook/webhook_keeper.h"
#include "services/kubernetes/webhook/webhook_server.h"

namespace qgpu {

Result<WebhookService::Opened> WebhookService::open(const std::string& address,
                                                    const KubePlatform& around) {
  auto credentials = findCredentials(around);
  if (!credentials) return credentials.error();
  auto listener = TcpListener::open(address, "--webhook", Reach::Anywhere);
  if (!listener) return listener.error();
  return Opened{std::move(*listener), std::move(*credentials)};
}

WebhookService::WebhookService(Opened opened, PodRules rules, std::uint64_t seed, Log& log)
    : opened_(std::move(opened)),
      rules_(std::move(rules)),
      seed_(seed),
      log_(log),
      address_(opened_.listener.address()),
      thread_([this] { serve(); }) {}

WebhookService::~WebhookService() {
  loop_.stop();
  thread_.join();
}

void WebhookService::serve() {
  KjBridge kj(loop_);
  ApiClient api(std::move(opened_.credentials), kj.io().getNetwork(), kj.timer(), seed_);
  WebhookServer server(rules_, api, kj.lowLevel(), kj.timer(), std::move(opened_.listener));
  WebhookKeeper keeper(
      WebhookNames{}, rules_, api, server, []() { return unixMsNow() / 1000; }, log_);
  keeper.start();
  loop_.run();
}

}  // namespace qgpu
