#include "bench/cluster/cluster_client.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <unistd.h>

#include "runtime/loop.h"
#include "services/base/net/dial.h"
#include "tests/testing/eventually.h"

namespace qgpu::bench {

double Submitted::perSecond() const {
  return static_cast<double>(tasks.size()) * 1e9 / static_cast<double>(elapsed.value);
}

double Submitted::millisAt(std::size_t permille) {
  if (latencies.empty()) return 0;
  std::sort(latencies.begin(), latencies.end());
  const std::size_t at = std::min(latencies.size() - 1, latencies.size() * permille / 1000);
  return static_cast<double>(latencies[at].value) / 1e6;
}

void writeBenchTask(schema::ClusterSpec::Builder spec, kj::StringPtr requestId) {
  spec.setNodeScore(schema::Score::SPREAD);
  auto task = spec.initTask();
  task.setName("bench");
  task.setClass(schema::TaskClass::ORDINARY);
  task.setMemBytes(1ULL << 30);
  task.setSharePermille(10);
  task.setRequestId(requestId);
}

// What one run of calls has left to do and has seen.
struct ClusterClient::Work {
  std::size_t left = 0;
  const std::vector<std::uint64_t>* ids = nullptr;
  Submitted seen;
};

ClusterClient::ClusterClient(const std::string& address, std::size_t connections)
    : io_(kj::setupAsyncIo()) {
  for (std::size_t i = 0; i < connections; ++i) {
    auto stream = dial(io_.provider->getNetwork(), address, nullptr).wait(io_.waitScope);
    lines_.push_back(std::make_unique<Line>(kj::mv(stream)));
  }
}

template <typename Next>
void ClusterClient::drive(Work& work, std::size_t window, Next next) {
  const Nanos from = monotonicNow();
  auto calls = kj::heapArrayBuilder<kj::Promise<void>>(window);
  for (std::size_t i = 0; i < window; ++i) calls.add(next(work, *lines_[i % lines_.size()]));
  kj::joinPromises(calls.finish()).wait(io_.waitScope);
  work.seen.elapsed = monotonicNow() - from;
}

Submitted ClusterClient::submit(std::size_t count, std::size_t window) {
  Work work;
  work.left = count;
  work.seen.tasks.reserve(count);
  work.seen.latencies.reserve(count);
  drive(work, window, [this](Work& w, Line& line) { return submitNext(w, line); });
  return std::move(work.seen);
}

kj::Promise<void> ClusterClient::submitNext(Work& work, Line& line) {
  if (work.left == 0) return kj::READY_NOW;
  --work.left;
  auto request = line.scheduler.submitRequest(capnp::MessageSize{64, 0});
  writeBenchTask(request.initSpec(), kj::str("bench-", ::getpid(), "-", ++lastRequest_));
  const Nanos from = monotonicNow();
  using Answer = capnp::Response<schema::Scheduler::SubmitResults>;
  return request.send()
      .then(
          [&work, from](Answer answer) {
            const auto assigned = answer.getAssigned();
            if (assigned.getWaiting()) {
              ++work.seen.waiting;
              return;
            }
            work.seen.tasks.push_back(assigned.getTask());
            work.seen.latencies.push_back(monotonicNow() - from);
          },
          [&work](kj::Exception&& exception) {
            if (work.seen.failed++ == 0) work.seen.why = exception.getDescription().cStr();
          })
      .then([this, &work, &line]() { return submitNext(work, line); });
}

void ClusterClient::erase(const std::vector<std::uint64_t>& tasks, std::size_t window) {
  Work work;
  work.left = tasks.size();
  work.ids = &tasks;
  drive(work, window, [this](Work& w, Line& line) { return eraseNext(w, line); });
}

kj::Promise<void> ClusterClient::eraseNext(Work& work, Line& line) {
  if (work.left == 0) return kj::READY_NOW;
  auto request = line.scheduler.deleteRequest();
  request.setTask((*work.ids)[--work.left]);
  return request.send().then([](auto) {}, [](kj::Exception&&) {}).then([this, &work, &line]() {
    return eraseNext(work, line);
  });
}

std::size_t ClusterClient::awaitAlive(std::size_t nodes, std::chrono::seconds patience) {
  std::size_t alive = 0;
  const auto all = [&] {
    try {
      alive = lines_[0]->scheduler.infoRequest().send().wait(io_.waitScope).getInfo().getAlive();
    } catch (const kj::Exception&) {
      alive = 0;
    }
    return alive == nodes;
  };
  testing::eventually(all, patience);
  return alive;
}

std::size_t ClusterClient::tasks() {
  return lines_[0]->scheduler.infoRequest().send().wait(io_.waitScope).getInfo().getTasks();
}

// --- the limit ---

namespace {

class Echo final : public schema::Scheduler::Server {
 public:
  kj::Promise<void> submit(SubmitContext context) override {
    auto assigned = context.getResults(capnp::MessageSize{48, 0}).initAssigned();
    assigned.setTask(++last_);
    assigned.setEpoch(1);
    assigned.setNode("bench-1");
    assigned.initCards(1).set(0, "sim-0");
    assigned.setToken("0123456789abcdef0123456789abcdef");
    assigned.setAttachSocket("/run/qgpu/attach.sock");
    return kj::READY_NOW;
  }

 private:
  std::uint64_t last_ = 0;
};

}  // namespace

struct EchoServer::Thread {
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> stop;
  std::thread thread;
};

EchoServer::EchoServer(const std::string& path) : thread_(std::make_unique<Thread>()) {
  kj::MutexGuarded<bool> serves(false);
  thread_->thread = std::thread([this, &path, &serves] {
    auto io = kj::setupAsyncIo();
    capnp::TwoPartyServer server(kj::heap<Echo>());
    const std::string address = "unix:" + path;
    auto listener = io.provider->getNetwork()
                        .parseAddress(kj::StringPtr(address.c_str(), address.size()))
                        .wait(io.waitScope)
                        ->listen();
    auto over = kj::newPromiseAndCrossThreadFulfiller<void>();
    thread_->stop = kj::mv(over.fulfiller);
    auto serving = server.listen(*listener);
    *serves.lockExclusive() = true;
    serving.exclusiveJoin(kj::mv(over.promise)).wait(io.waitScope);
  });
  serves.when([](bool now) { return now; }, [](bool&) {});
}

EchoServer::~EchoServer() {
  thread_->stop->fulfill();
  thread_->thread.join();
}

}  // namespace qgpu::bench
