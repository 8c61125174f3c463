#include "services/ctl/top/keys.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "services/base/json.h"

namespace qgpu::ctl {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::size_t kSequenceMax = 32;  // bytes; longer ones are of no terminal

struct Named {
  std::string_view sequence;  // behind the escape
  Key::Kind kind;
};
constexpr Named kNamed[] = {
    {"[A", Key::Kind::Up},   {"OA", Key::Kind::Up},      {"[B", Key::Kind::Down},
    {"OB", Key::Kind::Down}, {"[5~", Key::Kind::PageUp}, {"[6~", Key::Kind::PageDown},
    {"[H", Key::Kind::Home}, {"OH", Key::Kind::Home},    {"[1~", Key::Kind::Home},
    {"[F", Key::Kind::End},  {"OF", Key::Kind::End},     {"[4~", Key::Kind::End},
};

// The length of a character in UTF-8; of bytes that are none, of those that can't go on.
std::size_t lengthOfCharacter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t wanted = lead < 0xC0 || lead >= 0xF8 ? 1
                             : lead < 0xE0               ? 2
                             : lead < 0xF0               ? 3
                                                         : 4;
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == text.size()) return 0;
    if ((byte(i) & 0xC0U) != 0x80U) return i;
  }
  return wanted;
}

// The length of what begins `text`: a sequence or a character. 0: not all of it is here.
std::size_t lengthOf(std::string_view text) {
  if (text.front() != kEscape) return lengthOfCharacter(text);
  if (text.size() < 2) return 0;
  if (text[1] == 'O') return text.size() < 3 ? 0 : 3;
  if (text[1] != '[') return 1;  // Escape, and then another key
  const auto last =
      std::find_if(text.begin() + 2, text.end(), [](char c) { return c >= '@' && c <= '~'; });
  if (last != text.end()) return static_cast<std::size_t>(last - text.begin()) + 1;
  return text.size() < kSequenceMax ? 0 : text.size();
}

std::optional<Key> keyOf(std::string_view text) {
  if (text.front() == kEscape) {
    if (text.size() == 1) return Key{Key::Kind::Escape};
    for (const Named& named : kNamed) {
      if (named.sequence == text.substr(1)) return Key{named.kind};
    }
    return std::nullopt;
  }
  if (text == "\r" || text == "\n") return Key{Key::Kind::Enter};
  if (text == "\x7f" || text == "\b") return Key{Key::Kind::Erase};
  const bool control = static_cast<unsigned char>(text.front()) < 0x20;
  if (control || !isUtf8(text)) return std::nullopt;
  return Key{Key::Kind::Text, std::string(text)};
}

}  // namespace

std::vector<Key> KeyReader::read(std::string_view bytes) {
  std::vector<Key> keys;
  begun_ += bytes;
  std::string_view rest = begun_;
  while (!rest.empty()) {
    const std::size_t length = lengthOf(rest);
    if (length == 0) break;
    if (auto key = keyOf(rest.substr(0, length))) keys.push_back(std::move(*key));
    rest.remove_prefix(length);
  }
  begun_ = std::string(rest);
  return keys;
}

std::vector<Key> KeyReader::end() {
  const std::string begun = std::exchange(begun_, {});
  if (begun.empty() || begun.front() != kEscape) return {};
  // What comes behind an Escape by hand, as fast as this, is no key of ours.
  return {Key{Key::Kind::Escape}};
}

}  // namespace qgpu::ctl
