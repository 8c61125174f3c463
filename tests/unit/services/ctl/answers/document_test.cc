// One value of what a daemon said, however it came.

#include "services/ctl/answers/document.h"

#include <gtest/gtest.h>

#include "services/base/yaml.h"
#include "services/ctl/answers/client.h"

namespace qgpu::ctl::document_test {

constexpr const char* kEverything =
    R"({"ok":true,"n":18446744073709551615,"below":-7,"half":0.5,"none":null,"text":"a \"b\" ä",)"
    R"("list":[1,[],{"x":[2]},"y"],"object":{"a":1,"b":{"c":2}},"after":3})";

Document documentOf(std::string_view json) {
  Document document;
  EXPECT_TRUE(readJson(json, document).ok()) << json;
  return document;
}

TEST(Document, IsWrittenAgainAsItWasRead) {
  EXPECT_EQ(jsonOf(documentOf(kEverything).root()), kEverything);
  for (const char* json : {"[]", "{}", "7", "\"a\"", "null", "[[[]],{}]"}) {
    EXPECT_EQ(jsonOf(documentOf(json).root()), json);
    EXPECT_EQ(jsonOf(documentOf(std::string(json) + " \r\n").root()), json);
  }
}

TEST(Document, WhatIsNoJsonIsRefusedWhereverItsFaultIs) {
  for (const char* text : {"",
                           " ",
                           "7 8",
                           "{} x",
                           "[[],{}]]",
                           "[1,2",
                           "[1,]",
                           "[1 2]",
                           "{\"a\" 1}",
                           "nul",
                           "nullx",
                           "nullx ",
                           "null x",
                           "[nulx]",
                           "{\"a\":truex}",
                           "\"a",
                           "[01]",
                           "[\"a\nb\"]",
                           "18446744073709551616",
                           "\"\xff\"",
                           "[\"\\ud83d\"]"}) {
    Document document;
    EXPECT_FALSE(readJson(text, document).ok()) << text;
  }
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_EQ(jsonOf(documentOf(nested(1000)).root()), nested(1000));
  Document tooDeep;
  EXPECT_FALSE(readJson(nested(100'000), tooDeep).ok()) << "its reader would need as deep a stack";
}

TEST(Document, IsReadWhereItLiesIfMoreMayBeReadBehindIt) {
  const std::string json = kEverything;
  const std::string longer = json + std::string(kJsonPadding, '"');
  Document document;
  EXPECT_TRUE(readJson(std::string_view(longer).substr(0, json.size()), document, kJsonPadding));
  EXPECT_EQ(jsonOf(document.root()), json);
}

TEST(Document, KeysComeInAnyOrderAndNumber) {
  JsonWriter json;
  json.beginArray();
  for (std::uint64_t i = 0; i < 40; ++i) {
    json.beginObject();
    for (std::uint64_t k = 0; k < 20; ++k) json.count("key" + std::to_string(i * k % 700), k);
    json.count("", i).endObject();
  }
  json.endArray();
  EXPECT_EQ(jsonOf(documentOf(json.text()).root()), json.text());
}

TEST(Document, ReadsTheSameWhetherJsonOrCallsMadeIt) {
  Document told;
  told.beginObject().flag("ok", true).key("tasks").beginArray();
  told.beginObject().count("id", 7).field("name", "a\xff").endObject();
  told.endArray().endObject();
  JsonWriter json;
  told.root().write(json);
  const Document read = documentOf(json.text());
  EXPECT_EQ(jsonOf(read.root()), "{\"ok\":true,\"tasks\":[{\"id\":7,\"name\":\"a\uFFFD\"}]}");
  for (const Document* one : std::initializer_list<const Document*>{&told, &read}) {
    const std::vector<Value> tasks = listOf(one->root(), "tasks");
    ASSERT_EQ(tasks.size(), 1u);
    EXPECT_EQ(numberOf(tasks[0], "id"), 7u);
    EXPECT_EQ(textOf(tasks[0], "name"), "a\uFFFD") << "no byte that a terminal could not take";
  }
}

TEST(Document, OfWhatIsNotThereNothingCanBeHad) {
  const Document document = documentOf(kEverything);
  const Value root = document.root();
  EXPECT_EQ(numberOf(root, "gone"), 0u);
  EXPECT_EQ(numberOf(root, "below"), 0u) << "not a number that counts";
  EXPECT_EQ(numberOf(root, "text"), 0u);
  EXPECT_EQ(textOf(root, "n"), "");
  EXPECT_FALSE(flagOf(root, "text"));
  EXPECT_TRUE(listOf(root, "object").empty());
  EXPECT_TRUE(listOf(root["gone"]["deeper"], "x").empty());
  EXPECT_FALSE(root["gone"].exists());
  EXPECT_TRUE(root["none"].exists());
  EXPECT_EQ(jsonOf(Value()), "null");
  EXPECT_EQ(jsonOf(Document().root()), "null");
}

TEST(Document, KnowsItsMembersInTheirOrderAndWhatIsBehindThem) {
  const Document document = documentOf(kEverything);
  std::string keys;
  for (const Value member : document.root()) keys += std::string(member.key()) + " ";
  EXPECT_EQ(keys, "ok n below half none text list object after ");
  EXPECT_EQ(numberOf(document.root(), "after"), 3u);
  EXPECT_EQ(numberOf(document.root()["object"]["b"], "c"), 2u);
  EXPECT_EQ(listOf(document.root(), "list").size(), 4u);
}

TEST(Document, AsYamlIsWhatItsJsonIsAsYaml) {
  YamlWriter yaml;
  documentOf(kEverything).root().write(yaml);
  EXPECT_EQ(yaml.text(), *jsonToYaml(kEverything));
}

TEST(Answer, OfATextThatIsNoJsonIsCorruptAndHasNoMember) {
  for (const char* text : {"", "{", "{\"ok\":true", "no"}) {
    const Answer answer(text);
    EXPECT_FALSE(answer.status()) << text;
    EXPECT_EQ(answer.status().error().code, ErrorCode::Corrupt) << text;
    EXPECT_EQ(jsonOf(answer.root()), "{}") << text;
  }
}

TEST(Answer, StaysReadableWhereItMoves) {
  Answer first(R"({"ok":true,"name":"a"})");
  const Value root = first.root();
  const Answer second = std::move(first);
  EXPECT_EQ(textOf(root, "name"), "a");
  EXPECT_TRUE(second.status());
}

}  // namespace qgpu::ctl::document_test
