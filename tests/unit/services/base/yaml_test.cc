#include "services/base/yaml.h"

#include <gtest/gtest.h>

namespace qgpu::yaml_test {
namespace {

std::string json(std::string_view text) {
  const auto documents = yamlToJson(text);
  if (!documents) return "error: " + documents.error().message;
  std::string all;
  for (const std::string& document : *documents) all += (all.empty() ? "" : "\n") + document;
  return all;
}

TEST(Yaml, ReadsWhatAKubeconfigIsMadeOf) {
  EXPECT_EQ(json("apiVersion: v1\nclusters:\n- name: a\n  cluster: {server: \"https://h:6443\"}\n"
                 "users: []\n"),
            R"({"apiVersion":"v1","clusters":[{"name":"a","cluster":{"server":"https://h:6443"}}],)"
            R"("users":[]})");
}

TEST(Yaml, MakesOfScalarsWhatKubectlMakesOfThem) {
  const std::pair<const char*, const char*> kRows[] = {
      {"true", "true"},
      {"yes", "true"},
      {"Off", "false"},
      {"\"true\"", "\"true\""},
      {"'5'", "\"5\""},
      {"5", "5"},
      {"-5", "-5"},
      {"+5", "5"},
      {"0644", "420"},
      {"0o644", "420"},
      {"0x1a4", "420"},
      {"089", "\"089\""},
      {"0", "0"},
      {"1.5", "1.5"},
      {"1e3", "1e3"},
      {"1.", "\"1.\""},
      {".5", "\".5\""},
      {"1.5.2", "\"1.5.2\""},
      {"~", "null"},
      {"null", "null"},
      {"\"\"", "\"\""},
      {"300Mi", "\"300Mi\""},
      {"", "null"},
      {"--5", "\"--5\""},
      {"9223372036854775807", "9223372036854775807"},
      {"92233720368547758070", "\"92233720368547758070\""},
  };
  for (const auto& [written, read] : kRows) {
    EXPECT_EQ(json(std::string("v: ") + written), "{\"v\":" + std::string(read) + "}");
  }
  EXPECT_EQ(json("a:\nb: |\n  two\n  lines\n"), R"({"a":null,"b":"two\nlines\n"})");
}

TEST(Yaml, ReadsEveryDocumentAndPassesEmptyOnesOver) {
  EXPECT_EQ(json("# nothing\n---\na: 1\n---\n---\nb: 2\n"), "{\"a\":1}\n{\"b\":2}");
  EXPECT_EQ(json(""), "");
  EXPECT_EQ(json(R"({"a":[1,{"b":null}]})"), R"({"a":[1,{"b":null}]})");  // JSON is YAML
}

TEST(Yaml, FollowsAliases) {
  EXPECT_EQ(json("a: &x {n: 1}\nb: *x\n"), R"({"a":{"n":1},"b":{"n":1}})");
}

TEST(Yaml, OfADocumentOfOursReadsBackAsTheSame) {
  const std::string documents[] = {
      R"({"ok":true,"tasks":[{"id":7,"name":"train","n":-1,"gone":false,"none":null,"env":{}}]})",
      R"({"list":[],"nested":[[1,2],[{"a":[]}]],"text":"two\nlines","quoted":"a \"b\" \\ c"})",
      R"({"a":"","b":"true","c":"no","d":"5","e":"0x1f","f":"~","g":"null","h":"1.5","i":"y"})",
      R"({"a":": b","b":"# c","c":"- d","d":"a: b","e":" x ","f":"[","g":"{","h":"*x","i":"&x"})",
      R"({"a":"@","b":"%x","c":"!x","d":"?","e":"|","f":">","g":"-","h":"---","i":"'","j":"\t"})",
      R"({"a":"Portable Computing Language","b":"GPU-5f0c","c":"ä€😀","d":"2026-01-31","e":".inf"})",
      R"({"a b":1,"true":2,"5":3,"":4,"x: y":5,"n":9007199254740993})",
      R"([1,"a",{"b":[]}])",
      R"("a")",
      R"(7)",
  };
  for (const std::string& document : documents) {
    const auto yaml = jsonToYaml(document);
    ASSERT_TRUE(yaml.ok()) << document;
    EXPECT_EQ(json(*yaml), document) << *yaml;
  }
  EXPECT_EQ(*jsonToYaml(R"({"ok":true,"tasks":[{"id":7,"name":"train","note":"a b"}]})"),
            "ok: true\ntasks:\n  - id: 7\n    name: train\n    note: \"a b\"\n");
  EXPECT_FALSE(jsonToYaml("{").ok());
}

TEST(Yaml, SaysTheLineOfWhatItRefuses) {
  EXPECT_EQ(json("a: 1\nb: 2\na: 3\n"), "error: line 3: \"a\" stands here twice");
  EXPECT_EQ(json("a: 1\n? [b]\n: 2\n"), "error: line 2: a key that is no plain text");
  EXPECT_TRUE(json("a: 1\n\tb: 2\n").starts_with("error: line 2: ")) << json("a: 1\n\tb: 2\n");
  EXPECT_TRUE(json("a: *nobody\n").starts_with("error: line 1: "));
}

TEST(Yaml, GivesUpOnWhatGrowsWithoutEnd) {
  EXPECT_EQ(json("&a [*a]"), "error: line 1: nested deeper than 64");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int j = 1; j < 10; ++j) bomb += ", " + last;
    bomb += "]\n";
  }
  EXPECT_NE(json(bomb).find("more than 200000 values"), std::string::npos);
  std::string copies = "a: &a \"" + std::string(1U << 20U, 'x') + "\"\nb: [*a";
  for (int i = 0; i < 40; ++i) copies += ", *a";
  EXPECT_NE(json(copies + "]").find("grows to more than"), std::string::npos);
  EXPECT_NE(json(std::string(kYamlBytesMax + 1, '#')).find("bytes of YAML"), std::string::npos);
  EXPECT_NE(json(std::string(10'000, '[')).find("error: "), std::string::npos);
}

}  // namespace
}  // namespace qgpu::yaml_test
