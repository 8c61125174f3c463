#pragma once
// The way from the attach room to the threads that take tasks' channels off NVIDIA cards
// (services/cards/suspend): one for each card that suspends by `rm`. Guests' notes, holds and
// releases go there; what became of them comes back on the card loop. A card whose driver can't be
// reached suspends by `gate`, and says why.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/loop.h"
#include "services/attach/pages/guest_task.h"
#include "services/cards/cards.h"
#include "services/cards/suspend/suspender.h"

namespace qgpu {

struct SuspendersOptions {
  std::function<Result<std::unique_ptr<suspend::Calls>>(const Card&)> open;  // empty: the driver
  std::string probe;      // qgpu-suspend-probe, for a card in doubt; empty: doubt is enough
  bool realtime = false;  // the threads ask for a priority like the card loop's
  std::function<void(const Card&)> lost;  // on the loop: the card suspends by `gate` from now on
};

// AttachPort has one; it is called on the card loop. Each method returns at once: what it asks is
// done by the card's thread.
class Suspenders {
 public:
  // `cards` by index, changed where one falls to `gate`. `news` comes on the loop.
  using OnNews = std::function<void(std::uint32_t card, const suspend::News&)>;
  Suspenders(Loop& loop, std::vector<Card>& cards, SuspendersOptions options, OnNews news);
  Suspenders(const Suspenders&) = delete;
  Suspenders& operator=(const Suspenders&) = delete;
  ~Suspenders();  // all at the same time: see Suspender

  // Of tasks whose card has such a thread; of others nothing happens.
  void hold(const GuestTask& task);  // under its gate's epoch
  void release(const GuestTask& task);
  void again(const GuestTask& task);  // what is held may be on the card all the same
  // A process of the task came or went: its channels are named by notes in between.
  void attached(const GuestTask& task, const GuestProcess& process);
  void gone(const GuestTask& task, const GuestProcess& process);
  void removed(const GuestTask& task);  // its processes are gone, or live on without us
  // False: no such note.
  bool noted(const GuestTask& task, const GuestProcess& process, const qgpu_note& note);

 private:
  suspend::Suspender* of(const GuestTask& task) const;

  Loop& loop_;
  const OnNews news_;
  // What the threads post may outlive this on the loop.
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::vector<std::unique_ptr<suspend::Suspender>> cards_;  // by index; null: not by `rm`
};

}  // namespace qgpu
