// What a card hears of memory that may leave it, from guests that write it into their slots.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::paging_news_test {
namespace {

using Which = schema::Envelope::Which;
using paging::Answer;
using paging::Phase;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

void put(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_seq_cst);
}

class PagingNewsTest : public AttachTest {
 protected:
  PagingNewsTest() {
    serverOptions.recovery = Nanos(0);
    pageableOfTasks = mebibytes(48);
  }
  Result<GuestClient> attachPaged(std::uint64_t id) {
    qgpu_hello hello = GuestClient::hello(tokenOf(id));
    hello.knows = QGPU_KNOWS_PAGING;
    return attachSelf(hello);
  }
  // Of a task whose card watches it and whose one process is this one.
  Result<GuestClient> watched(std::uint64_t id) {
    bind(id, schema::TaskClass::OFFLINE);
    watch(id);
    Result<GuestClient> client = attachPaged(id);
    if (client) answer(*client, 0, Answer::In);  // it takes part
    EXPECT_TRUE(until([&] { return heard(id) != nullptr && heard(id)->processes.size() == 1; }));
    return client;
  }
  const PagedHeard* heard(std::uint64_t id) const {
    const Heard* last = card.last(Which::PAGED, id);
    return last == nullptr ? nullptr : &last->paged;
  }
  static void answer(GuestClient& client, std::uint32_t epoch, Answer said) {
    put(client.slot().paging_answer, std::uint64_t{epoch} << 32 | static_cast<std::uint64_t>(said));
    client.ring();
  }
};

TEST_F(PagingNewsTest, AWordStandsInThePageAndItsAnswerReachesTheCard) {
  start();
  auto client = watched(7);
  ASSERT_TRUE(client.ok());
  tellWord(7, {5, Phase::Out, 250});
  ASSERT_TRUE(until([&] {
    return paging::unpack(client->gatePage().paging) == paging::Word{5, Phase::Out, 250};
  }));
  put(client->slot().pageable_held, 40 * kMiB);
  put(client->slot().pageable_out, 10 * kMiB);
  put(client->slot().pageable_more, 4 * kMiB);
  answer(*client, 5, Answer::Left);
  ASSERT_TRUE(until([&] { return heard(7)->processes[0].epoch == 5; }));
  EXPECT_EQ(heard(7)->processes[0].answer, static_cast<std::uint32_t>(Answer::Left));
  EXPECT_EQ(heard(7)->processes[0].out, 10 * kMiB);
  EXPECT_EQ(heard(7)->held, 40 * kMiB);
  EXPECT_EQ(heard(7)->out, 10 * kMiB);
  EXPECT_EQ(heard(7)->more, 4 * kMiB);
}

TEST_F(PagingNewsTest, ATaskThatNobodyWatchesIsNotToldOf) {
  start();
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachPaged(7);
  ASSERT_TRUE(client.ok());
  put(client->slot().pageable_held, kMiB);
  client->ring();
  turns(20);
  EXPECT_EQ(heard(7), nullptr);
}

TEST_F(PagingNewsTest, M3_TheBytesAreReadAfterTheLimitStandsInThePage) {
  start();
  auto client = watched(7);
  ASSERT_TRUE(client.ok());
  put(client->slot().pageable_held, 30 * kMiB);
  tellLimit(7, mebibytes(30), 9);
  ASSERT_TRUE(until([&] { return heard(7)->limitOrder == 9; }));
  EXPECT_EQ(client->gatePage().pageable_limit, 30 * kMiB);
  EXPECT_EQ(heard(7)->held, 30 * kMiB) << "though nothing rang";
}

TEST_F(PagingNewsTest, WhoWaitsForTheEpochIsWoken) {
  start();
  auto client = watched(7);
  ASSERT_TRUE(client.ok());
  const std::uint64_t before = client->gatePage().paging;
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    client->awaitPaging(static_cast<std::uint32_t>(before >> 32), -1);
    woken = true;
  });
  tellWord(7, {3, Phase::Drain, 0});
  EXPECT_TRUE(until([&] { return woken.load(); }));
  waiter.join();
}

TEST_F(PagingNewsTest, C7_NonsenseIsBoundedByTheQuota) {
  start();
  auto client = watched(7);
  ASSERT_TRUE(client.ok());
  put(client->slot().pageable_held, ~std::uint64_t{0});
  put(client->slot().pageable_out, ~std::uint64_t{0});
  put(client->slot().pageable_more, ~std::uint64_t{0});
  put(client->slot().bytes, ~std::uint64_t{0} >> 1);
  put(client->slot().need_bytes, ~std::uint64_t{0});
  put(client->slot().need_since_ns, ~std::uint64_t{0});
  answer(*client, ~0u, Answer::Left);
  ASSERT_TRUE(until([&] { return heard(7)->processes[0].epoch == ~0u; }));
  EXPECT_EQ(heard(7)->held, 48 * kMiB);
  EXPECT_EQ(heard(7)->out, 48 * kMiB);
  EXPECT_EQ(heard(7)->more, 0u);
  EXPECT_EQ(heard(7)->firm, 16 * kMiB);
  EXPECT_EQ(heard(7)->processes[0].need, 0u) << "its quota has no room";
}

TEST_F(PagingNewsTest, M6_ANeedIsToldWithWhatAllOthersOfTheCardHold) {
  start();
  auto training = watched(7);
  ASSERT_TRUE(training.ok());
  pageableOfTasks = Bytes(0);
  auto online = watched(8);
  ASSERT_TRUE(online.ok());
  put(training->slot().bytes, 5 * kMiB);  // no ring
  put(online->slot().bytes, 20 * kMiB);
  put(online->slot().need_since_ns, static_cast<std::uint64_t>(monotonicNow().value));
  put(online->slot().need_bytes, 8 * kMiB);
  online->ring();
  ASSERT_TRUE(until([&] { return heard(8)->processes[0].need == 8 * kMiB; }));
  ASSERT_TRUE(until([&] { return heard(7)->firm == 5 * kMiB; }));
  EXPECT_EQ(heard(8)->firm, 20 * kMiB);
  EXPECT_NE(heard(8)->processes[0].needSince, 0u);
}

TEST_F(PagingNewsTest, AProcessTakesPartFromItsFirstAnswerOn) {
  start();
  bind(7, schema::TaskClass::OFFLINE);
  watch(7);
  auto client = attachPaged(7);
  ASSERT_TRUE(client.ok());
  put(client->slot().bytes, kMiB);
  client->ring();
  ASSERT_TRUE(until([&] { return heard(7) != nullptr && heard(7)->firm == kMiB; }));
  EXPECT_TRUE(heard(7)->processes.empty());
  answer(*client, 0, Answer::In);
  EXPECT_TRUE(until([&] { return heard(7)->processes.size() == 1; }));
}

TEST_F(PagingNewsTest, C7_WhatProcessesNeedIsBoundedByWhatTheirTaskMayHave) {
  start();
  pageableOfTasks = Bytes(0);
  auto first = watched(8);
  ASSERT_TRUE(first.ok());
  Child second([&] {
    auto begun = GuestClient::begin(socket(), GuestClient::hello(tokenOf(8)), -1);
    if (!begun || !begun->finish(20'000)) return 1;
    put(begun->slot().need_bytes, 40 * kMiB);
    begun->ring();
    ::pause();
    return 0;
  });
  ASSERT_TRUE(until([&] { return heard(8)->processes.size() == 2; }));
  put(first->slot().need_bytes, 40 * kMiB);
  first->ring();
  EXPECT_TRUE(until(
      [&] { return heard(8)->processes[0].need + heard(8)->processes[1].need == 64 * kMiB; }));
  second.kill();
}

TEST_F(PagingNewsTest, WhatWasFirmUnderAManagerOfBeforeStaysFirm) {
  start();
  pageableOfTasks = Bytes(0);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachPaged(7);
  ASSERT_TRUE(client.ok());
  put(client->slot().bytes, 40 * kMiB);
  start();
  pageableOfTasks = mebibytes(48);
  bind(7, schema::TaskClass::OFFLINE);
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->gatePage().pageable_bytes, 24 * kMiB);
}

TEST_F(PagingNewsTest, M7_ADeadProcessIsGoneAndItsBytesWithIt) {
  start();
  bind(7, schema::TaskClass::OFFLINE);
  watch(7);
  Child child([&] {
    qgpu_hello hello = GuestClient::hello(tokenOf(7));
    hello.knows = QGPU_KNOWS_PAGING;
    auto begun = GuestClient::begin(socket(), hello, -1);
    if (!begun || !begun->finish(20'000)) return 1;
    put(begun->slot().pageable_held, 7 * kMiB);
    begun->ring();
    ::pause();
    return 0;
  });
  ASSERT_TRUE(until([&] { return heard(7) != nullptr && heard(7)->held == 7 * kMiB; }));
  child.kill();
  ASSERT_TRUE(until([&] { return heard(7)->processes.empty() && heard(7)->held == 0; }));
}

TEST_F(PagingNewsTest, M7_TheNextManagerReadsWhoHasWhatAndWhichEpochItSaw) {
  start();
  auto client = watched(7);
  ASSERT_TRUE(client.ok());
  tellWord(7, {5, Phase::Out, 1000});
  put(client->slot().pageable_held, 40 * kMiB);
  put(client->slot().pageable_out, 40 * kMiB);
  answer(*client, 5, Answer::Left);
  ASSERT_TRUE(until([&] { return heard(7)->out == 40 * kMiB; }));
  start();
  card.heard.clear();
  bind(7, schema::TaskClass::OFFLINE);
  watch(7);
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_TRUE(until([&] { return heard(7) != nullptr && heard(7)->processes.size() == 1; }));
  EXPECT_EQ(heard(7)->processes[0].epoch, 5u);
  EXPECT_EQ(heard(7)->out, 40 * kMiB);
  EXPECT_EQ(paging::unpack(again->gatePage().paging), (paging::Word{6, Phase::Out, 0}))
      << "from the beginning: it stays as it is";
}

TEST_F(PagingNewsTest, AnOlderLibraryIsRefusedAndToldWhy) {
  start();
  bind(7, schema::TaskClass::OFFLINE);
  const auto client = attachSelf(7);
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().message.find("libqgpu.so"), std::string::npos);
  pageableOfTasks = Bytes(0);
  bind(8, schema::TaskClass::OFFLINE);
  EXPECT_TRUE(attachSelf(8).ok());
}

}  // namespace
}  // namespace qgpu::paging_news_test
