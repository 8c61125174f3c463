#pragma once
// qgpu-manager put together: which actor lives on which loop, which socket leads to whom, what is
// opened in which order and closed in which. Nothing is decided here about tasks or cards.
//
//   main loop:  node actor, in a cluster its member actor and the link to the scheduler; admin
//               socket, RPC, HTTP; completions of the store thread
//   card loop:  card actors, task actors, attach server and gate port; real-time where allowed
//
// Everything that can be wrong is opened before anything serves, so that a bad flag or a second
// daemon is one line and exit code 2. Kept here: C8 (no turn after stop, every handle is closed).

#include <memory>
#include <string>

#include "runtime/log.h"
#include "runtime/result.h"
#include "services/cards/cards.h"
#include "services/daemons/options.h"

namespace qgpu {

class Manager {
 public:
  // Errors: what a person can mend (second daemon, database, address). Nothing serves then.
  // Blocks SIGTERM and SIGINT in this thread and those it starts; run() takes them.
  static Result<std::unique_ptr<Manager>> open(const ManagerOptions& options, CardsFound cards,
                                               Log& log);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Serves until SIGTERM or SIGINT.
  void run();

 private:
  struct Parts;
  explicit Manager(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;  // keeps KJ, SQLite and the loops out of this header
};

}  // namespace qgpu
