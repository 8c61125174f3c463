// An example client of qgpu-scheduler: it submits a task, waits until a node has it, says where,
// and deletes it again. Every call is in schema/scheduler.capnp; a refusal is an exception
// "code: message", which fromException() takes apart.
//
//   qgpu-example unix:/run/qgpu/scheduler.rpc
//   qgpu-example scheduler.example.org:12346 client.pem client.key ca.pem

#include <capnp/rpc-twoparty.h>
#include <iostream>
#include <unistd.h>

#include "schema/scheduler.capnp.h"
#include "services/api/rpc/rpc_session.h"
#include "services/base/net/dial.h"
#include "services/base/net/tls.h"

using namespace qgpu;
namespace {

// Rings at every event of the cluster. A watcher must be quick: it is dropped where it lags.
class Bell final : public schema::ClusterWatcher::Server {
 public:
  kj::Promise<void> event(EventContext) override {
    ring_.fulfiller->fulfill();
    return kj::READY_NOW;
  }
  kj::Promise<void> next() {
    ring_ = kj::newPromiseAndFulfiller<void>();
    return kj::mv(ring_.promise);
  }

 private:
  kj::PromiseFulfillerPair<void> ring_ = kj::newPromiseAndFulfiller<void>();
};

void run(int argc, char** argv) {
  auto io = kj::setupAsyncIo();
  kj::Own<kj::TlsContext> context;
  kj::Maybe<kj::TlsContext&> tls;
  if (argc == 5) {
    auto opened = openTls(TlsFiles{argv[2], argv[3], argv[4]});
    if (!opened) kj::throwFatalException(toException(opened.error()));
    context = kj::mv(*opened);
    tls = *context;
  }
  auto stream = dial(io.provider->getNetwork(), argv[1], tls).wait(io.waitScope);
  capnp::TwoPartyClient client(*stream);
  auto scheduler = client.bootstrap().castAs<schema::Scheduler>();

  // Watch first, so that no event falls between an answer and the watch.
  auto watcher = kj::heap<Bell>();
  Bell& bell = *watcher;
  auto watch = scheduler.watchRequest();
  watch.setWatcher(kj::mv(watcher));
  auto subscription = watch.send().wait(io.waitScope).getSubscription();

  auto submit = scheduler.submitRequest();
  auto task = submit.initSpec().initTask();
  task.setName("example");
  task.setClass(schema::TaskClass::ORDINARY);
  task.setMemBytes(1ULL << 30);                        // of each card, whole GiB
  task.setSharePermille(100);                          // a tenth of one card
  task.setRequestId(kj::str("example-", ::getpid()));  // sent again: the same answer
  const std::uint64_t id = submit.send().wait(io.waitScope).getAssigned().getTask();
  std::cout << "task " << id << "\n";

  const auto get = [&]() {
    auto request = scheduler.getRequest();
    request.setTask(id);
    return request.send().wait(io.waitScope);
  };
  auto rung = bell.next();
  auto got = get();
  while (got.getTask().getState() != schema::PlaceState::BOUND) {
    rung.wait(io.waitScope);
    rung = bell.next();
    got = get();
  }
  // A launcher on that node starts the program with `environment`, and with library and socket as
  // they lie there.
  std::cout << "bound on node " << got.getAssigned().getNode().cStr() << "\n";
  for (const auto card : got.getAssigned().getCards()) std::cout << "card " << card.cStr() << "\n";
  auto gone = scheduler.deleteRequest();
  gone.setTask(id);
  gone.send().wait(io.waitScope);
  std::cout << "deleted" << std::endl;
}

}  // namespace
int main(int argc, char** argv) {
  if (argc != 2 && argc != 5) return std::cerr << "ADDRESS [CERT KEY CA]\n", 2;
  const auto failed = kj::runCatchingExceptions([&]() { run(argc, argv); });
  KJ_IF_MAYBE (exception, failed) {
    const Error error = fromException(*exception);
    std::cerr << argv[0] << ": " << errorName(error.code) << ": " << error.message << "\n";
    return 1;
  }
  return 0;
}
