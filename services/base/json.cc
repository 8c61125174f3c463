#include "services/base/json.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <simdjson.h>

#include "runtime/check.h"

namespace qgpu {
namespace {

static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool isContinuation(unsigned char byte) {
  return (byte & 0xC0U) == 0x80U;
}

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

// What stands in JSON as it is; most texts are ASCII of nothing else.
bool isPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte != 0x7F && c != '"' && c != '\\';
}
bool isPlainAscii(char c) {
  return isPlain(c) && static_cast<unsigned char>(c) < 0x80;
}

void appendEscaped(std::string& out, char c) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  out += "\\u00";
  out += kHex[byte >> 4U];
  out += kHex[byte & 0xFU];
}

constexpr int kDeepest = 1024;

// Of a document or of a value in it; what is wrong is thrown.
template <typename Json>
void tell(Json& json, int depth, DocumentWriter& to) {
  using Type = simdjson::ondemand::json_type;
  using NumberType = simdjson::ondemand::number_type;
  if (depth > kDeepest) throw simdjson::simdjson_error(simdjson::DEPTH_ERROR);
  switch (Type(json.type())) {
    case Type::object:
      to.beginObject();
      for (simdjson::ondemand::field member : json.get_object()) {
        to.key(std::string_view(member.unescaped_key()));
        tell(member.value(), depth + 1, to);
      }
      to.endObject();
      break;
    case Type::array:
      to.beginArray();
      for (simdjson::ondemand::value entry : json.get_array()) tell(entry, depth + 1, to);
      to.endArray();
      break;
    case Type::string:
      to.string(std::string_view(json.get_string()));
      break;
    case Type::number: {
      simdjson::ondemand::number number = json.get_number();
      switch (number.get_number_type()) {
        case NumberType::signed_integer:
          to.number(number.get_int64());
          break;
        case NumberType::unsigned_integer:
          to.number(number.get_uint64());
          break;
        case NumberType::floating_point_number:
          to.real(number.get_double());
          break;
      }
      break;
    }
    case Type::boolean:
      to.boolean(bool(json.get_bool()));
      break;
    case Type::null:
      // A document that is null was told before: this simdjson looks at the wrong byte behind it.
      if (depth == 0 || !json.is_null()) throw simdjson::simdjson_error(simdjson::N_ATOM_ERROR);
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
  if (std::all_of(text.begin(), text.end(), isPlainAscii)) {
    ((out += '"') += text) += '"';
    return;
  }
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

// Each value is looked at once, as it is told: a list of 1,000 tasks is no tree of its own first.
Status readJson(std::string_view json, DocumentWriter& to, std::size_t behind) {
  const std::size_t blanks = json.size() - (json.find_last_not_of(" \t\r\n") + 1);
  json.remove_suffix(blanks);
  if (json == "null") return to.null(), ok();
  std::optional<simdjson::padded_string> copy;
  if (behind + blanks < kJsonPadding) json = std::string_view(copy.emplace(json));
  try {
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document =
        parser.iterate(simdjson::padded_string_view(json, json.size() + kJsonPadding));
    tell(document, 0, to);
    const char* more = nullptr;
    const bool ended = document.current_location().get(more) != simdjson::SUCCESS;
    if (!ended) throw simdjson::simdjson_error(simdjson::TRAILING_CONTENT);
  } catch (const simdjson::simdjson_error& error) {
    return fail(ErrorCode::InvalidArgument, std::string("this is no JSON: ") + error.what());
  }
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
