#include "services/kubernetes/pods/cards_annotation.h"

#include <gtest/gtest.h>

namespace qgpu::cards_annotation_test {
namespace {

CardsAnnotation sample() {
  CardsAnnotation out;
  out.version = "0.1.0";
  out.mixed = true;
  out.maxTasksPerCard = 7;
  out.attachSocket = "/run/qgpu/attach.sock";
  AnnotatedCard card;
  card.id = "GPU-1";
  card.model = "Tesla \"T4\"";
  card.backend = "nvidia";
  card.mem = Bytes(15'843'721'216);
  card.suspend = schema::Suspend::RM;
  card.nominalGib = 16;
  card.policy = schema::Policy::BURST_SHARE;
  out.cards.push_back(card);
  card.id = "GPU-2";
  card.index = 1;
  card.mem = gibibytes(16);
  card.suspend = schema::Suspend::GATE;
  card.suspendWhy = "the kernel went on while it was off";
  card.memoryCounted = "at CUDA's calls";
  card.driver = "580.142";
  card.reportUnixMs = 1'767'323'045'000;
  card.policy = schema::Policy::BEST_EFFORT;
  card.health = schema::CardState::QUARANTINED;
  out.cards.push_back(card);
  return out;
}

std::string with(const std::string& from, const std::string& to) {
  std::string json = writeCardsAnnotation(sample());
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

TEST(CardsAnnotation, WhatIsWrittenIsRead) {
  const auto read = readCardsAnnotation(writeCardsAnnotation(sample()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(writeCardsAnnotation(*read), writeCardsAnnotation(sample()));
  EXPECT_EQ(read->cards[0].mem, Bytes(15'843'721'216));
  EXPECT_EQ(read->cards[1].health, schema::CardState::QUARANTINED);
  EXPECT_EQ(read->cards[0].suspendWhy, "");
  EXPECT_EQ(read->cards[1].suspendWhy, "the kernel went on while it was off");
  EXPECT_EQ(read->cards[1].memoryCounted, "at CUDA's calls");
  EXPECT_EQ(read->cards[0].driver, "");
  EXPECT_EQ(read->cards[1].driver, "580.142");
  EXPECT_EQ(read->cards[0].reportUnixMs, 0u);
  EXPECT_EQ(read->cards[1].reportUnixMs, 1'767'323'045'000u);
  EXPECT_TRUE(read->mixed);
}

TEST(CardsAnnotation, IsWrittenAsItIsDocumented) {
  CardsAnnotation one = sample();
  one.cards.pop_back();
  one.cards[0].model = "Tesla T4";
  EXPECT_EQ(writeCardsAnnotation(one),
            R"({"format":1,"version":"0.1.0","mixed":true,"max_tasks_per_card":7,)"
            R"("attach_socket":"/run/qgpu/attach.sock","cards":[{"uuid":"GPU-1","index":0,)"
            R"("model":"Tesla T4","backend":"nvidia","mem_bytes":15843721216,"nominal_gib":16,)"
            R"("policy":"burst-share","suspend":"rm","health":"ready"}]})");
}

TEST(CardsAnnotation, KeysAndWordsOfLaterVersionsAreNoHarm) {
  const auto more = readCardsAnnotation(with(R"("mixed":true)", R"("later":[{}],"mixed":true)"));
  ASSERT_TRUE(more.ok()) << more.error().message;
  const auto health = readCardsAnnotation(with(R"("health":"ready")", R"("health":"wobbly")"));
  EXPECT_EQ(health->cards[0].health, schema::CardState::QUARANTINED) << "nothing new goes there";
  const auto policy = readCardsAnnotation(with("burst-share", "fairest-share"));
  EXPECT_EQ(policy->cards[0].policy, schema::Policy::BEST_EFFORT);
  const auto format = readCardsAnnotation(with(R"("format":1)", R"("format":2)"));
  ASSERT_FALSE(format.ok());
  EXPECT_EQ(format.error().code, ErrorCode::Unsupported);
}

TEST(CardsAnnotation, C7_WhatIsNoneIsRefused) {
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"format":1})"), std::string(R"({"format":1,"cards":7})"),
        std::string(R"({"format":1,"cards":[7]})"), with("GPU-1", ""), with("GPU-2", "GPU-1"),
        with("15843721216", "0"), with("15843721216", "-5"),
        with("15843721216", "18446744073709551615")}) {
    EXPECT_FALSE(readCardsAnnotation(json).ok()) << json;
  }
}

}  // namespace
}  // namespace qgpu::cards_annotation_test
