// Texts that are values, texts that are not, and what the refusal says.

#include "runtime/config.h"

#include <gtest/gtest.h>
#include <string>

#include "runtime/enum_names.h"

namespace qgpu::config_test {
namespace {

template <typename T>
void expectRefused(const Result<T>& result, const std::string& part) {
  ASSERT_FALSE(result.ok()) << "expected a refusal with " << part;
  EXPECT_EQ(result.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(ParseDuration, TakesWholeAndDecimalNumbersOfEachUnit) {
  EXPECT_EQ(*parseDuration("100ms"), millis(100));
  EXPECT_EQ(*parseDuration("2us"), micros(2));
  EXPECT_EQ(*parseDuration("1.5s"), millis(1500));
  EXPECT_EQ(*parseDuration("0.25ms"), micros(250));
  EXPECT_EQ(*parseDuration("7ns"), Nanos(7));
  EXPECT_EQ(*parseDuration("2m"), seconds(120));
  EXPECT_EQ(*parseDuration("24h"), kDurationMax);
  EXPECT_EQ(*parseDuration("0s"), Nanos(0));
}

TEST(ParseDuration, RefusesTheRestAndSaysWhatItTakes) {
  for (const char* text : {"", "ms", "5", "-1ms", "+1ms", "1.ms", ".5s", "1 ms", "1msx", "1e3s",
                           "25h", "0.5ns", "99999999999999999999s", "1.0000000001s", "0x5ms"}) {
    expectRefused(parseDuration(text), "'" + std::string(text) + "'");
    expectRefused(parseDuration(text), "as in 100ms");
  }
}

TEST(ParseDuration, ReadsWhatDurationTextWrites) {
  const std::pair<Nanos, const char*> texts[] = {
      {millis(100), "100ms"}, {micros(1500), "1500us"}, {seconds(60), "1m"}, {seconds(90), "90s"},
      {kDurationMax, "24h"},  {Nanos(7), "7ns"},        {Nanos(0), "0ns"}};
  for (const auto& [duration, text] : texts) {
    EXPECT_EQ(durationText(duration), text);
    EXPECT_EQ(*parseDuration(text), duration);
  }
  EXPECT_EQ(rangeText({millis(2), millis(30)}), "2ms..30ms");
}

TEST(ParseDuration, ShowsAnOddTextHarmlessly) {
  expectRefused(parseDuration("a\nb"), "'a?b'");
  const auto huge = parseDuration(std::string(1'000'000, 'x'));
  ASSERT_FALSE(huge.ok());
  EXPECT_LT(huge.error().message.size(), 300u);
}

TEST(ParseRange, TakesALowAndAHighEnd) {
  EXPECT_EQ(*parseRange("2ms..30ms"), (DurationRange{millis(2), millis(30)}));
  EXPECT_EQ(*parseRange("1.5ms..1.5ms"), (DurationRange{micros(1500), micros(1500)}));
}

TEST(ParseRange, RefusesAnythingElse) {
  for (const char* text :
       {"", "2ms", "..", "2ms..", "..2ms", "30ms..2ms", "0ms..2ms", "2ms...3ms", "2ms-30ms"}) {
    expectRefused(parseRange(text), "2ms..30ms");
  }
}

TEST(ParseMemory, TakesSizesAsPeopleWriteThem) {
  const std::pair<const char*, Bytes> sizes[] = {
      {"2", gibibytes(2)},         {"1.5", mebibytes(1536)},
      {"1.5GiB", mebibytes(1536)}, {"512MiB", mebibytes(512)},
      {"2G", gibibytes(2)},        {"2g", gibibytes(2)},
      {"700M", mebibytes(700)},    {"700mib", mebibytes(700)},
      {"2TiB", gibibytes(2048)},   {"0", Bytes(0)},
      {"1T", gibibytes(1024)},     {"1048576", kBytesMax}};
  for (const auto& [text, size] : sizes) {
    const Result<Bytes> read = parseMemory(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.error().message;
    EXPECT_EQ(*read, size) << text;
  }
}

TEST(ParseMemory, RoundsUpToWholeMiB) {
  EXPECT_EQ(*parseMemory("1.3GiB"), mebibytes(1332));
  EXPECT_EQ(*parseMemory("0.1M"), mebibytes(1));
  EXPECT_EQ(*parseMemory("0.5"), mebibytes(512));
  EXPECT_EQ(*parseMemory("0.333333333"), mebibytes(342));
}

TEST(ParseMemory, RefusesAnythingElseAndSaysWhatToWrite) {
  const std::string nines(400, '9');
  for (const char* text : {"", "GiB", "1.5Gi", "1GB", "1KiB", "-1", "1.", ".5", "1 GiB", "1e3",
                           "1048577", "1048576.5", "9999999999TiB", nines.c_str()}) {
    expectRefused(parseMemory(text), "is not a size: write 1.5GiB, 512MiB or 2");
  }
}

TEST(ParseInteger, KeepsToItsBounds) {
  EXPECT_EQ(*parseInteger("16", 1, 16, "count"), 16);
  for (const char* text : {"", "0", "17", "1x", " 1", "99999999999999999999"}) {
    expectRefused(parseInteger(text, 1, 16, "count"), "count '");
    expectRefused(parseInteger(text, 1, 16, "count"), "from 1 to 16");
  }
}

TEST(ParsePolicy, TakesShortAndFullNames) {
  EXPECT_EQ(*parsePolicy("best-effort"), schema::Policy::BEST_EFFORT);
  EXPECT_EQ(*parsePolicy("fixed-share"), schema::Policy::FIXED_SHARE);
  EXPECT_EQ(*parsePolicy("burst-share"), schema::Policy::BURST_SHARE);
  EXPECT_EQ(*parsePolicy("be"), schema::Policy::BEST_EFFORT);
  EXPECT_EQ(*parsePolicy("fs"), schema::Policy::FIXED_SHARE);
  EXPECT_EQ(*parsePolicy("bs"), schema::Policy::BURST_SHARE);
  expectRefused(parsePolicy("BE"), "'BE'");
  expectRefused(parsePolicy(""), "burst-share (bs)");
  EXPECT_EQ(policyForms(), "best-effort (be), fixed-share (fs) or burst-share (bs)");
}

// The schema is the one home of names.
TEST(EnumNames, AreThoseOfTheSchemaInKebabCase) {
  EXPECT_EQ(enumName(schema::Policy::BURST_SHARE), "burst-share");
  EXPECT_EQ(enumName(schema::TaskState::LOST), "lost");
  EXPECT_EQ(enumName(static_cast<schema::Policy>(99)), "unknown");
  EXPECT_EQ(enumFromName<schema::TaskClass>("offline"), schema::TaskClass::OFFLINE);
  EXPECT_EQ(enumFromName<schema::TaskClass>("Offline"), std::nullopt);
}

TEST(ParseSimCards, TakesCountAndGib) {
  EXPECT_EQ(*parseSimCards("sim:8x32"), (SimCards{8, gibibytes(32)}));
  for (const char* text : {"sim:", "sim:8", "sim:0x32", "sim:8x0", "sim:8x", "sim:x32", "8x32",
                           "sim:8x32x", "sim:-1x2", "sim:1025x1", "sim:1x4097"}) {
    expectRefused(parseSimCards(text), "sim:8x32");
  }
}

}  // namespace
}  // namespace qgpu::config_test
