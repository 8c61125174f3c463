#pragma once
// The attach room of one life of the simulated manager: the product's own roster, gate port and
// pages, driven without sockets, pidfds and threads. Like AttachServer it hands the roster what
// happens and carries out what it orders; what reaches a descriptor of the daemon comes here after
// a seeded time, and what is asked of the kernel goes to the Machine. In place of the listener it
// keeps those who say a token that nobody has told yet.
//
// It is the platform of gate port and pages: their clock is the host's, their timers end with
// the manager, and each store of a gate word is told to the watch at the moment of that store. It
// also is the threads that take channels off NVIDIA cards, around the product's Holds
// (sim_driver.cc).
//
// Destroy it before Host::clearManager(): its timers are the host's.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/dispatcher.h"
#include "services/attach/attach_messages.h"
#include "services/attach/gate_port.h"
#include "services/attach/roster/roster.h"
#include "services/attach/sockets/token_book.h"
#include "services/cards/suspend/holds.h"
#include "tests/sim/guests/attach_run_dir.h"
#include "tests/sim/host.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

// What a process says to the manager.
struct SimHello {
  std::uint64_t serial = 0;  // of this connection; unique in a run
  std::uint32_t pid = 0;
  std::uint64_t start = 0;
  std::string token;
  bool reattach = false;
  std::uint32_t slot = 0;
  std::uint32_t incarnationSeen = 0;
  std::uint32_t freezeSignal = 0;
  Fd page;  // with `reattach`
};

// ... and what it is answered. `pages` is valid during the call only.
struct SimWelcome {
  std::uint64_t serial = 0;
  std::uint32_t pid = 0;
  bool refused = false;
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t life = 0;  // of the manager: whose doorbell it is
  std::uint32_t card = 0;  // the first of its task
  const TaskPages* pages = nullptr;
};

// Objects of the driver: their names, and those of channels (1, 2, ...), differ.
inline constexpr std::uint32_t kGroup = 1u << 30;
inline constexpr std::uint32_t clientOf(std::uint32_t pid) {
  return 1u << 31 | pid;
}

// What the kernel of the simulated machine does for a manager.
class Machine {
 public:
  virtual ~Machine() = default;
  // False once a pidfd of it would say dead. Also of owners, which are no tenants.
  virtual bool lives(std::uint32_t pid) const = 0;
  // The report page among the descriptors of a process, or none.
  virtual Fd reportOf(std::uint32_t pid) const = 0;
  // FUTEX_WAKE on the gate word of the page that this life handed out.
  virtual void wake(std::uint64_t task, std::uint32_t life, int waiters) = 0;
  virtual void stopThread(std::uint32_t pid, std::uint32_t tid) = 0;  // the freeze signal
  // NVIDIA's driver takes a channel off its card, or puts it back.
  virtual std::vector<suspend::Channel> channelsOf(std::uint32_t pid) const = 0;
  virtual bool hasChannel(const suspend::Channel& channel) const = 0;
  virtual void setChannel(const suspend::Channel& channel, bool off) = 0;
  virtual void undo(const suspend::Channel& channel) = 0;  // it puts it back, and tells nobody
  virtual void kill(std::uint32_t pid, bool hard) = 0;     // SIGKILL or SIGTERM
  // False: nobody listens on that connection any more.
  virtual bool answer(const SimWelcome& welcome) = 0;
};

struct SimAttachOptions : GuestTaskOptions {
  std::uint32_t life = 1;  // of the manager in this run
  std::uint32_t incarnation = 1;
  ActorId node = ActorId::kNobody;
  std::vector<ActorId> cards;                       // card actors by index
  schema::Suspend suspend = schema::Suspend::GATE;  // how these cards do
  std::uint32_t refusals = 0;  // permille of the driver's calls that take channels off ...
  std::uint32_t busy = 0;      // ... and of all that may pass
  std::uint32_t undoes = 0;    // permille of channels that it puts on by itself later
  Nanos helloWithin = seconds(2);
  Nanos recovery = millis(500);
  Nanos killGrace = seconds(2);
  GatePortOptions gate;
};

class SimAttach final : public Actor, private GatePlatform, private RosterPlatform {
 public:
  // `self` was reserved on the card loop. RunDir and Machine outlive it.
  SimAttach(Host& host, Watch& watch, ActorId self, RunDir& runDir, qgpu::sim::Machine& machine,
            SimAttachOptions options, Dice dice);
  SimAttach(const SimAttach&) = delete;
  SimAttach& operator=(const SimAttach&) = delete;
  ~SimAttach() override;

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  // --- from the machine: what reaches the manager's descriptors ---
  void hello(SimHello said);
  void died(std::uint32_t pid);   // a pidfd says so; of a tenant's process or of an owner
  void ring(std::uint64_t task);  // the doorbell that this life handed out
  // What a process says of its channels: these are there, or it put them back on itself.
  void channelsThere(std::uint32_t pid, bool again);
  void channelsOn(std::uint32_t pid);
  void channelMade(const suspend::Channel& channel);
  void channelEnded(std::uint32_t pid, std::uint32_t name);

  std::uint32_t life() const { return options_.life; }
  std::size_t tasks() const { return tasks_.size(); }  // with pages

 private:
  struct Hello {
    SimHello said;
    std::uint64_t task = 0;  // whose token it said
    bool waits = false;      // at the socket: nobody has told of that task yet
    TimerKey timer = 0;
  };
  struct Bell {
    std::function<void()> rang;  // empty: nobody watches
    bool rung = false;           // once: the descriptor stays readable, as nobody reads it
    TimerKey timer = 0;          // a ring is on its way
  };

  // What happens on a descriptor takes so long until the loop runs.
  static constexpr Nanos kHeardAfterMin = micros(2);
  static constexpr Nanos kHeardAfterMax = micros(60);

  // GatePlatform
  Nanos now() override { return host_.now(); }
  Nanos stored(std::uint64_t task, const qgpu_gate_page& page) override;
  void wake(std::uint64_t task, qgpu_gate_page& page, int waiters) override;
  TimerKey at(Nanos when, std::function<void()> work) override;
  void cancel(TimerKey key) override;
  void watchBell(GuestTask& task, std::function<void()> rang) override;
  void unwatchBell(GuestTask& task) override;
  bool lives(const qgpu::GuestProcess& process) override;
  bool isStopped(const qgpu::GuestProcess&) override { return false; }  // nobody stops one here
  bool stopThread(const qgpu::GuestProcess& process, std::uint32_t tid) override;
  void takeOff(const GuestTask& task) override;
  void takeOffAgain(const GuestTask& task) override;
  void putBack(const GuestTask& task) override;

  // RosterPlatform; a hello is named by its serial
  Result<Peer> identify(std::uint64_t hello) override;
  Status adoptPage(std::uint64_t hello) override;
  bool welcome(std::uint64_t hello, std::uint32_t slot) override;
  void attached(std::uint64_t hello, const AttachedEntry& who, std::uint32_t slot,
                bool isNew) override;
  void drop(std::uint64_t hello) override;
  void refuse(std::uint64_t hello, const std::string& reason) override;
  // Who says hello anew has closed the connection on which its answer was lost.
  bool connected(std::uint64_t, std::uint32_t) override { return false; }
  void gone(std::uint64_t task, std::uint32_t slot, Leaves how, bool last) override;
  std::uint32_t ownPid(const AttachedEntry& process) override { return process.pid; }
  FoundPage findPage(std::uint64_t task, const std::vector<AttachedEntry>& among) override;
  void cameBack(const AttachedEntry& process) override { std::erase(listed_, process); }
  void announce(std::uint64_t task) override { messages_.gateOpened(task); }
  void ending(std::uint64_t task) override { runDir_.recordEvicting(task); }
  void kill(std::uint64_t task, Kill how) override;
  void ended(std::uint64_t task) override;
  void askIncarnationAbove(std::uint32_t seen) override { messages_.incarnationSeen(seen); }

  // The thread of each card that calls the driver.
  struct DriverThread {
    suspend::Holds holds{suspend::SuspendMethod::kDisable};
    bool calls = false;
    TimerKey retry = 0;
  };
  DriverThread& driverOf(const GuestTask& task) { return drivers_.at(task.cards.front()); }
  void wakeDriver(DriverThread& driver);
  void drive(DriverThread& driver);
  void check(DriverThread& driver);
  bool happens(std::uint32_t permille);
  suspend::Outcome carryOut(const suspend::Order& order);
  void heard(const suspend::News& news);
  void note(std::uint32_t pid, Nanos most, std::function<void(GuestTask&, suspend::Holds&)> work);

  TimerKey soon(std::function<void()> work);
  void ringSoon(std::uint64_t task, Bell& bell);
  void onRing(std::uint64_t task);

  void known(schema::TaskKnown::Reader known);
  void closed(schema::TaskClosed::Reader closed);
  void endRecovery();
  void enter(std::uint64_t serial);
  void goIn(std::uint64_t serial, std::uint64_t task);
  std::vector<std::uint64_t> atTheListener() const;
  qgpu::GuestProcess* processOf(GuestTask& task, std::uint32_t pid) const;
  void onDeath(std::uint32_t pid);
  void tellOwnerGone(std::uint64_t task);
  void erase(std::uint64_t task);

  Host& host_;
  Watch& watch_;
  RunDir& runDir_;
  qgpu::sim::Machine& machine_;
  const SimAttachOptions options_;
  const std::vector<Card> cards_;
  Dice dice_;
  Outlet outlet_;
  AttachMessages messages_;
  std::map<std::uint64_t, Bell> bells_;  // by task
  TaskTable tasks_;
  std::map<std::uint64_t, std::uint32_t> owners_;  // pid of the process that a task is bound for
  std::vector<DriverThread> drivers_;              // by card
  std::map<std::uint32_t, Nanos> heardAt_;         // when a process's last note will have been
  GatePort port_;
  TokenBook book_;
  Roster roster_;
  bool nodeStarted_ = false;
  std::map<std::uint64_t, Hello> hellos_;      // without an answer, by serial
  std::vector<AttachedEntry> listed_;          // by an earlier manager, and not back yet
  std::map<std::uint64_t, TimerKey> killing_;  // of the SIGKILL, by task
};

}  // namespace qgpu::sim
