#include "tests/gpu/record.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace qgpu::gpu {
namespace {

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet:
      return "met";
    case Verdict::kWeaker:
      return "weaker";
    case Verdict::kMissed:
      return "not met";
    case Verdict::kReported:
      return "reported";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kFailed:
      return "failed";
  }
  return "";
}

bool bad(const Finding& finding) {
  return finding.verdict == Verdict::kMissed || finding.verdict == Verdict::kFailed;
}

std::string textOf(const Json& figures, const char* name) {
  const bool there = figures.contains(name) && figures[name].is_string();
  return there ? figures[name].get<std::string>() : "";
}

// Whatever a program printed: bytes that are no text don't end us.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// As a cell of a table.
std::string inOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '|', '/');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string inOneLine(const Json& figures) {
  std::string text;
  for (const auto& [name, value] : figures.items()) {
    text += (text.empty() ? "" : ", ") + name + " " +
            (value.is_string() ? value.get<std::string>() : dumped(value));
  }
  return inOneLine(std::move(text));
}

}  // namespace

std::string inOneWord(const std::string& text) {
  std::string word;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      word += static_cast<char>(std::tolower(byte));
    } else if (!word.empty() && word.back() != '-') {
      word += '-';
    }
  }
  if (word.ends_with('-')) word.pop_back();
  return word;
}

void Record::add(Finding finding) {
  const std::string byGates = prove::weakerHeldBy(textOf(finding.figures, "suspend"));
  const std::string byLibrary = prove::weakerContainedBy(textOf(finding.figures, "isolation"));
  if (finding.verdict == Verdict::kMet && !(byGates + byLibrary).empty()) {
    finding.verdict = Verdict::kWeaker;
    finding.why = byGates.empty() ? byLibrary : byGates;
  }
  Json line = {{"check", finding.check}, {"verdict", word(finding.verdict)}};
  if (!finding.wanted.empty()) line["wanted"] = finding.wanted;
  if (!finding.why.empty()) line["why"] = finding.why;
  for (const auto& [name, value] : finding.figures.items()) line[name] = value;
  std::printf("%s\n", dumped(line).c_str());
  std::fflush(stdout);
  finding.of = check_;
  findings_.push_back(std::move(finding));
}

void Record::took(const std::string& check, double seconds) {
  const Json line = {{"check", check}, {"seconds", std::round(seconds * 10) / 10}};
  std::printf("%s\n", dumped(line).c_str());
  std::fflush(stdout);
  took_ += (took_.empty() ? "" : ", ") + check + " " + std::to_string(std::lround(seconds)) + " s";
}

std::string Record::markdown(const std::string& title,
                             const std::vector<std::string>& about) const {
  std::string text = "# " + title + "\n\n";
  for (const std::string& line : about) text += "- " + line + "\n";
  if (!took_.empty()) text += "- It took: " + took_ + "\n";
  text += "\n| check | wanted | got | |\n|---|---|---|---|\n";
  for (const Finding& each : findings_) {
    const std::string got = inOneLine(each.figures);
    text += "| " + each.check + " | " + each.wanted + " | " + got +
            (each.why.empty() ? "" : (got.empty() ? "" : "; ") + inOneLine(each.why)) + " | " +
            word(each.verdict) + " |\n";
  }
  return text;
}

bool Record::allMet() const {
  return std::none_of(findings_.begin(), findings_.end(), bad);
}

}  // namespace qgpu::gpu
