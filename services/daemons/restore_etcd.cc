#include "services/daemons/restore_etcd.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "services/base/host.h"
#include "services/base/wall_time.h"
#include "services/etcd/etcd_client.h"
#include "services/etcd/seat_keeper.h"
#include "store/etcd/etcd_store.h"

namespace qgpu {
namespace {

constexpr auto kSeatLimit = std::chrono::seconds(10);    // a seat of a killed one is free after 2
constexpr auto kAnswerLimit = std::chrono::seconds(30);  // of an etcd that says nothing, for rows
constexpr auto kAnswerPause = std::chrono::milliseconds(50);

// What the seat's thread tells, in the order in which it is told.
class Seating {
 public:
  void tell(std::function<void()> news) {
    const std::lock_guard lock(mutex_);
    news();
    told_.notify_one();
  }
  SeatKeeper::Calls calls() {
    SeatKeeper::Calls calls;
    calls.seated = [this](const KvCondition& guard) { guard_ = guard; };
    calls.lost = [](const std::string&) {};
    calls.other = [this](const SeatHolder& other) { other_ = other.address; };
    calls.health = [this](const Status& health) { health_ = health; };
    return calls;
  }
  Result<KvCondition> wait() {
    std::unique_lock lock(mutex_);
    if (told_.wait_for(lock, kSeatLimit, [this] { return guard_.has_value(); })) return *guard_;
    if (!health_) return health_.error();
    return fail(ErrorCode::Conflict, other_ + " acts: stop every scheduler first");
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<KvCondition> guard_;
  std::string other_ = "another scheduler";
  Status health_ = ok();
};

}  // namespace

Status restoreEtcd(const RowCopy& copy, const EtcdOptions& etcd, const std::string& hostname) {
  auto client = EtcdClient::open(etcd);
  if (!client) return client.error();
  auto forSeat = EtcdClient::open(etcd);
  if (!forSeat) return forSeat.error();
  SeatOptions wanted;
  wanted.prefix = etcd.prefix;
  wanted.identity = hostname + "-restore-" + std::to_string(randomWord());
  Seating seating;
  SeatKeeper seat(
      std::move(*forSeat), std::move(wanted),
      [&seating](std::function<void()> news) { seating.tell(std::move(news)); }, seating.calls());
  const Result<KvCondition> guard = seating.wait();
  if (!guard) return guard.error();
  auto store = EtcdStore::open(**client, {etcd.prefix, *guard, {}});
  if (!store) return store.error();
  const auto until = std::chrono::steady_clock::now() + kAnswerLimit;
  const AskAgain askAgain = [until] {
    std::this_thread::sleep_for(kAnswerPause);
    return std::chrono::steady_clock::now() < until;
  };
  const Status done = restoreInto(**store, copy, unixMsNow(), askAgain);
  if (done) return done;
  return fail(done.error().code, "etcd below " + etcd.prefix + ": " + done.error().message);
}

}  // namespace qgpu
