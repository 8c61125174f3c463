#pragma once
// What a daemon said, as one value, however it came: read once from the JSON of an admin socket, or
// written call by call from an answer over RPC. Tables, names, JSON and YAML are all made of it.
//
// A Document is one list of nodes in the order in which they were told, and one text that has their
// keys and strings, so that 100,000 tasks are few allocations; keys that come again, as those of
// tasks do, stand there once. A Value is a place in it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/json.h"

namespace qgpu::ctl {

class Document;

// Part of a document, which it must not outlive. Of what is not there nothing can be had, so that a
// field of a newer or an older daemon needs no care.
class Value {
 public:
  // Over the entries of a list or the members of an object; nothing else has any.
  class Iterator {
   public:
    Iterator(const Document* document, std::size_t at) : document_(document), at_(at) {}
    Value operator*() const { return Value(document_, at_); }
    Iterator& operator++();
    bool operator==(const Iterator&) const = default;

   private:
    const Document* document_;
    std::size_t at_;
  };

  Value() = default;  // nothing
  Value(const Document* document, std::size_t at) : document_(document), at_(at) {}

  bool exists() const { return document_ != nullptr; }
  bool isList() const;
  bool isObject() const;
  // A whole number that is not negative.
  std::optional<std::uint64_t> number() const;
  std::optional<std::string_view> text() const;
  std::optional<bool> flag() const;
  // What it is called where it is a member of an object.
  std::string_view key() const;

  // The member of an object that is called so, the first where several are.
  Value operator[](std::string_view key) const;
  Iterator begin() const;
  Iterator end() const;

  // Tells it to `to`; null where there is nothing.
  void write(DocumentWriter& to) const;

 private:
  const Document* document_ = nullptr;
  std::size_t at_ = 0;
};

class Document final : public DocumentWriter {
 public:
  Document() = default;
  // Has room at once for what a text of JSON of so many bytes tells.
  explicit Document(std::size_t jsonBytes);

  // What was told first; nothing of a document that is empty yet.
  Value root() const { return nodes_.empty() ? Value() : Value(this, 0); }

  Document& beginObject() override { return open(Kind::Object); }
  Document& endObject() override { return close(); }
  Document& beginArray() override { return open(Kind::List); }
  Document& endArray() override { return close(); }
  Document& key(std::string_view name) override;

  // Bytes that are no UTF-8 become U+FFFD, as in JSON. What is beyond 170 MiB is cut off.
  Document& string(std::string_view text) override;
  Document& number(std::int64_t n) override;
  Document& number(std::uint64_t n) override { return add(Kind::Number, n); }
  Document& real(double n) override;
  Document& boolean(bool b) override { return add(Kind::Flag, b ? 1 : 0); }
  Document& null() override { return add(Kind::Null, 0); }

 private:
  friend class Value;

  enum class Kind : std::uint8_t { Null, Flag, Number, Negative, Real, Text, List, Object };
  struct Part {  // of texts_, which is shorter than 4 GiB: what is beyond is empty
    std::uint32_t at = 0;
    std::uint32_t size = 0;
  };
  struct Node {
    std::uint64_t value = 0;      // of a text where it begins; of a list or object its nodes below
    std::uint32_t key = 0;        // of keys_
    std::uint32_t size : 29 = 0;  // of a text
    Kind kind : 3 = Kind::Null;
  };
  static_assert(sizeof(Node) == 16, "most of what a list of tasks takes");
  struct Key {
    Part name;
    std::uint32_t next = 0;  // of keys_, that followed it last
  };
  static constexpr std::size_t kKeysSought = 256;
  static constexpr std::uint32_t kTextMax = (1U << 29U) - 1;  // of one text, as mended

  Document& add(Kind kind, std::uint64_t value);
  Document& open(Kind kind);
  Document& close();
  Part keep(std::string_view text);
  std::string_view part(Part part) const { return {texts_.data() + part.at, part.size}; }
  // Behind the node and all that is in it.
  std::size_t behind(std::size_t at) const;

  std::vector<Node> nodes_;
  std::string texts_;
  std::vector<std::size_t> open_;    // nodes that are not closed yet, the innermost last
  std::vector<Key> keys_ = {Key()};  // the first is that of what has none
  std::uint32_t key_ = 0;            // of the value that comes next
  std::uint32_t lastKey_ = 0;
};

// A member by its type: 0, empty or false where there is none of it.
std::uint64_t numberOf(Value object, std::string_view key);
// Of a task, on its cards: what it lent is not there.
std::uint64_t memoryUsed(Value task);
std::string textOf(Value object, std::string_view key);
bool flagOf(Value object, std::string_view key);
std::vector<Value> listOf(Value object, std::string_view key);

std::string jsonOf(Value value);

}  // namespace qgpu::ctl
