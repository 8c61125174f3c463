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

bool hasEvent(const Answer& line, simdjson::dom::element& event) {
  return line.root()["event"].get(event) == simdjson::SUCCESS;
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
