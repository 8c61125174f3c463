#pragma once
// Which events a person wants to see. Pure: events in their order in, yes or no out. A task that is
// over is known by its name too, as long as the event that began it is told.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/ctl/options.h"

namespace qgpu::ctl {

class EventFilter {
 public:
  // `nowUnixMs`: from which an age counts back.
  EventFilter(const EventOptions& options, std::int64_t nowUnixMs);

  // What the daemon lists, so that what runs has its name, and a card all of its names.
  void learn(Value tasks, Value cards);
  // Events come in their order.
  bool shows(Value event);
  // A sentence where nothing that is listed, and no event so far, is of the task or card that was
  // asked for; empty where that is known, or nothing was listed.
  std::string unknown() const;

 private:
  bool isOfTask(Value event);
  bool isOnCard(std::string_view where);

  const EventOptions& options_;
  std::uint64_t fromUnixMs_ = 0;
  std::set<std::uint64_t> tasks_;  // by number, or all that were called so
  std::set<std::string> cards_;
  bool learned_ = false;
  bool taskSeen_ = false;
  bool cardSeen_ = false;
  std::vector<std::string> taskNames_;  // for who mistyped one
  std::vector<std::string> cardNames_;
};

}  // namespace qgpu::ctl
