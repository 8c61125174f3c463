#include "services/ctl/answers/watch.h"

#include <sys/random.h>
#include <unistd.h>

namespace qgpu::ctl {
namespace {

constexpr Nanos kPauseMin = millis(100);  // before a lost daemon is looked for again
constexpr Nanos kPauseMax = seconds(5);

}  // namespace

bool startWatch(Asker& asker, Nanos limit) {
  const Result<Answer> line = asker.ask(askFor("watch"), limit);
  return line && line->status();
}

Value eventOf(const Answer& line) {
  return line.root()["event"];
}

void awaitEvent(Asker& watch, Nanos limit, const std::function<bool(Value)>& wanted) {
  while (true) {
    const Result<Answer> line = watch.nextLine(limit);
    if (!line || !line->status()) return;
    const Value event = eventOf(*line);
    if (event.exists() && wanted(event)) return;
  }
}

Result<Answer> eachEvent(Asker& asker, std::uint64_t& since, Nanos limit,
                         const std::function<void(Value)>& take) {
  while (true) {
    Result<Answer> answer = asker.ask(askFor("events", std::to_string(since)), limit);
    if (!answer || !answer->status()) return answer;
    const std::uint64_t before = since;
    for (const Value event : listOf(answer->root(), "events")) {
      if (numberOf(event, "seq") <= since) continue;
      since = numberOf(event, "seq");
      take(event);
    }
    if (since == before) return answer;
  }
}

Backoff newBackoff() {
  std::uint64_t seed = 0;
  static_cast<void>(::getrandom(&seed, sizeof seed, 0));  // any will do
  return {kPauseMin, kPauseMax, seed};
}

void rest(Backoff& backoff) {
  ::usleep(static_cast<unsigned>(backoff.next() / micros(1)));
}

}  // namespace qgpu::ctl
