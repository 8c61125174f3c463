#pragma once
// A gRPC server that is not wanted any more ends in the background: gRPC waits for the last word of
// the loop to each call, so a thread waits for gRPC, and the loop runs until RetiredServers is
// empty.

#include <cstdint>
#include <map>
#include <memory>
#include <thread>

#include "runtime/loop.h"

namespace qgpu {

// A server whose calls are answered on a loop.
class LoopServer {
 public:
  virtual ~LoopServer() = default;

 private:
  friend class RetiredServers;
  // On the loop: whatever is not answered yet is refused now.
  virtual void refuseAll() = 0;
  // On another thread: returns when gRPC has let go of every call.
  virtual void shutDown() = 0;
};

class RetiredServers {
 public:
  explicit RetiredServers(Loop& loop) : loop_(loop) {}
  RetiredServers(const RetiredServers&) = delete;
  RetiredServers& operator=(const RetiredServers&) = delete;
  ~RetiredServers();  // empty by then

  void add(std::unique_ptr<LoopServer> server);
  std::size_t size() const { return ending_.size(); }

 private:
  struct Ending {
    std::unique_ptr<LoopServer> server;
    std::thread thread;
  };
  Loop& loop_;
  std::map<std::uint64_t, Ending> ending_;
  std::uint64_t last_ = 0;
};

}  // namespace qgpu
