#include "services/ctl/answers/document.h"

#include <algorithm>
#include <bit>

#include "runtime/check.h"

namespace qgpu::ctl {

// --- Document ---

// A task is some 30 nodes of 12 bytes of JSON each, a fourth of them text.
Document::Document(std::size_t jsonBytes) {
  nodes_.reserve(jsonBytes / 12 + 1);
  texts_.reserve(jsonBytes / 4);
}

// Objects of a list have their keys in one order, so the next one is mostly known. Where there are
// very many, as names, they are not sought.
Document& Document::key(std::string_view name) {
  const auto isAt = [&](std::size_t at) { return part(keys_[at].name) == name; };
  std::size_t at = keys_[lastKey_].next;
  if (at == 0 || !isAt(at)) {
    const std::size_t sought = std::min(keys_.size(), kKeysSought);
    for (at = 1; at < sought && !isAt(at);) ++at;
    if (at == sought) {
      at = keys_.size();
      keys_.push_back({keep(name), 0});
    }
    keys_[lastKey_].next = static_cast<std::uint32_t>(at);
  }
  lastKey_ = key_ = static_cast<std::uint32_t>(at);
  return *this;
}

Document& Document::string(std::string_view text) {
  text = text.substr(0, kTextMax / 3);
  const Part kept = isUtf8(text) ? keep(text) : keep(toUtf8(text));
  add(Kind::Text, kept.at);
  nodes_.back().size = kept.size & kTextMax;
  return *this;
}

Document& Document::number(std::int64_t n) {
  return add(n < 0 ? Kind::Negative : Kind::Number, static_cast<std::uint64_t>(n));
}

Document& Document::real(double n) {
  return add(Kind::Real, std::bit_cast<std::uint64_t>(n));
}

Document& Document::add(Kind kind, std::uint64_t value) {
  Node& node = nodes_.emplace_back();
  node.value = value;
  node.key = std::exchange(key_, 0);
  node.kind = kind;
  return *this;
}

Document& Document::open(Kind kind) {
  open_.push_back(nodes_.size());
  return add(kind, 0);
}

Document& Document::close() {
  QGPU_CHECK(!open_.empty(), "brackets close what was opened");
  const std::size_t opened = open_.back();
  open_.pop_back();
  nodes_[opened].value = nodes_.size() - opened - 1;
  return *this;
}

Document::Part Document::keep(std::string_view text) {
  if (text.size() > UINT32_MAX - texts_.size()) text = {};
  const Part kept{static_cast<std::uint32_t>(texts_.size()),
                  static_cast<std::uint32_t>(text.size())};
  texts_ += text;
  return kept;
}

std::size_t Document::behind(std::size_t at) const {
  const Node& node = nodes_[at];
  const bool holds = node.kind == Kind::List || node.kind == Kind::Object;
  return at + 1 + (holds ? static_cast<std::size_t>(node.value) : 0);
}

// --- Value ---

Value::Iterator& Value::Iterator::operator++() {
  at_ = document_->behind(at_);
  return *this;
}

bool Value::isList() const {
  return exists() && document_->nodes_[at_].kind == Document::Kind::List;
}

bool Value::isObject() const {
  return exists() && document_->nodes_[at_].kind == Document::Kind::Object;
}

std::optional<std::uint64_t> Value::number() const {
  if (!exists() || document_->nodes_[at_].kind != Document::Kind::Number) return std::nullopt;
  return document_->nodes_[at_].value;
}

std::optional<std::string_view> Value::text() const {
  if (!exists() || document_->nodes_[at_].kind != Document::Kind::Text) return std::nullopt;
  const Document::Node& node = document_->nodes_[at_];
  return document_->part({static_cast<std::uint32_t>(node.value), node.size});
}

std::optional<bool> Value::flag() const {
  if (!exists() || document_->nodes_[at_].kind != Document::Kind::Flag) return std::nullopt;
  return document_->nodes_[at_].value != 0;
}

std::string_view Value::key() const {
  if (!exists()) return {};
  return document_->part(document_->keys_[document_->nodes_[at_].key].name);
}

Value Value::operator[](std::string_view key) const {
  if (!isObject()) return {};
  for (const Value member : *this) {
    if (member.key() == key) return member;
  }
  return {};
}

Value::Iterator Value::begin() const {
  return {document_, at_ + 1};
}

Value::Iterator Value::end() const {
  return {document_, isList() || isObject() ? document_->behind(at_) : at_ + 1};
}

void Value::write(DocumentWriter& to) const {
  using Kind = Document::Kind;
  if (!exists()) {
    to.null();
    return;
  }
  const std::uint64_t value = document_->nodes_[at_].value;
  switch (document_->nodes_[at_].kind) {
    case Kind::Null:
      to.null();
      break;
    case Kind::Flag:
      to.boolean(value != 0);
      break;
    case Kind::Number:
      to.number(value);
      break;
    case Kind::Negative:
      to.number(static_cast<std::int64_t>(value));
      break;
    case Kind::Real:
      to.real(std::bit_cast<double>(value));
      break;
    case Kind::Text:
      to.string(*text());
      break;
    case Kind::List:
      to.beginArray();
      for (const Value entry : *this) entry.write(to);
      to.endArray();
      break;
    case Kind::Object:
      to.beginObject();
      for (const Value member : *this) member.write(to.key(member.key()));
      to.endObject();
      break;
  }
}

// --- members ---

std::uint64_t numberOf(Value object, std::string_view key) {
  return object[key].number().value_or(0);
}

std::uint64_t memoryUsed(Value task) {
  const std::uint64_t held = numberOf(task, "pageable_held_bytes");
  const std::uint64_t out = numberOf(task, "pageable_out_bytes");
  return numberOf(task, "mem_used_bytes") + held - std::min(held, out);
}

std::string textOf(Value object, std::string_view key) {
  return std::string(object[key].text().value_or(""));
}

bool flagOf(Value object, std::string_view key) {
  return object[key].flag().value_or(false);
}

std::vector<Value> listOf(Value object, std::string_view key) {
  const Value list = object[key];
  std::vector<Value> entries;
  if (!list.isList()) return entries;
  for (const Value entry : list) entries.push_back(entry);
  return entries;
}

std::string jsonOf(Value value) {
  JsonWriter json;
  value.write(json);
  return json.take();
}

}  // namespace qgpu::ctl
