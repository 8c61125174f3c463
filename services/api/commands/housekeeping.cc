#include "services/api/commands/housekeeping.h"

#include <memory>

namespace qgpu {

kj::Promise<Status> snapshotOf(Housekeeping& keeping) {
  struct Waiting {
    kj::Own<kj::PromiseFulfiller<Status>> fulfiller;
  };
  auto paf = kj::newPromiseAndFulfiller<Status>();
  // std::function wants what can be copied; the loop is one thread, so the count needs no lock.
  auto waiting = std::make_shared<Waiting>(Waiting{kj::mv(paf.fulfiller)});
  keeping.snapshot([waiting](Status status) { waiting->fulfiller->fulfill(std::move(status)); });
  return kj::mv(paf.promise);
}

}  // namespace qgpu
