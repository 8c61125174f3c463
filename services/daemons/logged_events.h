#pragma once
// What the node actor tells as events, in the log of its manager: who reads the journal finds the
// life of a task there, by its number or its name, beside what the manager itself has to say.
//
// It is one more watcher, on the main loop. Where it lags, events are passed over, and that is
// said; `qgpuctl events` has them.

#include <kj/async.h>
#include <map>
#include <string>

#include "runtime/log.h"
#include "services/api/commands/node_actor_client.h"

namespace qgpu {

class LoggedEvents final : private kj::TaskSet::ErrorHandler {
 public:
  // Both outlive this.
  LoggedEvents(NodeActorClient& actor, Log& log) : actor_(actor), log_(log), tasks_(*this) {}
  LoggedEvents(const LoggedEvents&) = delete;
  LoggedEvents& operator=(const LoggedEvents&) = delete;
  ~LoggedEvents() noexcept = default;

  void start() { tasks_.add(follow()); }

 private:
  using Events = Feed<NodeApi>;

  kj::Promise<void> follow();
  kj::Promise<void> tell(kj::Own<Events> events);
  kj::Promise<void> learnNames();
  void write(schema::Event::Reader event);
  void taskFailed(kj::Exception&& exception) override;

  NodeActorClient& actor_;
  Log& log_;
  std::map<std::uint64_t, std::string> names_;  // of tasks that live
  kj::TaskSet tasks_;                           // last
};

}  // namespace qgpu
