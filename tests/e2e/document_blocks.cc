#include "tests/e2e/document_blocks.h"

#include <regex>
#include <sstream>

namespace qgpu::e2e {
namespace {

constexpr const char* kFence = "```";

// What follows begins a comment only where a word could begin.
std::string withoutComment(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ')) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// The words of "<!-- needs: a, b -->".
std::vector<std::string> needsOf(const std::string& line) {
  static const std::regex marker("<!-- needs: ([a-z, ]+) -->");
  std::smatch match;
  std::vector<std::string> needs;
  if (!std::regex_match(line, match, marker)) return needs;
  std::istringstream words(match[1]);
  for (std::string word; std::getline(words, word, ',');) needs.push_back(trimmed(word));
  return needs;
}

bool looksLikeACommand(const std::string& line) {
  static const std::regex program(
      "(\\./dev|build/bin/\\S+|deploy/"
      "\\S+\\.sh|qgpuctl|sudo|kubectl|docker|systemctl|openssl|ninja|"
      "ctest|git) +\\S.*|qgpu-[a-z]+ -.*");
  return std::regex_match(trimmed(withoutComment(line)), program);
}

class Reader {
 public:
  explicit Reader(std::string path) { page_.path = std::move(path); }

  Page read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++number_;
      take(line);
    }
    return std::move(page_);
  }

 private:
  std::string place() const { return page_.path + ":" + std::to_string(number_); }

  void take(const std::string& line) {
    if (line.starts_with(kFence)) return fence(line.substr(3));
    if (inFence_) return fenced(line);
    const std::vector<std::string> needs = needsOf(line);
    if (!needs.empty()) {
      needs_ = needs;
      return;
    }
    if (!trimmed(line).empty()) needs_.clear();  // a marker counts for what comes next
    if (line.starts_with("    ")) return stray(line);
    static const std::regex span("`([^`]+)`");
    for (std::sregex_iterator at(line.begin(), line.end(), span), end; at != end; ++at) {
      page_.spans.push_back({place(), (*at)[1]});
    }
  }

  void fence(const std::string& language) {
    inFence_ = !inFence_;
    shell_ = inFence_ && language == "sh";
    if (shell_) page_.blocks.push_back({place(), needs_, {}});
    needs_.clear();
    open_.clear();
  }

  void fenced(const std::string& line) {
    if (!shell_) return stray(line);
    std::string text = trimmed(withoutComment(line));
    const bool goesOn = text.ends_with('\\');
    if (goesOn) text.pop_back();
    if (text.empty()) return;
    auto& commands = page_.blocks.back().commands;
    if (open_.empty()) {
      commands.push_back({place(), text});
    } else {
      commands.back().text += text;
    }
    open_ = goesOn ? text : "";
  }

  void stray(const std::string& line) {
    if (looksLikeACommand(line)) page_.strays.push_back({place(), trimmed(line)});
  }

  Page page_;
  std::size_t number_ = 0;
  bool inFence_ = false;
  bool shell_ = false;
  std::string open_;  // the last line of a command that goes on
  std::vector<std::string> needs_;
};

}  // namespace

Page readPage(const std::string& path, const std::string& text) {
  return Reader(path).read(text);
}

std::vector<std::string> shellWords(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool inWord = false;
  char quote = 0;
  for (const char c : withoutComment(text)) {
    if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
      inWord = true;
    } else if (c == ' ' && quote == 0) {
      if (inWord) words.push_back(std::exchange(word, ""));
      inWord = false;
    } else {
      word += c;
      inWord = true;
    }
  }
  if (inWord) words.push_back(word);
  return words;
}

}  // namespace qgpu::e2e
