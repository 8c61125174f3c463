#pragma once
// `qgpuctl top`: who has the cards, now. On a terminal a picture that is renewed in place; into a
// pipe, one plain picture after the other.

#include <cstdint>
#include <map>
#include <string>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/options.h"

namespace qgpu::ctl {

// Counters of two pictures become rates. Pure: answers and times in, text out.
class TopView {
 public:
  explicit TopView(Output output = Output::Table) : wide_(output == Output::Wide) {}

  // The daemon's answers to status, cards and tasks at time `at`.
  std::string picture(const Answer& status, const Answer& cardsNow, const Answer& tasksNow,
                      Nanos at);

 private:
  struct Counters {
    std::uint64_t used = 0;
    std::uint64_t online = 0;
    std::uint64_t launches = 0;
  };
  std::string cards(simdjson::dom::element root, Nanos elapsed);
  std::string tasks(simdjson::dom::element root, Nanos elapsed);

  const bool wide_;  // whole ids of cards
  CardNames names_;
  std::map<std::string, Counters> cardsBefore_;
  std::map<std::uint64_t, Counters> tasksBefore_;
  Nanos before_{};
};

// The exit status.
int top(const Options& options);

}  // namespace qgpu::ctl
