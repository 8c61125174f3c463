#include "services/cards/nvidia/suspend_answers.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/fd.h"
#include "services/cards/cards.h"

namespace qgpu {
namespace {

constexpr std::string_view kHead = "qgpu-suspends 1 ";
constexpr std::size_t kTextMax = 64 * 1024;  // bytes of the file
constexpr std::string_view kNone = "-";      // in the place of a method

// Fields lie between tabs, answers on lines.
std::string field(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text.substr(0, kCardTextMax);
}

// Up to the next `end`, which is taken as well.
std::optional<std::string_view> next(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view found = text.substr(0, at);
  text.remove_prefix(at + 1);
  return found;
}

std::optional<suspend::SuspendMethod> methodOf(std::string_view name) {
  for (const suspend::SuspendMethod method : suspend::kSuspendMethods) {
    if (name == suspend::nameOf(method)) return method;
  }
  return std::nullopt;
}

std::optional<SuspendAnswer> parseLine(std::string_view line) {
  const auto card = next(line, '\t');
  const auto driver = next(line, '\t');
  const auto method = next(line, '\t');
  if (!card || !driver || !method || card->empty()) return std::nullopt;
  SuspendAnswer answer{std::string(*card), std::string(*driver), methodOf(*method),
                       std::string(line)};
  const bool whole = answer.method ? line.empty() : *method == kNone && !line.empty();
  return whole ? std::optional(answer) : std::nullopt;
}

Error corrupt(const std::string& what) {
  return fail(ErrorCode::Corrupt, "these are no answers of a self-test: " + what);
}

Error failed(const std::string& path) {
  return fail(ErrorCode::Unavailable, path + ": " + std::strerror(errno));
}

}  // namespace

std::string writeSuspendAnswers(const std::vector<SuspendAnswer>& answers,
                                const std::string& version) {
  std::string text = std::string(kHead) + version + "\n";
  for (const SuspendAnswer& answer : answers) {
    text += field(answer.card) + "\t" + field(answer.driver) + "\t";
    text += answer.method ? std::string(suspend::nameOf(*answer.method)) + "\t"
                          : std::string(kNone) + "\t" + field(answer.why);
    text += "\n";
  }
  return text;
}

Result<std::vector<SuspendAnswer>> parseSuspendAnswers(std::string_view text,
                                                       const std::string& version) {
  const auto head = next(text, '\n');
  if (!head || !head->starts_with(kHead)) return corrupt("another first line");
  if (head->substr(kHead.size()) != version) {
    return fail(ErrorCode::Unsupported,
                "qgpu " + std::string(head->substr(kHead.size())) + " found them");
  }
  std::vector<SuspendAnswer> answers;
  while (!text.empty()) {
    const auto line = next(text, '\n');
    const auto answer = line ? parseLine(*line) : std::nullopt;
    if (!answer) return corrupt("line " + std::to_string(answers.size() + 2));
    if (answers.size() == kCardsMax) return corrupt("too many cards");
    answers.push_back(*answer);
  }
  return answers;
}

Result<std::string> readKept(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return fail(ErrorCode::NotFound, "there is no " + path);
  if (!file) return failed(path);
  struct stat info {};
  const bool ours = ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
                    info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (!ours) {
    return fail(ErrorCode::Denied, path + " is not a file of this user that nobody else may write");
  }
  std::string text(kTextMax + 1, '\0');
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n < 0) return failed(path);
  if (static_cast<std::size_t>(n) > kTextMax) return corrupt(path + " is too long");
  text.resize(static_cast<std::size_t>(n));
  return text;
}

}  // namespace qgpu
