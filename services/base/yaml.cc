#include "services/base/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <simdjson.h>
#include <yaml-cpp/yaml.h>

#include "services/base/json.h"

namespace qgpu {
namespace {

constexpr std::size_t kJsonBytesMax = 4 * kYamlBytesMax;  // aliases may write much with little

constexpr std::array<std::string_view, 5> kNull = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 9> kTrue = {"true", "True", "TRUE", "yes", "Yes",
                                                   "YES",  "on",   "On",   "ON"};
constexpr std::array<std::string_view, 9> kFalse = {"false", "False", "FALSE", "no", "No",
                                                    "NO",    "off",   "Off",   "OFF"};

template <std::size_t N>
bool isOneOf(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The digits as they are to stand in JSON, or nothing where `text` is no whole number: 0644 and
// 0x1a4 are numbers too, and one that 64 bits can't hold is none.
std::optional<std::int64_t> wholeNumber(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.size() > 2 && text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.starts_with('0')) {
    base = 8;
    text.remove_prefix(text[1] == 'o' ? 2 : 1);
  }
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || text.starts_with('-') || stop != end || error != std::errc{}) return {};
  return negative ? -value : value;
}

// True for a number with a point or an exponent that JSON writes the same way.
bool isJsonFraction(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const auto digits = [&] {
    const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(n);
    return n;
  };
  if (text.empty() || (text[0] == '0' && text.size() > 1 && text[1] >= '0' && text[1] <= '9')) {
    return false;
  }
  if (digits() == 0 || text.empty()) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

void appendScalar(std::string& out, const YAML::Node& node) {
  const std::string& text = node.Scalar();
  const bool plain = node.Tag() == "?" || node.Tag().empty();  // "!" where it stood in quotes
  if (!plain) return appendJsonString(out, text);
  if (isOneOf(kNull, text)) {
    out += "null";
  } else if (isOneOf(kTrue, text)) {
    out += "true";
  } else if (isOneOf(kFalse, text)) {
    out += "false";
  } else if (const auto number = wholeNumber(text)) {
    out += std::to_string(*number);
  } else if (isJsonFraction(text)) {
    out += text;
  } else {
    appendJsonString(out, text);
  }
}

class Writer {
 public:
  Status write(const YAML::Node& node, int depth) {
    if (++nodes_ > kYamlNodesMax) {
      return wrong(node, "more than " + std::to_string(kYamlNodesMax) + " values");
    }
    if (out_.size() > kJsonBytesMax) {
      return wrong(node, "grows to more than " + std::to_string(kJsonBytesMax) + " bytes");
    }
    if (depth > kYamlNestingMax) {
      return wrong(node, "nested deeper than " + std::to_string(kYamlNestingMax));
    }
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        appendScalar(out_, node);
        return ok();
      case YAML::NodeType::Sequence:
        return list(node, depth);
      case YAML::NodeType::Map:
        return map(node, depth);
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        out_ += "null";
        return ok();
    }
    return ok();
  }
  std::string take() { return std::move(out_); }

 private:
  static Error wrong(const YAML::Node& node, const std::string& what) {
    return fail(ErrorCode::InvalidArgument,
                "line " + std::to_string(node.Mark().line + 1) + ": " + what);
  }

  Status list(const YAML::Node& node, int depth) {
    out_ += '[';
    bool first = true;
    for (const auto& entry : node) {
      if (!first) out_ += ',';
      first = false;
      if (Status status = write(entry, depth + 1); !status) return status;
    }
    out_ += ']';
    return ok();
  }

  Status map(const YAML::Node& node, int depth) {
    std::set<std::string> keys;
    out_ += '{';
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return wrong(entry.first, "a key that is no plain text");
      const std::string& key = entry.first.Scalar();
      if (!keys.empty()) out_ += ',';
      if (!keys.insert(key).second) return wrong(entry.first, "\"" + key + "\" stands here twice");
      appendJsonString(out_, key);
      out_ += ':';
      if (Status status = write(entry.second, depth + 1); !status) return status;
    }
    out_ += '}';
    return ok();
  }

  std::string out_;
  std::size_t nodes_ = 0;
};

Result<std::vector<std::string>> convert(std::string_view text) {
  std::vector<std::string> documents;
  for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
    if (node.IsNull()) continue;  // what stands between two lines of ---
    Writer writer;
    if (Status status = writer.write(node, 1); !status) return status.error();
    documents.push_back(writer.take());
  }
  return documents;
}

// True for a text that needs no quotes: no reader takes it for something else.
bool isPlainText(std::string_view text) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
           c == '/';
  };
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text.front())) == 0) return false;
  if (!std::all_of(text.begin(), text.end(), fits)) return false;
  const bool shortAnswer = text.size() == 1 && std::string_view("yYnN").find(text[0]) < 4;
  return !shortAnswer && !isOneOf(kNull, text) && !isOneOf(kTrue, text) && !isOneOf(kFalse, text);
}

}  // namespace

YamlWriter::YamlWriter() : out_(std::make_unique<YAML::Emitter>()) {}
YamlWriter::~YamlWriter() = default;

YamlWriter& YamlWriter::beginObject() {
  return put(YAML::BeginMap);
}
YamlWriter& YamlWriter::endObject() {
  return put(YAML::EndMap);
}
YamlWriter& YamlWriter::beginArray() {
  return put(YAML::BeginSeq);
}
YamlWriter& YamlWriter::endArray() {
  return put(YAML::EndSeq);
}

YamlWriter& YamlWriter::key(std::string_view name) {
  put(YAML::Key).string(name);
  return put(YAML::Value);
}

YamlWriter& YamlWriter::string(std::string_view text) {
  if (!isPlainText(text)) put(YAML::DoubleQuoted);
  return put(std::string(text));
}

YamlWriter& YamlWriter::number(std::int64_t n) {
  return put(JsonWriter().number(n).text());
}
YamlWriter& YamlWriter::number(std::uint64_t n) {
  return put(JsonWriter().number(n).text());
}
YamlWriter& YamlWriter::real(double n) {
  return put(JsonWriter().real(n).text());
}
YamlWriter& YamlWriter::boolean(bool b) {
  return put(b ? "true" : "false");
}
YamlWriter& YamlWriter::null() {
  return put(YAML::Null);
}

std::string YamlWriter::text() const {
  return std::string(out_->c_str()) + "\n";
}

template <typename What>
YamlWriter& YamlWriter::put(const What& what) {
  *out_ << what;
  return *this;
}

Result<std::string> jsonToYaml(std::string_view json) {
  YamlWriter yaml;
  if (Status read = readJson(json, yaml); !read) return read.error();
  return yaml.text();
}

Result<std::vector<std::string>> yamlToJson(std::string_view text) {
  if (text.size() > kYamlBytesMax) {
    return fail(
        ErrorCode::InvalidArgument,
        std::to_string(text.size()) + " bytes of YAML, more than " + std::to_string(kYamlBytesMax));
  }
  try {
    return convert(text);
  } catch (const YAML::Exception& exception) {
    const std::string line =
        exception.mark.is_null() ? "" : "line " + std::to_string(exception.mark.line + 1) + ": ";
    return fail(ErrorCode::InvalidArgument, line + exception.msg);
  }
}

}  // namespace qgpu
