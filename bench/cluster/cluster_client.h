#pragma once
// A client of a scheduler that keeps many calls under way at once (pipelining), over several
// connections, and says how long each took. Also the limit to compare with: the same calls to a
// server that answers at once and does nothing.

#include <capnp/rpc-twoparty.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/units.h"
#include "schema/scheduler.capnp.h"

namespace qgpu::bench {

struct Submitted {
  std::vector<std::uint64_t> tasks;  // bound: acknowledged with node, cards and token
  std::vector<Nanos> latencies;      // from the call to its answer, of those
  std::size_t waiting = 0;
  std::size_t failed = 0;
  std::string why;  // of the first that failed
  Nanos elapsed{0};

  double perSecond() const;
  double millisAt(std::size_t permille);  // of the latencies
};

// What every bench of a cluster submits: 1 GiB and 1 percent, spread over the nodes.
void writeBenchTask(schema::ClusterSpec::Builder spec, kj::StringPtr requestId);

class ClusterClient {
 public:
  // Connects; throws kj::Exception where nobody listens.
  ClusterClient(const std::string& address, std::size_t connections);

  // Submits `count` of them, `window` at a time.
  Submitted submit(std::size_t count, std::size_t window);
  // Asks for the end of these, `window` at a time; returns when all were asked.
  void erase(const std::vector<std::uint64_t>& tasks, std::size_t window);
  // How many nodes are alive: as soon as it is `nodes`, else after `patience`. One of several
  // schedulers takes a while until it acts, and has none before.
  std::size_t awaitAlive(std::size_t nodes, std::chrono::seconds patience);
  std::size_t tasks();  // of the cluster; throws kj::Exception where the scheduler does not act

 private:
  struct Line {
    explicit Line(kj::Own<kj::AsyncIoStream> s) : stream(kj::mv(s)), client(*stream) {}
    kj::Own<kj::AsyncIoStream> stream;
    capnp::TwoPartyClient client;
    schema::Scheduler::Client scheduler = client.bootstrap().castAs<schema::Scheduler>();
  };
  struct Work;

  kj::Promise<void> submitNext(Work& work, Line& line);
  kj::Promise<void> eraseNext(Work& work, Line& line);
  template <typename Next>
  void drive(Work& work, std::size_t window, Next next);

  kj::AsyncIoContext io_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::uint64_t lastRequest_ = 0;
};

// Serves unix:PATH on a thread of its own; every submit is answered at once.
class EchoServer {
 public:
  explicit EchoServer(const std::string& path);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace qgpu::bench
