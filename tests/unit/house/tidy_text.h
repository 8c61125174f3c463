#pragma once
// C++ text as the house rules look at it: lines, includes, and the code without its comments and
// literals. No parser: a reader of braces and words that is right for the style of this house.

#include <string>
#include <string_view>
#include <vector>

namespace qgpu::tidy {

std::vector<std::string_view> linesOf(std::string_view text);

// The same text with blanks where comments, strings and character literals were; line ends stay.
std::string codeOf(std::string_view text);

struct Include {
  int line = 0;
  std::string_view target;  // without quotes or angle brackets
  bool quoted = false;
};
std::vector<Include> includesOf(std::string_view text);

// Column where `word` stands as a word of its own in `code`, npos where it does not. A word that
// ends with '(' is a call of a free function, so `clock.time(` is none.
std::size_t findWord(std::string_view code, std::string_view word);

// The words of a text and the parts of its names, as written: "aGateWord of bell_ring" is a, Gate,
// Word, of, bell, ring.
std::vector<std::string_view> partsOf(std::string_view text);

struct Function {
  int line = 0;    // where its signature begins
  int length = 0;  // lines from there to its closing brace
};
// Outermost function bodies; a lambda belongs to the function around it.
std::vector<Function> functionsOf(std::string_view text);

// Characters, not bytes: a line of Cyrillic text is as wide as it looks.
std::size_t columnsOf(std::string_view line);

}  // namespace qgpu::tidy
