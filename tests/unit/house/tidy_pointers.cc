#include "tests/unit/house/tidy_pointers.h"

#include <utility>

#include "tests/unit/house/tidy_text.h"

namespace qgpu::tidy {
namespace {

constexpr std::string_view kInvariants = "ACDP";  // the letters that their ids begin with
constexpr std::string_view kHazards = "HAZARDS";
constexpr std::size_t kDigitsMax = 2;

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}
bool isLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The number that `text` begins with. An underscore may follow, as in the name of a test; where a
// letter does, or it is too long, it is none.
std::string_view numberAt(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() && isDigit(text[digits])) ++digits;
  const bool ends = digits == text.size() || !isLetter(text[digits]);
  if (digits == 0 || digits > kDigitsMax || !ends) return {};
  return text.substr(0, digits);
}

// The id that `text` begins with, empty where it does not begin with one.
std::string citationAt(std::string_view text) {
  if (text.starts_with(kHazards)) {
    text.remove_prefix(kHazards.size());
    if (text.starts_with(' ')) text.remove_prefix(1);
    const std::string_view number = numberAt(text);
    return number.empty() ? "" : "hazards-" + std::string(number);
  }
  if (kInvariants.find(text[0]) == std::string_view::npos) return "";
  const std::string_view number = numberAt(text.substr(1));
  if (number.empty()) return "";
  return static_cast<char>(text[0] - 'A' + 'a') + std::string(number);
}

// Adds the files that the links of one line name.
void addLinks(std::string_view line, int number, std::vector<Pointer>& found) {
  bool code = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '`') code = !code;
    if (code || !line.substr(at).starts_with("](")) continue;
    const std::string_view rest = line.substr(at + 2);
    const std::string_view whole = rest.substr(0, rest.find(')'));
    const std::string_view target = whole.substr(0, whole.find('#'));
    const bool elsewhere = target.find(':') != std::string_view::npos;
    if (!target.empty() && !elsewhere) found.push_back({number, std::string(target)});
  }
}

}  // namespace

std::vector<Pointer> citationsOf(std::string_view code) {
  std::vector<Pointer> found;
  int number = 0;
  for (const std::string_view line : linesOf(code)) {
    ++number;
    for (std::size_t at = 0; at < line.size(); ++at) {
      const char before = at == 0 ? ' ' : line[at - 1];
      if (isLetter(before) || isDigit(before) || before == '_') continue;
      std::string id = citationAt(line.substr(at));
      if (!id.empty()) found.push_back({number, std::move(id)});
    }
  }
  return found;
}

std::vector<std::string> anchorsOf(std::string_view document) {
  static constexpr std::string_view kStart = "<a id=\"";
  std::vector<std::string> found;
  std::size_t at = document.find(kStart);
  while (at != std::string_view::npos) {
    const std::string_view rest = document.substr(at + kStart.size());
    found.emplace_back(rest.substr(0, rest.find('"')));
    at = document.find(kStart, at + kStart.size());
  }
  return found;
}

std::vector<Pointer> linksOf(std::string_view document) {
  std::vector<Pointer> found;
  bool fenced = false;
  int number = 0;
  for (const std::string_view line : linesOf(document)) {
    ++number;
    if (line.starts_with("```")) fenced = !fenced;
    if (!fenced && !line.starts_with("    ")) addLinks(line, number, found);
  }
  return found;
}

std::vector<std::string> navigationOf(std::string_view configuration) {
  const std::size_t start = configuration.find("\nnav:\n");
  std::vector<std::string> found;
  if (start == std::string_view::npos) return found;
  for (const std::string_view line : linesOf(configuration.substr(start + 1))) {
    if (line.ends_with(".md")) found.emplace_back(line.substr(line.rfind(' ') + 1));
  }
  return found;
}

}  // namespace qgpu::tidy
