// The thread that keeps a seat, before an etcd that does not answer.
#include "services/etcd/seat_keeper.h"

#include <gtest/gtest.h>
#include <semaphore>

#include "runtime/check.h"

namespace qgpu {
namespace {

// A call to it has no end, as gRPC's where the wall clock stepped back; or each fails.
class SilentEtcd final : public Kv {
 public:
  explicit SilentEtcd(bool hangs) : hangs_(hangs) {}
  Result<KvTxnAnswer> txn(const KvTxn&) override { return silent(); }
  Result<std::vector<KvPair>> list(const std::string&, const std::string&, std::size_t) override {
    return silent();
  }
  Result<std::int64_t> grant(Nanos) override { return silent(); }
  Status keepAlive(std::int64_t) override { return silent(); }
  Status revoke(std::int64_t) override { return silent(); }

 private:
  Error silent() {
    if (hangs_) never_.acquire();
    return fail(ErrorCode::Unavailable, "etcd does not answer");
  }
  const bool hangs_;
  std::binary_semaphore never_{0};
};

constexpr Nanos kRoundMax = millis(50);

std::unique_ptr<SeatKeeper> keeperOf(bool hangs, std::function<void(Status)> health) {
  SeatKeeper::Calls calls;
  calls.seated = [](const KvCondition&) {};
  calls.lost = [](const std::string&) {};
  calls.other = [](const SeatHolder&) {};
  calls.health = std::move(health);
  return std::make_unique<SeatKeeper>(
      std::make_unique<SilentEtcd>(hangs),
      SeatOptions{.prefix = "/test/", .identity = "a", .address = "a:1", .lookEvery = millis(1)},
      [](const std::function<void()>& work) { work(); }, std::move(calls), kRoundMax);
}

TEST(SeatKeeper, C1_ACallToEtcdThatDoesNotEndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto keeper = keeperOf(true, [](const Status&) {});
        std::binary_semaphore forever(0);
        forever.acquire();
      },
      ::testing::ExitedWithCode(static_cast<int>(ExitCode::Environment)), "outlived its deadline");
}

TEST(SeatKeeper, AnEtcdThatIsSilentForLongIsToldAndEndsNothing) {
  std::binary_semaphore told(0);
  const auto keeper = keeperOf(false, [&](const Status& health) {
    EXPECT_FALSE(health.ok());
    told.release();
  });
  told.acquire();
}

}  // namespace
}  // namespace qgpu
