#pragma once
// YAML and JSON files of deploy/ as JSON documents that a test may look into by paths.

#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu::testing {

class Document {
 public:
  explicit Document(std::string json);

  // What stands at a JSON pointer ("/spec/ports/0/port"), as JSON; empty where nothing does. A key
  // with a slash is written with ~1.
  std::string at(std::string_view pointer) const;
  // As at(), without the quotes of a text.
  std::string text(std::string_view pointer) const;
  std::string kind() const { return text("/kind"); }
  std::string name() const { return text("/metadata/name"); }
  const std::string& json() const { return json_; }

 private:
  std::string json_;
};

std::string sourcePath(const std::string& relative);  // of the tree
std::string readText(const std::string& path);

// Every document of a file; a file that can't be read is a failure of the test.
std::vector<Document> readDocuments(const std::string& path);
std::vector<Document> parseDocuments(const std::string& text);

// Every object of deploy/kubernetes itself, without what is kustomize's or helm's.
std::vector<Document> manifests();
const Document& find(const std::vector<Document>& all, const std::string& kind,
                     const std::string& name);

// The values below a pointer that is a list or an object: "[pointer]/0", "[pointer]/1", or keys.
std::vector<std::string> below(const Document& document, const std::string& pointer);

}  // namespace qgpu::testing
