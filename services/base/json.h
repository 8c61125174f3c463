#pragma once
// Writes one JSON document into a string. It exists because the outside reads int64 as numbers and
// needs exact escapes, which Cap'n Proto's JsonCodec 0.9.2 does not give. Whatever bytes it is fed,
// the result is valid UTF-8 JSON on one line: control characters are escaped, bytes that are no
// UTF-8 become U+FFFD (C7). Reading is simdjson's work, not this header's.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu {

// Appends `text` with quotes around it and everything inside escaped.
void appendJsonString(std::string& out, std::string_view text);

// True where `text` is well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool isUtf8(std::string_view text);

// `text` with every byte that is no UTF-8 replaced by U+FFFD.
std::string toUtf8(std::string_view text);

class JsonWriter {
 public:
  JsonWriter& beginObject() { return open('{'); }
  JsonWriter& endObject() { return close('}'); }
  JsonWriter& beginArray() { return open('['); }
  JsonWriter& endArray() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view text);
  JsonWriter& number(std::int64_t n);
  JsonWriter& number(std::uint64_t n);
  JsonWriter& boolean(bool b);
  JsonWriter& null();

  // The pairs that objects are mostly made of.
  JsonWriter& field(std::string_view name, std::string_view text) { return key(name).string(text); }
  // Nothing where there is nothing to say.
  JsonWriter& optional(std::string_view name, std::string_view text) {
    return text.empty() ? *this : field(name, text);
  }
  JsonWriter& count(std::string_view name, std::uint64_t n) { return key(name).number(n); }
  JsonWriter& flag(std::string_view name, bool b) { return key(name).boolean(b); }

  // The document so far; call it when every bracket is closed.
  const std::string& text() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  std::vector<bool> hasMembers_;  // one entry for each open bracket
  bool afterKey_ = false;
};

}  // namespace qgpu
