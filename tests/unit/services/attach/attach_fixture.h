#pragma once
// The attach room on a real loop in a folder of its own, with recorders in place of the node, card
// and task actors, and child processes as tenants. Conditions are waited for through the loop.

#include <cstdio>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <signal.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "runtime/dispatcher.h"
#include "runtime/fd.h"
#include "services/attach/attach_port.h"
#include "services/attach/testing/guest_client.h"
#include "services/wire/paging.h"
#include "tests/testing/forked_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu {

// Of a task's memory, as its card hears of it.
struct PagedHeard {
  struct Process {
    std::uint32_t process = 0, epoch = 0, answer = 0;
    std::uint64_t out = 0, need = 0, needSince = 0;
  };
  std::uint64_t firm = 0, held = 0, out = 0, more = 0, limitOrder = 0;
  std::vector<Process> processes;
};

// One message as a recorder kept it.
struct Heard {
  schema::Envelope::Which which{};
  std::uint64_t task = 0;
  std::uint32_t epoch = 0;
  Nanos at{0};
  std::uint32_t pid = 0;
  std::uint32_t slot = 0;
  schema::Settled::How how{};
  bool last = false;
  std::uint64_t memBytes = 0;
  std::uint64_t launches = 0;
  std::uint32_t incarnation = 0;
  PagedHeard paged;
  std::string text;
  Nanos heardAt{0};
};

class Recorder final : public Actor {
 public:
  void handle(schema::Envelope::Reader message, Turn& turn) override;
  std::size_t count(schema::Envelope::Which which, std::uint64_t task) const;
  const Heard* last(schema::Envelope::Which which, std::uint64_t task) const;
  std::vector<Heard> heard;
};

using Child = testing::ForkedProcess;  // a tenant's process

class AttachTest : public ::testing::Test {
 protected:
  AttachTest();
  ~AttachTest() override;

  // Starts (again) a manager; the folder stays.
  void start(schema::Suspend suspend = schema::Suspend::GATE);
  void stop();
  // Binds a task as the node does and waits for its pages. Its token is tokenOf(id).
  void bind(std::uint64_t id, schema::TaskClass taskClass = schema::TaskClass::ORDINARY,
            Bytes quota = mebibytes(64));
  void tellTask(std::uint64_t id, schema::TaskClass taskClass, Bytes quota,
                std::uint32_t ownerPid = 0, std::uint64_t ownerStart = 0);
  void close(std::uint64_t id, bool kill);
  std::string cardId = "sim-0";
  std::string backend = "sim";  // of the card, at the next start
  // Of each card, at the next start.
  std::vector<std::uint32_t> layoutsSeen = {0};
  bool doorApart = false;  // on a loop of its own, at the next start
  // What a task is bound to from now on: the cards in turn, said so many times.
  unsigned cardsOfTasks = 1;
  Bytes pageableOfTasks{0};
  // The next orders are those of another card, whose epochs are its own.
  void otherCard() { epoch_ = 0; }
  static std::string tokenOf(std::uint64_t id);

  std::uint32_t order(std::uint64_t id, schema::GateOrder::Order order, bool notify = false,
                      bool contended = false, Nanos cause = Nanos(0), Nanos patience = Nanos(0));
  std::uint32_t open(std::uint64_t id, bool notify = false, bool contended = false) {
    return order(id, schema::GateOrder::Order::OPEN, notify, contended);
  }
  std::uint32_t hold(std::uint64_t id) { return order(id, schema::GateOrder::Order::HOLD); }

  // The card's orders about memory.
  void watch(std::uint64_t id);
  void tellWord(std::uint64_t id, paging::Word word);
  void tellLimit(std::uint64_t id, Bytes limit, std::uint64_t number);

  // What is in flight may run on for `patience` first; hasten() ends that of the last order.
  std::uint32_t holdPatiently(std::uint64_t id, Nanos patience) {
    return order(id, schema::GateOrder::Order::HOLD, false, false, Nanos(0), patience);
  }
  void hasten(std::uint64_t id, Nanos cause) {
    --epoch_;
    order(id, schema::GateOrder::Order::HASTEN, false, false, cause);
  }

  // Turns the loop until `condition` holds; fails the test after a generous limit.
  bool until(const std::function<bool()>& condition);
  void turns(int count);
  // The CPU time that the card loop takes while it runs on a thread of its own; the last that is
  // done with this manager.
  Nanos cardLoopTimeDuring(const std::function<void()>& meanwhile);
  void turnClient();
  // A connection to the manager on which nothing was said; none: it takes none.
  Fd connectRaw() const;
  // Attaches this process itself.
  Result<GuestClient> attachSelf(std::uint64_t id);
  Result<GuestClient> attachSelf(const qgpu_hello& hello, int page = -1, bool obeysAtOnce = true);
  // Says hello again for a process of this test that has `client`'s page and slot; it obeys at once
  // or when it is told to.
  Result<GuestClient> returnSelf(std::uint64_t id, const GuestClient& client,
                                 bool obeysAtOnce = true);
  // The node's answer to incarnationSeen.
  void tellIncarnation(std::uint32_t value);

  const std::string& folder() const { return folder_.path(); }
  std::string socket() const { return folder_ / "attach.sock"; }
  AttachPort& room() { return *room_; }
  // Connections that said hello and have no answer yet, and with them those that said nothing.
  std::size_t waitingHellos() const {
    return room_->listener().waiting() + room_->server().waitingHellos();
  }
  std::size_t pendingHellos() const { return room_->listener().silent() + waitingHellos(); }

  bool nodeStarts = true;  // and says so, as start() ends; else tellIncarnation() does
  AttachServerOptions serverOptions;
  AttachListenerOptions listenerOptions;
  GatePortOptions gateOptions;
  SuspendersOptions suspendOptions;
  UnheldOptions unheldOptions;
  Recorder node, card, task;

 private:
  struct Machine;
  const testing::TempFolder folder_{"attach"};
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<AttachPort> room_;
  std::uint32_t epoch_ = 0;
};

}  // namespace qgpu
