#include "services/kubernetes/grpc/retired_servers.h"

#include "runtime/check.h"

namespace qgpu {

RetiredServers::~RetiredServers() {
  QGPU_CHECK(ending_.empty(), "whoever ends the loop waits for the servers to end");
}

void RetiredServers::add(std::unique_ptr<LoopServer> server) {
  LoopServer* ending = server.get();
  ending->refuseAll();
  const std::uint64_t number = ++last_;
  Ending& entry = ending_[number];
  entry.server = std::move(server);
  entry.thread = std::thread([this, ending, number] {
    ending->shutDown();
    loop_.post([this, number] {
      ending_.at(number).thread.join();
      ending_.erase(number);
    });
  });
}

}  // namespace qgpu
