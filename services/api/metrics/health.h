#pragma once
// Whether a daemon lives: its actors are asked again and again, the loops that it has beside its
// main loop are looked at (loop_beat.h), and what was found is what /healthz says and what lets the
// service manager's watchdog be fed. So asking costs nothing, however often somebody asks, and a
// loop that hangs is named while the main loop lives. A main loop that hangs answers nobody and
// feeds no watchdog.

#include <functional>
#include <kj/async.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/loop_beat.h"
#include "runtime/result.h"

namespace qgpu {

// Each daemon has one, on its main loop.
class Health final : private kj::TaskSet::ErrorHandler {
 public:
  // A loop or an actor that is silent for longer is not well.
  static constexpr Nanos kSilentMax = seconds(10);

  // What its store says, "ok" where it works; a failure: the actors do not answer.
  using AskStorage = std::function<kj::Promise<Result<std::string>>()>;
  // A loop beside the main one.
  struct Watched {
    std::string name;  // "card loop"
    const LoopBeat& beat;
  };
  struct Times {
    Nanos every = LoopBeat::kEvery;
    Nanos silentMax = kSilentMax;
  };

  // All outlive it, and it looks until it ends. `onWell` is called at each look that finds all
  // well, beside the main loop.
  Health(AskStorage ask, std::vector<Watched> watched, kj::Timer& timer,
         std::function<void()> onWell, Times times);
  Health(AskStorage ask, std::vector<Watched> watched, kj::Timer& timer,
         std::function<void()> onWell = nullptr)
      : Health(std::move(ask), std::move(watched), timer, std::move(onWell), Times()) {}

  // Empty while all is well; else a line for each that is not.
  std::string trouble() const;

 private:
  kj::Promise<void> look();
  std::string silence() const;
  void taskFailed(kj::Exception&& exception) override;

  const AskStorage ask_;
  const std::vector<Watched> watched_;
  kj::Timer& timer_;
  const std::function<void()> onWell_;
  const Times times_;
  Nanos answeredAt_ = monotonicNow();
  std::string storage_ = "ok";
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
