#pragma once
// What serves gRPC on sockets of this machine and answers on a loop: a server is its services and
// one of these, which is its last member, since gRPC's threads use everything above it.

#include <grpcpp/grpcpp.h>
#include <kj/async.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/loop.h"
#include "services/kubernetes/grpc/replies.h"

namespace qgpu {

class GrpcHost final : private kj::TaskSet::ErrorHandler {
 public:
  explicit GrpcHost(Loop& loop) : loop_(loop) {}
  GrpcHost(const GrpcHost&) = delete;
  GrpcHost& operator=(const GrpcHost&) = delete;

  // Serves all of `services` at each of `sockets` from now on. False: nobody can listen at one.
  bool serve(const std::vector<std::string>& sockets, const std::vector<grpc::Service*>& services);

  // From a thread of gRPC's: answers with what `work` promises on the loop, of which request and
  // response live until then. kj::Promise<grpc::Status> work().
  template <typename Work>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Work work) {
    auto* reactor = context->DefaultReactor();
    loop_.post([this, reactor, work] {
      GrpcReply reply(reactor);
      if (!tasks_) return;
      tasks_->add(work().then(
          [reply = kj::mv(reply)](grpc::Status status) mutable { reply.finish(status); }));
    });
    return reactor;
  }
  // The same where everything is known at once.
  static grpc::ServerUnaryReactor* answerNow(grpc::CallbackServerContext* context,
                                             const grpc::Status& status = grpc::Status::OK);

  // See LoopServer.
  bool refusing() const { return !tasks_; }
  void refuseAll() { tasks_.reset(); }
  void shutDown();

 private:
  void taskFailed(kj::Exception&&) override {}  // its GrpcReply said so when it was dropped

  Loop& loop_;
  // None: whatever is asked is refused.
  std::optional<kj::TaskSet> tasks_{std::in_place, static_cast<kj::TaskSet::ErrorHandler&>(*this)};
  std::unique_ptr<grpc::Server> server_;  // last
};

}  // namespace qgpu
