// Figures of a card on their way through a node and a scheduler: whatever number the schema has, it
// arrives.

#include "actors/base/codec.h"

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <gtest/gtest.h>

namespace qgpu::codec_test {

capnp::MallocMessageBuilder& writeBack(const CardFigures& figures,
                                       capnp::MallocMessageBuilder& message) {
  writeFigures(figures, message.initRoot<schema::CardStatus>());
  return message;
}

TEST(CardFigures, EachNumberOfTheSchemaArrivesAndWhatTheNodeKnowsItselfDoesNot) {
  capnp::MallocMessageBuilder told;
  auto status = told.initRoot<schema::CardStatus>();
  std::uint64_t next = 1'000;
  for (const auto& field : cardFigureFields()) {
    if (!field.getType().isBool()) capnp::DynamicStruct::Builder(status).set(field, next++);
  }
  status.setOnlineActive(true);
  status.setTasks(7);
  status.initInfo().setId("sim-0");

  capnp::MallocMessageBuilder message;
  const auto kept =
      writeBack(readFigures(status), message).getRoot<schema::CardStatus>().asReader();
  EXPECT_EQ(kept.getHolder(), 1'000u);
  EXPECT_TRUE(kept.getOnlineActive());
  EXPECT_EQ(kept.getOverruns(), status.getOverruns());
  EXPECT_EQ(kept.getReleaseP99Ns(), status.getReleaseP99Ns());
  EXPECT_EQ(kept.getSettleCount(), status.getSettleCount());
  EXPECT_GE(cardFigureFields().size(), 16u) << "from the holder to the count of settlings";
  EXPECT_EQ(kept.getTasks(), 0u);
  EXPECT_FALSE(kept.hasInfo());
}

TEST(CardFigures, LatenciesArriveWithAsManyCountsAsThereAreBounds) {
  capnp::MallocMessageBuilder told;
  auto status = told.initRoot<schema::CardStatus>();
  auto times = status.initPreemptTimes();
  times.setSumNs(30'000);
  auto counts = times.initCounts(1'000);  // of a node that means no good
  for (unsigned i = 0; i < counts.size(); ++i) counts.set(i, i == 2 ? 1 : 0);

  capnp::MallocMessageBuilder message;
  const auto kept =
      writeBack(readFigures(status), message).getRoot<schema::CardStatus>().asReader();
  EXPECT_EQ(kept.getPreemptTimes().getSumNs(), 30'000u);
  EXPECT_EQ(kept.getPreemptTimes().getCounts().size(), 3u) << "without the zeros behind";
  EXPECT_EQ(kept.getPreemptTimes().getCounts()[2], 1u);
  EXPECT_FALSE(kept.hasReleaseTimes()) << "nothing was released";
}

TEST(CardFigures, OfACardThatDidNotReportYetThereAreNone) {
  capnp::MallocMessageBuilder message;
  const auto kept = writeBack(CardFigures(), message).getRoot<schema::CardStatus>().asReader();
  EXPECT_EQ(kept.getHolder(), 0u);
  EXPECT_FALSE(kept.hasPreemptTimes());
}

}  // namespace qgpu::codec_test
