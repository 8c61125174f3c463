#include "services/cards/health.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <utility>

namespace qgpu {
namespace {

using Change = HealthChange::Kind;

constexpr struct {
  Change kind;
  const char* word;
} kWords[] = {
    {Change::Ill, "ill"},   {Change::Answers, "answers"}, {Change::ProgramFault, "program"},
    {Change::Note, "note"}, {Change::Blind, "blind"},     {Change::Sees, "sees"}};

}  // namespace

Result<HealthWatch> HealthWatch::start(const std::function<void(int out)>& run) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::Unavailable, std::string("pipe: ") + std::strerror(errno));
  }
  Result<SideProcess> child = SideProcess::start(ends, [&](int out) {
    ::signal(SIGPIPE, SIG_IGN);
    run(out);
  });
  if (!child) return child.error();
  return HealthWatch(std::move(*child));
}

std::string healthLine(const HealthChange& change) {
  std::string line = change.uuid + "\t";
  for (const auto& [kind, word] : kWords) {
    if (kind == change.kind) line += word;
  }
  return line + "\t" + change.why;
}

std::optional<HealthChange> parseHealthLine(const std::string& line) {
  const std::size_t uuidEnd = line.find('\t');
  if (uuidEnd == std::string::npos || uuidEnd == 0) return std::nullopt;
  const std::size_t wordEnd = line.find('\t', uuidEnd + 1);
  if (wordEnd == std::string::npos) return std::nullopt;
  const std::string said = line.substr(uuidEnd + 1, wordEnd - uuidEnd - 1);
  for (const auto& [kind, word] : kWords) {
    if (said == word) return HealthChange{line.substr(0, uuidEnd), kind, line.substr(wordEnd + 1)};
  }
  return std::nullopt;
}

}  // namespace qgpu
