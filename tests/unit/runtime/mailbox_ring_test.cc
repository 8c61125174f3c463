#include "runtime/mailbox_ring.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "runtime/message.h"

namespace qgpu::mailbox_ring_test {
namespace {

constexpr std::size_t kWords = 4096;

void put(MailboxRing& ring, std::uint64_t value) {
  auto cell = ring.reserve();
  ASSERT_GE(cell.size(), MailboxRing::kCellMin);
  for (const capnp::word& word : cell) {
    std::uint64_t found = 1;
    std::memcpy(&found, &word, sizeof found);
    ASSERT_EQ(found, 0U) << "a cell is lent zeroed";
  }
  std::memcpy(static_cast<void*>(cell.begin()), &value, sizeof value);
  ring.commit(1, 2, Record::Kind::Message, 7);
}

// What a dispatcher does with a message to its own loop.
template <typename Handle>
std::uint64_t take(MailboxRing& ring, Handle&& handle) {
  if (ring.front() == nullptr) return 0;
  const capnp::word* body = ring.frontBody();
  ring.rewindBehindFront();
  handle();
  ring.publishToSelf();
  std::uint64_t value = 0;
  std::memcpy(&value, body, sizeof value);
  ring.pop();
  ring.rewindIfEmpty();
  return value;
}
std::uint64_t take(MailboxRing& ring) {
  return take(ring, [] {});
}

TEST(MailboxRing, OneInWhichLittleWaitsStaysInItsWarmBeginning) {
  MailboxRing ring(kWords);
  put(ring, 1);
  ring.publishToSelf();
  ASSERT_NE(ring.front(), nullptr);
  const capnp::word* first = ring.frontBody();
  for (std::uint64_t i = 1; i < 5'000; ++i) {  // answered before it is popped: never empty
    ASSERT_EQ(take(ring, [&] { put(ring, i + 1); }), i);
    ASSERT_NE(ring.front(), nullptr);
    ASSERT_LE(ring.frontBody() - first, static_cast<std::ptrdiff_t>(MailboxRing::kWarmWords + 16));
  }
  EXPECT_EQ(take(ring), 5'000U);
}

TEST(MailboxRing, C6_ABurstOfATurnGoesAroundTheMessageThatItHandles) {
  MailboxRing ring(kWords);
  std::uint64_t in = 1;
  std::uint64_t out = 0;
  put(ring, in);
  ring.publishToSelf();
  for (int turn = 0; turn < 5'000; ++turn) {
    const int burst = turn % 50 == 49 ? 350 : 1;  // nearly the whole ring, from any place
    ASSERT_EQ(take(ring,
                   [&] {
                     for (int i = 0; i < burst; ++i) put(ring, ++in);
                   }),
              ++out);
    while (burst > 1 && in - out > 1) ASSERT_EQ(take(ring), ++out);
  }
  ASSERT_EQ(take(ring), ++out);
  EXPECT_EQ(out, in);
  EXPECT_EQ(take(ring), 0U);
}

TEST(MailboxRing, D2_WhatATurnSentIsTakenBackAroundTheMessageThatItHandled) {
  MailboxRing ring(kWords);
  std::uint64_t next = 1;
  put(ring, next);
  ring.publishToSelf();
  for (int turn = 0; turn < 500; ++turn) {
    const std::uint64_t handled = next;
    const auto handle = [&] {
      put(ring, ++next);
      const std::uint64_t mark = ring.mark();
      for (std::uint64_t i = 1; i <= 60; ++i) put(ring, next + i);
      std::uint64_t back = 0;
      ring.takeBack(mark, [&](const Record&, const capnp::word* body) {
        std::uint64_t value = 0;
        std::memcpy(&value, body, sizeof value);
        ASSERT_EQ(value, next + ++back);
      });
      ASSERT_EQ(back, 60U);
    };
    std::uint64_t front = 0;
    ASSERT_NE(ring.front(), nullptr);
    std::memcpy(&front, ring.frontBody(), sizeof front);
    ASSERT_EQ(front, handled);
    take(ring, handle);
  }
  EXPECT_EQ(take(ring), next);
}

TEST(KnownCells, ReadWhateverMessageLiesInACellNow) {
  std::vector<capnp::word> cell(MailboxRing::kCellMin);
  std::vector<capnp::word> elsewhere(MailboxRing::kCellMin);
  KnownCells known(cell.data());
  for (std::uint64_t i = 0; i < 10; ++i) {
    for (std::vector<capnp::word>* at : {&cell, &elsewhere}) {
      std::memset(static_cast<void*>(at->data()), 0, at->size() * sizeof(capnp::word));
      CellBuilder message(kj::arrayPtr(at->data(), at->size()));
      auto envelope = message.initRoot<schema::Envelope>();
      if (i % 3 == 0) {
        envelope.initQuiet().setSinceNs(i);
      } else {
        envelope.initBusy().setTask(i);
      }
      const auto read = known.read(at->data());
      ASSERT_EQ(read.isQuiet(), i % 3 == 0);
      ASSERT_EQ(read.isQuiet() ? read.getQuiet().getSinceNs() : read.getBusy().getTask(), i);
    }
  }
}

}  // namespace
}  // namespace qgpu::mailbox_ring_test
