#pragma once
// Writes the demo's JSON documents. Only what they need: objects, arrays, numbers, texts and flags;
// the caller closes what it opens.

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace qgpu::demo {

class JsonText {
 public:
  JsonText& object() { return open('{'); }
  JsonText& array() { return open('['); }
  JsonText& object(std::string_view key) { return name(key).open('{'); }
  JsonText& array(std::string_view key) { return name(key).open('['); }
  JsonText& endObject() { return close('}'); }
  JsonText& endArray() { return close(']'); }

  JsonText& number(std::string_view key, std::int64_t value) {
    return name(key).value(std::to_string(value));
  }
  // With three decimals.
  JsonText& decimal(std::string_view key, double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.3f", value);
    return name(key).value(text);
  }
  JsonText& flag(std::string_view key, bool value) {
    return name(key).value(value ? "true" : "false");
  }
  JsonText& text(std::string_view key, std::string_view value) {
    return name(key).value(quoted(value));
  }
  // A document from elsewhere, as it is; null if empty.
  JsonText& raw(std::string_view key, std::string_view document) {
    return name(key).value(document.empty() ? "null" : std::string(document));
  }

  const std::string& str() const { return out_; }

 private:
  JsonText& name(std::string_view key) {
    separate();
    out_ += quoted(key) + ":";
    first_ = true;  // its value follows without a comma
    return *this;
  }
  JsonText& value(const std::string& text) {
    separate();
    out_ += text;
    return *this;
  }
  JsonText& open(char bracket) {
    separate();
    out_ += bracket;
    first_ = true;
    return *this;
  }
  JsonText& close(char bracket) {
    out_ += bracket;
    first_ = false;
    return *this;
  }
  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }
  static std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < ' ') {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
        out += escape;
        continue;
      }
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  }

  std::string out_;
  bool first_ = true;
};

}  // namespace qgpu::demo
