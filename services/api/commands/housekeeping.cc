#include "services/api/commands/housekeeping.h"

#include <memory>

namespace qgpu {
namespace {

// What `ask` is told once, as a promise.
template <typename T, typename Ask>
kj::Promise<T> promiseOf(Ask&& ask) {
  struct Waiting {
    kj::Own<kj::PromiseFulfiller<T>> fulfiller;
  };
  auto paf = kj::newPromiseAndFulfiller<T>();
  // std::function wants what can be copied; the loop is one thread, so the count needs no lock.
  auto waiting = std::make_shared<Waiting>(Waiting{kj::mv(paf.fulfiller)});
  ask([waiting](T told) { waiting->fulfiller->fulfill(std::move(told)); });
  return kj::mv(paf.promise);
}

}  // namespace

kj::Promise<Status> snapshotOf(Housekeeping& keeping) {
  return promiseOf<Status>([&](auto done) { keeping.snapshot(std::move(done)); });
}

kj::Promise<Result<std::string>> saveOf(Housekeeping& keeping) {
  return promiseOf<Result<std::string>>([&](auto done) { keeping.save(std::move(done)); });
}

}  // namespace qgpu
