#include "tests/deploy/documents.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

#include "services/base/yaml.h"

namespace qgpu::testing {
namespace fs = std::filesystem;

Document::Document(std::string json) : json_(std::move(json)) {}

std::string Document::at(std::string_view pointer) const {
  simdjson::dom::parser parser;
  simdjson::dom::element found;
  if (parser.parse(json_).at_pointer(pointer).get(found) != simdjson::SUCCESS) return {};
  return simdjson::minify(found);
}

std::string Document::text(std::string_view pointer) const {
  simdjson::dom::parser parser;
  std::string_view found;
  if (parser.parse(json_).at_pointer(pointer).get(found) != simdjson::SUCCESS) return at(pointer);
  return std::string(found);
}

std::string sourcePath(const std::string& relative) {
  return std::string(QGPU_SOURCE_ROOT) + "/" + relative;
}

std::string readText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path << " can't be read";
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<Document> parseDocuments(const std::string& text) {
  std::vector<Document> documents;
  auto json = yamlToJson(text);
  EXPECT_TRUE(json.ok()) << (json.ok() ? "" : json.error().message);
  if (!json.ok()) return documents;
  for (std::string& one : *json) documents.emplace_back(std::move(one));
  return documents;
}

std::vector<Document> readDocuments(const std::string& path) {
  SCOPED_TRACE(path);
  return parseDocuments(readText(path));
}

std::vector<Document> manifests() {
  const std::set<std::string> others = {"kustomization.yaml", "Chart.yaml", "values.yaml"};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(sourcePath("deploy/kubernetes"))) {
    const fs::path& path = entry.path();
    if (path.extension() == ".yaml" && !others.contains(path.filename().string())) {
      files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Document> all;
  for (const fs::path& file : files) {
    for (Document& document : readDocuments(file.string())) all.push_back(std::move(document));
  }
  return all;
}

const Document& find(const std::vector<Document>& all, const std::string& kind,
                     const std::string& name) {
  static const Document kNone("{}");
  for (const Document& document : all) {
    if (document.kind() == kind && document.name() == name) return document;
  }
  ADD_FAILURE() << "there is no " << kind << " " << name;
  return kNone;
}

std::vector<std::string> below(const Document& document, const std::string& pointer) {
  std::vector<std::string> pointers;
  simdjson::dom::parser parser;
  simdjson::dom::element found;
  const std::string json = document.at(pointer);
  if (json.empty() || parser.parse(json).get(found) != simdjson::SUCCESS) return pointers;
  if (found.is_array()) {
    const std::size_t count = found.get_array().size();
    for (std::size_t i = 0; i < count; ++i) pointers.push_back(pointer + "/" + std::to_string(i));
  } else if (found.is_object()) {
    for (const auto field : found.get_object()) {
      std::string key(field.key);
      for (std::size_t at = 0; (at = key.find_first_of("~/", at)) != std::string::npos; at += 2) {
        key.replace(at, 1, key[at] == '~' ? "~0" : "~1");
      }
      pointers.push_back(pointer + "/" + key);
    }
  }
  return pointers;
}

}  // namespace qgpu::testing
