#include "tests/unit/house/tidy_text.h"

#include <algorithm>
#include <cctype>

namespace qgpu::tidy {
namespace {

bool isWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Walks over text and blanks what is no code.
class Stripper {
 public:
  explicit Stripper(std::string_view text) : text_(text), code_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (startsWith("//")) {
        blankUntil(text_.find('\n', at_));
      } else if (startsWith("/*")) {
        blankUntil(after(text_.find("*/", at_ + 2), 2));
      } else if (text_[at_] == '"') {
        blankUntil(rawString() ? endOfRawString() : endOfLiteral('"'));
      } else if (text_[at_] == '\'' && (at_ == 0 || !isWordChar(text_[at_ - 1]))) {
        blankUntil(endOfLiteral('\''));
      } else {
        ++at_;
      }
    }
    return std::move(code_);
  }

 private:
  bool startsWith(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool rawString() const { return at_ > 0 && text_[at_ - 1] == 'R'; }
  std::size_t after(std::size_t position, std::size_t length) const {
    return position == std::string_view::npos ? position : position + length;
  }
  std::size_t endOfLiteral(char quote) const {
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != quote && text_[i] != '\n') i += text_[i] == '\\' ? 2 : 1;
    return i + 1;
  }
  std::size_t endOfRawString() const {
    const std::size_t open = text_.find('(', at_);
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    return after(text_.find(close, open), close.size());
  }
  void blankUntil(std::size_t end) {
    end = std::min(end, text_.size());
    for (; at_ < end; ++at_) {
      if (text_[at_] != '\n') code_[at_] = ' ';
    }
  }

  std::string_view text_;
  std::string code_;
  std::size_t at_ = 0;
};

// Whether the text before an opening brace outside functions says that a function body begins.
bool opensFunction(std::string_view before) {
  before = trimmed(before);
  if (before.find('(') == std::string_view::npos || before.ends_with('=')) return false;
  for (const char* word : {"namespace", "class", "struct", "union", "enum", "extern"}) {
    const auto at = findWord(before, word);
    // A macro may stand before it; `struct stat f() {` is a function all the same.
    const bool startsLine = at == 0 || (at != std::string_view::npos && before[at - 1] == '\n');
    if (startsLine && before.find('(', at) == std::string_view::npos) return false;
  }
  return true;
}

// Macros may hold braces that do not match; a definition may go on over several lines.
void blankPreprocessor(std::string& code) {
  bool inside = false;
  for (std::size_t at = 0; at < code.size();) {
    const std::size_t end = std::min(code.find('\n', at), code.size());
    const std::string_view line = std::string_view(code).substr(at, end - at);
    const bool goesOn = line.ends_with('\\');
    inside = inside || trimmed(line).starts_with('#');
    if (inside) code.replace(at, end - at, end - at, ' ');
    inside = inside && goesOn;
    at = end + 1;
  }
}

}  // namespace

std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string codeOf(std::string_view text) {
  return Stripper(text).run();
}

std::vector<Include> includesOf(std::string_view text) {
  std::vector<Include> includes;
  const std::string code = codeOf(text);
  const auto codeLines = linesOf(code);
  const auto lines = linesOf(text);
  constexpr std::string_view kWord = "#include";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // A line inside a string has no `#` left in its code.
    if (!trimmed(codeLines[i]).starts_with(kWord)) continue;
    std::string_view rest = trimmed(lines[i].substr(lines[i].find(kWord) + kWord.size()));
    if (rest.size() < 2) continue;
    const bool quoted = rest.front() == '"';
    rest.remove_prefix(1);
    includes.push_back(
        {static_cast<int>(i) + 1, rest.substr(0, rest.find(quoted ? '"' : '>')), quoted});
  }
  return includes;
}

std::size_t findWord(std::string_view code, std::string_view word) {
  const bool call = word.ends_with('(');
  for (auto at = code.find(word); at != std::string_view::npos; at = code.find(word, at + 1)) {
    const char before = at == 0 ? ' ' : code[at - 1];
    const char after = at + word.size() < code.size() ? code[at + word.size()] : ' ';
    const bool member = before == '.' || code.substr(0, at).ends_with("->");
    if (isWordChar(before) || (call ? member : isWordChar(after))) continue;
    return at;
  }
  return std::string_view::npos;
}

std::vector<std::string_view> partsOf(std::string_view text) {
  const auto is = [&](std::size_t at, int (*kind)(int)) {
    return at < text.size() && kind(static_cast<unsigned char>(text[at])) != 0;
  };
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (is(end, std::isupper)) ++end;
    // Of "HTTPServer" the last capital belongs to what follows.
    if (end > at + 1 && is(end, std::islower)) {
      --end;
    } else {
      while (is(end, std::islower)) ++end;
    }
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return parts;
}

std::vector<Function> functionsOf(std::string_view text) {
  std::vector<Function> functions;
  std::string code = codeOf(text);
  blankPreprocessor(code);
  std::size_t statement = 0;  // where the text before the next brace begins
  int line = 1;
  int depth = 0;  // braces inside the current function, 0: outside of any
  Function current;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '\n') ++line;
    if (depth > 0) {
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (c == '}' && depth == 0) {
        current.length = line - current.line + 1;
        functions.push_back(current);
        statement = i + 1;
      }
      continue;
    }
    if (c == '{' && opensFunction(std::string_view(code).substr(statement, i - statement))) {
      const auto first = code.find_first_not_of(" \n", statement);
      const auto after = code.begin() + static_cast<std::ptrdiff_t>(first);
      current.line = line - static_cast<int>(std::count(
                                after, code.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
      depth = 1;
    } else if (c == '{' || c == '}' || c == ';') {
      statement = i + 1;
    }
  }
  return functions;
}

std::size_t columnsOf(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // not inside a UTF-8 character
  }));
}

}  // namespace qgpu::tidy
