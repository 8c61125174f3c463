#pragma once
// How long the two ends of a link between scheduler and node wait for each other, and how much they
// hold meanwhile. The simulator plays both ends by these, so nothing here knows of KJ.

#include <cstddef>

#include "runtime/units.h"

namespace qgpu {

// The scheduler's end, see links.h.
struct LinksLimits {
  std::size_t linksMax = 16'384;
  std::size_t unsentWordsMax = 512 * 1024;      // of one link, that wait for the network
  std::size_t heldWordsMax = 16 * 1024 * 1024;  // of all, that wait for the scheduler's mailbox
  Nanos patience = seconds(10);                 // for which they wait before their link is ended
  Nanos retry = millis(1);                      // of a full mailbox
  Nanos silence = seconds(60);                  // without a message of its member a link is ended
  Nanos sweep = seconds(5);                     // how often that is looked at
};

// The node's end, see scheduler_link.h.
struct SchedulerLinkTimes {
  Nanos connectDeadline = seconds(5);  // to be joined, name look-up and TLS included
  Nanos pauseMin = millis(100);        // after a round over all addresses; doubled each round
  Nanos pauseMax = seconds(5);
  Nanos served = seconds(1);    // by a scheduler that did for so long, pauses are short again
  Nanos silence = seconds(20);  // without a message of the scheduler: the connection is dead
};

}  // namespace qgpu
