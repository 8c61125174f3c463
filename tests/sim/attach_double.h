#pragma once
// The attach room of one life of the simulated manager: the product's own gate port and pages,
// and in place of the attach server's sockets and pidfds an actor that keeps the same protocol
// (head of schema/envelope.capnp): pages for each task, slots for processes, the recovery of
// HAZARDS 8, the incarnation of HAZARDS 23, the end of a task.
//
// It is the surroundings of gate port and pages: their clock is the host's, their timers end with
// the manager, a doorbell rings after a seeded time, and what they ask of the kernel goes to the
// Machine. Each store of a gate word is told to the watch at the moment of that store.
//
// Destroy it before Host::clearManager(): its timers are the host's.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/dispatcher.h"
#include "services/attach/gate_port.h"
#include "services/cards/suspend/holds.h"
#include "tests/sim/attach_run_dir.h"
#include "tests/sim/host.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

// What a process says to the manager.
struct SimHello {
  std::uint64_t serial = 0;        // of this connection; unique in a run
  std::uint32_t pid = 0;
  std::uint64_t start = 0;
  std::string token;
  bool reattach = false;
  std::uint32_t slot = 0;
  std::uint32_t incarnationSeen = 0;
  std::uint32_t freezeSignal = 0;
  Fd page;                         // with `reattach`
};

// ... and what it is answered. `pages` is valid during the call only.
struct SimWelcome {
  std::uint64_t serial = 0;
  std::uint32_t pid = 0;
  bool refused = false;
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t life = 0;          // of the manager: whose doorbell it is
  std::uint32_t card = 0;          // the first of its task
  const TaskPages* pages = nullptr;
};

// Objects of the driver: their names, and those of channels (1, 2, ...), differ.
inline constexpr std::uint32_t kGroup = 1u << 30;
inline constexpr std::uint32_t clientOf(std::uint32_t pid) { return 1u << 31 | pid; }

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
  virtual void stopThread(std::uint32_t pid, std::uint32_t tid) = 0;   // the freeze signal
  // NVIDIA's driver takes a channel off its card, or puts it back.
  virtual std::vector<suspend::Channel> channelsOf(std::uint32_t pid) const = 0;
  virtual bool hasChannel(const suspend::Channel& channel) const = 0;
  virtual void setChannel(const suspend::Channel& channel, bool off) = 0;
  virtual void undo(const suspend::Channel& channel) = 0;   // it puts it back, and tells nobody
  virtual void kill(std::uint32_t pid, bool hard) = 0;                 // SIGKILL or SIGTERM
  // False: nobody listens on that connection any more.
  virtual bool answer(const SimWelcome& welcome) = 0;
};

struct AttachDoubleOptions {
  std::uint32_t life = 1;               // of the manager in this run
  std::uint32_t incarnation = 1;
  ActorId node = ActorId::kNobody;
  std::vector<ActorId> cards;           // card actors by index
  qgpu_suspend suspend = QGPU_SUSPEND_GATE;   // how these cards do
  std::uint32_t refusals = 0;           // permille of the driver's calls that take channels off ...
  std::uint32_t busy = 0;               // ... and of all that may pass
  std::uint32_t undoes = 0;             // permille of channels that it puts on by itself later
  Nanos orphanGrace = seconds(5);
  Nanos window = millis(2);
  Nanos helloWithin = seconds(2);
  Nanos recovery = millis(500);
  Nanos killGrace = seconds(2);
  GatePortOptions gate;
};

class AttachDouble final : public Actor, private GateSurroundings {
 public:
  // `self` was reserved on the card loop; the time of recovery runs from here. RunDir and Machine
  // outlive it.
  AttachDouble(Host& host, Watch& watch, ActorId self, RunDir& runDir, Machine& machine,
               AttachDoubleOptions options, Dice dice);
  AttachDouble(const AttachDouble&) = delete;
  AttachDouble& operator=(const AttachDouble&) = delete;
  ~AttachDouble() override;

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  // --- from the machine: what reaches the manager's descriptors ---
  void hello(SimHello said);
  void died(std::uint32_t pid);         // a pidfd says so; of a tenant's process or of an owner
  void ring(std::uint64_t task);        // the doorbell that this life handed out
  // What a process says of its channels: these are there, or it put them back on itself.
  void channelsThere(std::uint32_t pid, bool again);
  void channelsOn(std::uint32_t pid);
  void channelMade(const suspend::Channel& channel);
  void channelEnded(std::uint32_t pid, std::uint32_t name);

  std::uint32_t life() const { return options_.life; }
  std::uint32_t incarnation() const { return incarnation_; }
  bool recovering() const { return recovering_; }
  // Tasks with pages, and processes attached to them.
  std::size_t tasks() const { return tasks_.size(); }
  std::size_t attached() const;
  const GatePort& gate() const { return port_; }
  const GuestTask* find(std::uint64_t task) const;

 private:
  struct Hello {
    SimHello said;
    std::uint64_t task = 0;   // whose token it said; 0: of none that is known
    bool waits = false;
    bool raises = false;
    TimerKey timer = 0;
  };
  struct Expected {           // attached under an earlier manager, and not come back yet
    AttachedEntry entry;
    std::uint32_t slot = QGPU_SLOTS;
  };
  struct Bell {
    std::function<void()> rang;   // empty: nobody watches
    bool rung = false;            // once: the descriptor stays readable, as nobody reads it
    TimerKey timer = 0;           // a ring is on its way
  };

  // GateSurroundings
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

  // The thread of each card that calls the driver.
  struct DriverThread {
    suspend::Holds holds{suspend::Rung::kDisable};
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
  void note(std::uint32_t pid, Nanos most,
            std::function<void(GuestTask&, suspend::Holds&)> work);

  TimerKey soon(std::function<void()> work);
  void ringSoon(std::uint64_t task, Bell& bell);
  void onRing(std::uint64_t task);

  // The node's words.
  void known(schema::TaskKnown::Reader known);
  Status makePages(schema::TaskKnown::Reader known);
  void closed(schema::TaskClosed::Reader closed);
  void chosen(std::uint32_t incarnation);
  void announceIfReady(GuestTask& task);
  void tellOwnerGone(std::uint64_t task);
  void signalAll(std::uint64_t task, bool hard);
  bool deserted(std::uint64_t task) const;
  void kill(std::uint64_t task);
  void eraseIfKilled(std::uint64_t task);
  void end(std::uint64_t task);
  void erase(std::uint64_t task);

  // Processes that come: attach_hellos.cc.
  void decide(std::uint64_t serial);
  GuestTask* byToken(const std::string& token) const;
  qgpu::GuestProcess* processOf(GuestTask& task, std::uint32_t pid) const;
  Status askIncarnationAbove(std::uint32_t seen);
  Result<std::uint32_t> giveSlot(Hello& hello, GuestTask& task);
  Result<std::uint32_t> giveSlotAgain(Hello& hello, GuestTask& task);
  void findReport(GuestTask& task);
  void keepSlotsOfExpected(GuestTask& task);
  void admit(const Hello& hello, GuestTask& task, std::uint32_t slot);
  void refuse(std::uint64_t serial);
  void drop(std::uint64_t serial);
  void forgetProcess(GuestTask& task, std::uint32_t slot);

  // After a restart.
  bool expects(std::uint64_t task) const;
  bool awaited(std::uint32_t card) const;
  void dropExpected(std::uint32_t pid);
  void recoveryMoved();

  Host& host_;
  Watch& watch_;
  RunDir& runDir_;
  Machine& machine_;
  const AttachDoubleOptions options_;
  Dice dice_;
  Outlet outlet_;
  std::map<std::uint64_t, Bell> bells_;   // by task
  TaskTable tasks_;
  std::map<std::uint64_t, std::uint32_t> owners_;   // pid of the process that a task is bound for
  std::vector<DriverThread> drivers_;               // by card
  std::map<std::uint32_t, Nanos> heardAt_;          // when a process's last note will have been
  GatePort port_;

  std::map<std::uint64_t, Hello> hellos_;
  std::vector<Expected> expected_;
  std::map<std::uint64_t, TimerKey> killing_;   // tasks whose processes were told to go
  bool recovering_ = true;
  bool moved_ = false;
  bool moving_ = false;
  std::uint32_t incarnation_;
  std::uint32_t incarnationAsked_ = 0;
};

}  // namespace qgpu::sim
