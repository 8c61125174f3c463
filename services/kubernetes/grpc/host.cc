#include "services/kubernetes/grpc/host.h"

#include <algorithm>
#include <chrono>

namespace qgpu {
namespace {

constexpr auto kGoodbye = std::chrono::milliseconds(200);
constexpr int kThreadsMax = 4;  // for calls that are passed on to a loop

}  // namespace

bool GrpcHost::serve(const std::vector<std::string>& sockets,
                     const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  std::vector<int> ports(sockets.size(), 0);
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    builder.AddListeningPort("unix:" + sockets[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetResourceQuota(grpc::ResourceQuota("qgpu").SetMaxThreads(kThreadsMax));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  server_ = builder.BuildAndStart();
  return server_ != nullptr && std::find(ports.begin(), ports.end(), 0) == ports.end();
}

grpc::ServerUnaryReactor* GrpcHost::answerNow(grpc::CallbackServerContext* context,
                                              const grpc::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

void GrpcHost::shutDown() {
  server_->Shutdown(std::chrono::system_clock::now() + kGoodbye);
  server_->Wait();
}

}  // namespace qgpu
