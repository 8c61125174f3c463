#include "services/ctl/submit.h"

#include <memory>

#include "services/ctl/answers/table.h"
#include "services/ctl/answers/watch.h"
#include "services/ctl/server.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kWatchLimit = seconds(10);
constexpr Nanos kNewsLimit = seconds(60);  // without news of a task it is asked for again

}  // namespace

std::uint64_t waitingTask(const Answer& answer) {
  return flagOf(answer.root(), "waiting") ? numberOf(answer.root(), "task") : 0;
}

bool isSettled(const Result<Answer>& answer) {
  if (!answer) return false;
  if (answer->status()) return true;
  switch (answer->status().error().code) {
    case ErrorCode::Overloaded:
    case ErrorCode::Unavailable:
    case ErrorCode::StandsBy:
    case ErrorCode::Corrupt:
    case ErrorCode::Internal:
      return false;
    default:
      return true;
  }
}

std::optional<std::uint64_t> taskOf(const Result<Answer>& answer) {
  if (!isSettled(answer)) return std::nullopt;
  return answer->status() ? numberOf(answer->root(), "task") : 0;
}

// The watch begins before the question, so that no news falls between.
Result<Answer> submitTask(const Options& options, const Ask& ask,
                          const std::function<void(const Answer&)>& waits) {
  Backoff backoff = newBackoff();
  bool waited = false;  // once it does, whoever is away or too busy is waited for as well
  while (true) {
    auto asker = reach(options);
    Client second(options.socket);  // an admin socket watches or answers, RPC does both
    Asker& watch = options.server.empty() || !asker ? second : **asker;
    const bool watched = options.wait && asker && startWatch(watch, kWatchLimit);
    Result<Answer> answer = asker ? (*asker)->ask(ask, kClusterLimit) : asker.error();
    const std::uint64_t task = answer ? waitingTask(*answer) : 0;
    const bool again = task != 0 || (waited && !isSettled(answer));
    waited = waited || task != 0;
    if (task != 0) waits(*answer);
    if (!options.wait || !again) return answer;
    if (task != 0 && watched) {
      backoff.reset();
      awaitEvent(watch, kNewsLimit, [&](Value event) { return numberOf(event, "task") == task; });
    } else {
      rest(backoff);
    }
  }
}

}  // namespace qgpu::ctl
