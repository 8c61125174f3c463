#pragma once
// Carries out the card actors' orders on gate pages, and tells them what the report pages say.
//
// It is an adapter on the card loop: orders come in by order(), news leave on the control lane. It
// looks at a task when its doorbell rings, after every store of a gate word (HAZARDS 5), and by
// timer only while there is something to see: an open gate that must not notify, a hold that
// settles, channels that are off with work in flight, a doorbell that was disarmed for ringing too
// often (HAZARDS 1). An idle manager has one timer, the heartbeat, and that only while tasks exist.
//
// Kept here: A3 and A11 as far as the outside goes (death is told as OWNER_DIED says it), A10
// (answers repeat the epoch of the order), C7 (a page harms its owner alone).

#include <atomic>
#include <cstdint>
#include <functional>

#include "actors/base/event_kinds.h"
#include "runtime/dispatcher.h"
#include "runtime/units.h"
#include "services/attach/pages/guest_task.h"
#include "services/attach/pages/platform.h"
#include "services/attach/paging_news.h"

namespace qgpu {

struct GatePortOptions {
  // Between looks at an open gate with work behind it. Its doorbell tells when the last of it
  // ended; a look sees what rings nothing, such as a death.
  Nanos busyEvery = millis(4);
  Nanos untoldEvery = millis(2);   // beside others, where the end of its work does not ring
  Nanos settleFirst = micros(30);  // after a hold; doubles up to settleEvery
  Nanos settleEvery = micros(250);
  Nanos lateAfter = millis(10);  // a hold that takes longer is looked at every lateFirst ...
  Nanos lateFirst = millis(2);
  Nanos lateEvery = millis(10);  // ... and after a second every lateEvery
  // Launches wait at a shut gate and nothing in flight retires for so long: what runs may wait for
  // what they launch, so it has another turn (HAZARDS 3). Twice as long each time, up to the
  // second, until work retires.
  Nanos stuckAfter = seconds(2);
  Nanos stuckAfterMax = seconds(32);
  Nanos heldEvery = millis(100);  // a task whose channels are off, with work in flight
  Nanos heartbeatEvery = seconds(1);
  // All processes of a task are stopped for so long, by a signal, a debugger or with their cgroup,
  // with work under way: it would be given turns in which nothing runs (HAZARDS 4).
  Nanos stoppedAfter = seconds(60);
  // No process of a task has attached for so long: it runs none, or without the library.
  Nanos unattachedAfter = seconds(60);
  Nanos useEvery = millis(250);      // between two `used` of one task
  Nanos refusedEvery = seconds(10);  // between two words to the node that memory was refused
  ActorId node = ActorId::kNobody;   // who hears these; nobody: they are not said
  std::uint32_t ringsMax = 1'000;    // of one doorbell in `ringWindow`
  Nanos ringWindow = seconds(1);
};

struct GatePortCounters {
  std::uint64_t orders = 0;
  std::uint64_t rings = 0;
  std::uint64_t samples = 0;
  std::uint64_t freezeSignals = 0;
  std::uint64_t freezeFailed = 0;  // signals that could not be sent
  std::uint64_t disarmed = 0;
};

class GatePort {
 public:
  GatePort(GatePlatform& around, Outlet& outlet, TaskTable& tasks, GatePortOptions options);
  GatePort(const GatePort&) = delete;
  GatePort& operator=(const GatePort&) = delete;
  ~GatePort();

  // --- from card actors; an order for an unknown task changes nothing, and none opens the gate of
  // a closed one ---
  void order(schema::GateOrder::Reader order, ActorId from);

  void pagingOrder(schema::PagingOrder::Reader order, ActorId from) { paging_.order(order, from); }

  // --- from the attach server ---
  void added(GuestTask& task);    // pages exist; its doorbell counts from now on
  void removed(GuestTask& task);  // before the task is destroyed
  void processAttached(GuestTask& task);
  void processGone(GuestTask& task);  // its slot is free already
  void close(GuestTask& task);        // launches fail from now on

  // --- of takeOff() ---
  // A process of it, which told of none before it may be, has told of channels: the driver's thread
  // knows them.
  void channelsTold(GuestTask& task, GuestProcess& process);
  // Nothing of it can run any more, since `at`; said of the takeOff() with that number (`ask`).
  void stopped(GuestTask& task, std::uint32_t ask, Nanos at);
  // Its channels can't be taken off: it is held by its gate from now on.
  void doubted(GuestTask& task, const std::string& why);

  // Whom a ring is told after the port has looked; nobody: an empty function.
  void onRing(std::function<void()> heard) { heard_ = std::move(heard); }

  // Tells the task actor what its processes use, even if nothing changed.
  void tellUse(GuestTask& task);

  GatePlatform& platform() { return around_; }
  const GatePortCounters& counters() const { return counters_; }
  // Tasks of which no process attached in time. From any thread.
  std::uint64_t unattached() const { return unattached_.load(std::memory_order_relaxed); }

 private:
  void store(GuestTask& task);
  void hasten(GuestTask& task, std::uint32_t epoch);
  void stopWork(GuestTask& task);
  void takeOff(GuestTask& task);
  void stopReturned(GuestTask& task);
  void tellDone(const GuestTask& task, std::uint64_t causeNs);
  void thaw(GuestTask& task);
  void letRun(GuestTask& task);
  bool hasUnseenWork(GuestTask& task) const;
  void freezeThreads(GuestTask& task);
  void ring(GuestTask& task);
  void arm(GuestTask& task);
  void look(GuestTask& task, bool rang = false);
  void tellDeath(GuestTask& task, Nanos now);
  void tellWork(GuestTask& task, const GateSample& sample, Nanos now);
  void keepOff(GuestTask& task, const GateSample& sample, Nanos now);
  void tellSettled(GuestTask& task, const GateSample& sample, Nanos now);
  void tellUseIfChanged(GuestTask& task, Nanos now);
  void sendUse(GuestTask& task, const UseSample& use, Nanos now);
  SendResult tellNode(const GuestTask& task, EventKind kind, const std::string& text);
  void tellRefused(GuestTask& task, std::uint64_t refused, Nanos now);
  void judgeStopped(GuestTask& task, Nanos now);
  void judgeUnattached(GuestTask& task, Nanos now);
  void busy(GuestTask& task, const GateSample& sample, Nanos since);
  void quiet(GuestTask& task, Nanos since);
  void settled(GuestTask& task, schema::Settled::How how, Nanos at);
  bool isStuck(const GuestTask& task, const GateSample& sample, Nanos now) const;
  Nanos nextLook(const GuestTask& task, const GateSample& sample, Nanos now) const;
  void schedule(GuestTask& task, Nanos delay, Nanos now);
  void beat();
  void beatAgain(Nanos now);

  GatePlatform& around_;
  Outlet& outlet_;
  TaskTable& tasks_;
  const GatePortOptions options_;
  GatePlatform::TimerKey heartbeat_ = 0;
  PagingNews paging_;
  std::function<void()> heard_;
  GatePortCounters counters_;
  std::atomic<std::uint64_t> unattached_{0};
};

}  // namespace qgpu
