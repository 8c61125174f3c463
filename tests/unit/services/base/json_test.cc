#include "services/base/json.h"

#include <gtest/gtest.h>
#include <limits>
#include <simdjson.h>

namespace qgpu::json_test {
namespace {

std::string asJson(std::string_view text) {
  std::string out;
  appendJsonString(out, text);
  return out;
}

TEST(Json, WritesNestedDocumentsWithTheCommasInPlace) {
  JsonWriter json;
  json.beginObject().flag("ok", true).key("a").beginArray();
  json.number(std::int64_t{-1}).beginObject().endObject().null().string("x").endArray();
  json.count("n", 2).endObject();
  EXPECT_EQ(json.text(), R"({"ok":true,"a":[-1,{},null,"x"],"n":2})");
}

TEST(Json, WritesEvery64BitIntegerAsANumber) {
  JsonWriter json;
  json.beginArray().number(std::numeric_limits<std::int64_t>::min());
  json.number(std::numeric_limits<std::int64_t>::max());
  json.number(std::numeric_limits<std::uint64_t>::max()).endArray();
  EXPECT_EQ(json.text(), "[-9223372036854775808,9223372036854775807,18446744073709551615]");
}

TEST(Json, EveryByteComesBackThroughAParser) {
  for (int c = 0; c < 0x80; ++c) {
    const std::string text = "a" + std::string(1, static_cast<char>(c)) + "b";
    const std::string document = asJson(text);
    EXPECT_EQ(document.find('\n'), std::string::npos);
    simdjson::dom::parser parser;
    std::string_view back;
    ASSERT_EQ(parser.parse(document).get(back), simdjson::SUCCESS) << document;
    EXPECT_EQ(back, text);
  }
}

TEST(Json, KeepsTextOutsideAscii) {
  for (const char* text : {"ä", "漢字", "🎉", "\xC2\x80", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(isUtf8(text));
    EXPECT_EQ(asJson(text), '"' + std::string(text) + '"');
  }
}

TEST(Json, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  const std::string kBad[] = {
      "\x80",              // a lone continuation
      "\xC0\xAF",          // overlong
      "\xE0\x80\xAF",      // overlong
      "\xED\xA0\x80",      // a surrogate
      "\xF4\x90\x80\x80",  // above U+10FFFF
      "\xF5\x80\x80\x80",  // no such start
      "\xE2\x82",          // cut off
      "\xFF",
  };
  for (const std::string& bad : kBad) {
    EXPECT_FALSE(isUtf8(bad));
    const std::string document = asJson("a" + bad + "b");
    simdjson::dom::parser parser;
    std::string_view back;
    ASSERT_EQ(parser.parse(document).get(back), simdjson::SUCCESS) << document;
    EXPECT_TRUE(back.starts_with("a\xEF\xBF\xBD")) << document;
    EXPECT_TRUE(back.ends_with("b")) << document;
  }
}

}  // namespace
}  // namespace qgpu::json_test
