#pragma once
// Documents, told call by call: a DocumentWriter is told what is in one, and makes of it what it
// is for. JsonWriter makes JSON in a string. It exists because the outside reads int64 as numbers
// and needs exact escapes, which Cap'n Proto's JsonCodec 0.9.2 does not give. Whatever bytes it is
// fed, the result is valid UTF-8 JSON on one line: control characters are escaped, bytes that are
// no UTF-8 become U+FFFD (C7). Reading is simdjson's work.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// Appends `text` with quotes around it and everything inside escaped.
void appendJsonString(std::string& out, std::string_view text);

// True where `text` is well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool isUtf8(std::string_view text);

// `text` with every byte that is no UTF-8 replaced by U+FFFD.
std::string toUtf8(std::string_view text);

// One document, in the order in which it is read. A key stands before each value of an object, and
// nowhere else.
class DocumentWriter {
 public:
  virtual ~DocumentWriter() = default;
  virtual DocumentWriter& beginObject() = 0;
  virtual DocumentWriter& endObject() = 0;
  virtual DocumentWriter& beginArray() = 0;
  virtual DocumentWriter& endArray() = 0;
  virtual DocumentWriter& key(std::string_view name) = 0;

  virtual DocumentWriter& string(std::string_view text) = 0;
  virtual DocumentWriter& number(std::int64_t n) = 0;
  virtual DocumentWriter& number(std::uint64_t n) = 0;
  virtual DocumentWriter& real(double n) = 0;  // finite; nothing here counts with such
  virtual DocumentWriter& boolean(bool b) = 0;
  virtual DocumentWriter& null() = 0;

  // The pairs that objects are mostly made of.
  DocumentWriter& field(std::string_view name, std::string_view text) {
    return key(name).string(text);
  }
  // Nothing where there is nothing to say.
  DocumentWriter& optional(std::string_view name, std::string_view text) {
    return text.empty() ? *this : field(name, text);
  }
  DocumentWriter& count(std::string_view name, std::uint64_t n) { return key(name).number(n); }
  DocumentWriter& flag(std::string_view name, bool b) { return key(name).boolean(b); }
};

// Tells `to` what stands in a text of JSON. InvalidArgument where it is none; what stands before
// its first fault may have been told then. `behind`: so many bytes behind it may be read as well;
// from kJsonPadding on it is not copied.
inline constexpr std::size_t kJsonPadding = 64;
Status readJson(std::string_view json, DocumentWriter& to, std::size_t behind = 0);

class JsonWriter final : public DocumentWriter {
 public:
  JsonWriter& beginObject() override { return open('{'); }
  JsonWriter& endObject() override { return close('}'); }
  JsonWriter& beginArray() override { return open('['); }
  JsonWriter& endArray() override { return close(']'); }
  JsonWriter& key(std::string_view name) override;

  JsonWriter& string(std::string_view text) override;
  JsonWriter& number(std::int64_t n) override;
  JsonWriter& number(std::uint64_t n) override;
  JsonWriter& real(double n) override;
  JsonWriter& boolean(bool b) override;
  JsonWriter& null() override;

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
