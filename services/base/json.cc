#include "services/base/json.h"

#include <algorithm>
#include <charconv>
#include <simdjson.h>

#include "runtime/check.h"

namespace qgpu {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool isContinuation(unsigned char byte) { return (byte & 0xC0U) == 0x80U; }

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 where there is none.
std::size_t utf8Length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;   // shorter forms exist
    if (first == 0xED) high = 0x9F;  // surrogates
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;  // above U+10FFFF
  }
  if (length == 0 || text.size() < length) return 0;
  if (at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (!isContinuation(at(i))) return 0;
  }
  return length;
}

// What stands in JSON as it is; most texts are nothing else.
bool isPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte != 0x7F && c != '"' && c != '\\';
}

void appendEscaped(std::string& out, char c) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto byte = static_cast<unsigned char>(c);
  out += "\\u00";
  out += kHex[byte >> 4U];
  out += kHex[byte & 0xFU];
}

void tell(simdjson::dom::element value, DocumentWriter& to) {
  using Type = simdjson::dom::element_type;
  switch (value.type()) {
    case Type::OBJECT:
      to.beginObject();
      for (const auto& [key, member] : simdjson::dom::object(value)) tell(member, to.key(key));
      to.endObject();
      break;
    case Type::ARRAY:
      to.beginArray();
      for (const simdjson::dom::element entry : simdjson::dom::array(value)) tell(entry, to);
      to.endArray();
      break;
    case Type::STRING:
      to.string(std::string_view(value));
      break;
    case Type::INT64:
      to.number(std::int64_t(value));
      break;
    case Type::UINT64:
      to.number(std::uint64_t(value));
      break;
    case Type::DOUBLE:
      to.real(double(value));
      break;
    case Type::BOOL:
      to.boolean(bool(value));
      break;
    case Type::NULL_VALUE:
      to.null();
      break;
  }
}

template <typename Number>
void appendNumber(std::string& out, Number n) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, n).ptr;
  out.append(digits, end);
}

}  // namespace

void appendJsonString(std::string& out, std::string_view text) {
  const std::string mended = isUtf8(text) ? std::string() : toUtf8(text);
  if (!mended.empty()) text = mended;
  out += '"';
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), isPlain);
    const auto plain = static_cast<std::size_t>(end - text.begin());
    out += text.substr(0, plain);
    if (plain < text.size()) appendEscaped(out, text[plain]);
    text.remove_prefix(std::min(plain + 1, text.size()));
  }
  out += '"';
}

std::string toUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8Length(text);
    out += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

bool isUtf8(std::string_view text) {
  const auto isAscii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  while (true) {
    const auto other = std::find_if_not(text.begin(), text.end(), isAscii);
    text.remove_prefix(static_cast<std::size_t>(other - text.begin()));
    if (text.empty()) return true;
    const std::size_t length = utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
}

Status readJson(std::string_view json, DocumentWriter& to) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(simdjson::padded_string(json)).get(root)) {
    return fail(ErrorCode::InvalidArgument,
                std::string("this is no JSON: ") + simdjson::error_message(error));
  }
  tell(root, to);
  return ok();
}

JsonWriter& JsonWriter::key(std::string_view name) {
  QGPU_CHECK(!hasMembers_.empty() && !afterKey_, "a key stands inside an object");
  separate();
  appendJsonString(out_, name);
  out_ += ':';
  afterKey_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  appendJsonString(out_, text);
  return *this;
}

JsonWriter& JsonWriter::number(std::int64_t n) {
  separate();
  appendNumber(out_, n);
  return *this;
}

JsonWriter& JsonWriter::number(std::uint64_t n) {
  separate();
  appendNumber(out_, n);
  return *this;
}

JsonWriter& JsonWriter::real(double n) {
  separate();
  appendNumber(out_, n);
  return *this;
}

JsonWriter& JsonWriter::boolean(bool b) {
  separate();
  out_ += b ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  out_ += "null";
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  hasMembers_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  QGPU_CHECK(!hasMembers_.empty() && !afterKey_, "brackets close what was opened");
  hasMembers_.pop_back();
  out_ += bracket;
  return *this;
}

// A comma before every member but the first; none between a key and its value.
void JsonWriter::separate() {
  if (afterKey_) {
    afterKey_ = false;
    return;
  }
  if (hasMembers_.empty()) return;
  if (hasMembers_.back()) out_ += ',';
  hasMembers_.back() = true;
}

}  // namespace qgpu
