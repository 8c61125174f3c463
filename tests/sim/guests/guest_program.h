#pragma once
// One process of a tenant with libqgpu in it: its threads launch kernels through the gate, its
// driver runs them one after the other, its helper threads retire them and keep the tie to the
// manager. Each step is the library's (services/guest), on pages that this process has mapped, and
// some steps are interrupted half-way, as threads are.
//
// guest_program.cc: its life; guest_link.cc: the tie to the manager; guest_gate.cc: gate and
// window; guest_work.cc: kernels, their retirement, freezing; guest_memory.cc: memory and vices.

#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tests/sim/guests/guest.h"

namespace qgpu::sim {

class Program {
 public:
  Program(Tenants& home, Tenants::Task& task, std::uint32_t pid, const Plan& plan, Dice dice);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::uint32_t pid() const { return pid_; }
  Tenants::Task& task() const { return task_; }
  bool lives() const { return state_ != State::Gone; }  // as a pidfd has it
  bool isLeftOff() const;  // its gate is open, and what could run is off the card
  std::string text() const;
  Fd report() const;  // a descriptor of the report page that it has, or none

  // --- from the machine ---
  bool answered(const SimWelcome& welcome);
  void connectionLost();
  void woken(std::uint32_t thread);      // by a FUTEX_WAKE
  void signalled(std::uint32_t tid);     // freeze
  void undoChannel(std::uint32_t name);  // the driver puts it back by itself
  bool hasChannel(std::uint32_t name) const { return !over() && channels_.contains(name); }
  void setChannel(std::uint32_t name, bool off);  // that it has
  std::vector<suspend::Channel> channels() const;
  void killed(bool hard);
  void calm();

 private:
  enum class State : std::uint8_t { Starting, Attaching, Attached, Dead, Gone };
  // What a thread of the host does next, when its time has come.
  enum class Do : std::uint8_t {
    Connect,
    GiveUpHello,
    Adopt,
    Link,
    Launch,
    Admit,
    Wait,
    AdmitAgain,
    Synced,
    Reap,
    Parked,
    TellIdle,
    Context,
    Memory,
    Reserve,
    ViceBegins,
    ViceEnds,
    Scribble,
    Storm,
    Exit,
    Terminate,
    OwnerWord,
    MemoryGone,
    KernelEnd,
    Freeze,
    Frozen,
  };
  enum class At : std::uint8_t { Rest, Launching, Gate, Window, Sync, Over };

  struct Thread {
    At at = At::Rest;
    bool waits = false;  // counted in `waiting`
    bool told = false;   // rung for the shut gate since then
    bool waitedAtGate = false;
    bool force = false;   // the window was waited for long enough
    bool counted = true;  // in `admitted`, for the launch that is on its way
    Nanos patienceFrom{0};
    std::uint64_t patienceRetired = 0;
    std::uint64_t cost = 0;  // of the window
    std::uint32_t inFlight = 0;
    std::uint32_t left = 0;  // of its burst
    Host::Key timer = 0;
  };
  enum class Freezing : std::uint8_t { Runs, Signalled, Frozen };
  struct Driver {
    Freezing is = Freezing::Runs;
    bool again = false;  // a signal came while it was stopped
    Host::Key timer = 0;
  };
  struct Kernel {
    Nanos left{0};
    Nanos length{0};
    std::uint64_t cost = 0;
    std::uint32_t thread = 0;
    std::uint32_t channel = 0;
    bool started = false;
    bool blocked = false;  // waits for an event that the thread's next launch sets
    bool counted = true;
  };
  struct Adoption {  // an answer that is on its way
    std::uint64_t serial = 0;
    std::uint32_t slot = 0, incarnation = 0, life = 0, card = 0;
    GateMap* gate = nullptr;
    ReportMap* report = nullptr;
    bool again = false;
  };
  struct Reserving {  // of memory: added, not yet looked at
    std::int64_t bytes = 0;
    int tries = 0;
  };
  static constexpr std::uint32_t kThreadsMax = 3, kDriversMax = 3, kKernelsMax = 64;
  static constexpr std::uint32_t kFirstDriver = 8;  // thread numbers of drivers at the futex

  // Life.
  Host::Key later(Nanos delay, Do what, std::uint32_t arg = 0);
  void on(Do what, std::uint32_t arg);
  void onHost(Do what, std::uint32_t arg);
  void onMachine(Do what, std::uint32_t arg);
  void tell(GuestNews::Kind kind, std::int64_t amount = 0);
  void exitSoon(Nanos min, Nanos max);
  void die();
  void ownerWord();
  void memoryGone();
  void ring();
  Nanos now() const { return home_.host_.now(); }
  bool over() const { return state_ == State::Dead || state_ == State::Gone; }
  bool silent() const { return active_ && plan_.vice == Vice::Silent; }
  bool races() { return dice_.below(100) < plan_.racesPercent; }

  // The tie.
  void connect();
  void retryLater(Nanos most);
  Nanos linkTick() const;
  void adopt();
  void begin();
  void link();
  void linkIn(Nanos delay);
  bool managerLost() const;

  // The gate.
  const qgpu_gate_page& gatePage() const { return gate_->page(); }
  qgpu_slot& slot() const { return report_->page().slot[slotIndex_]; }
  std::uint32_t gateWord() const;
  bool passes(std::uint32_t gate) const;
  bool obeys() const { return !(active_ && (plan_.vice == Vice::Ignores || hides())); }
  bool hides() const { return active_ && plan_.vice == Vice::Hides; }
  bool windowApplies(std::uint32_t gate) const;
  void launch(std::uint32_t i);
  void admit(std::uint32_t i);
  void wait(std::uint32_t i);
  void waitAtGate(std::uint32_t i);
  void admitAgain(std::uint32_t i);
  void waitAtWindow(std::uint32_t i);
  bool takeWindow(std::uint64_t cost);
  bool patienceOver(Thread& thread);
  std::uint64_t windowSum() const;
  std::uint64_t windowCost() const;
  void notifyIfAsked(std::uint32_t gate, Nanos entry);
  void stopWaiting(Thread& thread);
  void pass(std::uint32_t i, std::uint64_t cost);
  void failLaunch(std::uint32_t i);
  void goOn(std::uint32_t i);
  std::uint32_t waiting() const;

  // Work.
  Kernel& kernel(std::uint32_t i) { return kernels_[(first_ + i) % kKernelsMax]; }
  void runNext();
  void kernelEnd();
  bool choose();
  void stopKernel();
  bool stands() const;
  bool isOff(const Kernel& kernel) const { return channels_.at(kernel.channel) != 0; }
  suspend::Channel channelOf(std::uint32_t name) const;
  void putChannelsOn();
  void context();
  void makeChannel();
  void endChannel();
  bool allFrozen() const;
  void freeze(std::uint32_t i);
  void frozenLooks(std::uint32_t i);
  bool mustStop(std::uint32_t gate) const;
  void reapSoon();
  void reap();
  void retire(std::uint64_t count, std::uint64_t cost);
  void tellIdle();
  void unblock(std::uint32_t i);

  // Memory and vices.
  void memory();
  void reserve();
  std::uint64_t sumOfBytes() const;
  void viceBegins();
  void viceEnds();
  void silenceEnds();
  void scribble();
  void scribbleField(qgpu_slot& target);
  std::uint64_t nonsense(std::uint64_t now);
  void storm();

  Tenants& home_;
  Tenants::Task& task_;
  const std::uint32_t pid_;
  const Plan plan_;
  Dice dice_;
  State state_ = State::Starting;
  bool exiting_ = false;
  bool termed_ = false;

  // The tie.
  bool connected_ = false;
  std::uint64_t helloSerial_ = 0;  // 0: no hello waits for its answer
  std::optional<Adoption> adoption_;
  Nanos backoff_ = millis(5);
  Nanos nextConnect_{0};
  Host::Key linkTimer_ = 0;
  Nanos startedAt_{0};
  Nanos attachedAt_{0};
  std::uint32_t incarnationSeen_ = 0;
  std::uint32_t doorbellLife_ = 0;
  std::uint32_t card_ = 0;
  std::uint32_t slotIndex_ = 0;
  bool began_ = false;
  bool orphan_ = false;
  bool online_ = false;
  GateMap* gate_ = nullptr;
  ReportMap* report_ = nullptr;

  // The gate.
  std::array<Thread, kThreadsMax> threads_;
  std::uint64_t launchesLeft_;
  std::optional<std::uint32_t> notifiedFor_;
  Nanos idleRungAt_{0};
  bool idleUntold_ = false;
  std::optional<Nanos> estimate_;

  // Work.
  std::array<Kernel, kKernelsMax> kernels_;
  std::uint32_t first_ = 0;
  std::uint32_t queued_ = 0;
  bool running_ = false;
  std::map<std::uint32_t, int> channels_;  // by name, how often they were taken off
  std::set<std::uint32_t> undone_;         // put back by the driver itself
  std::vector<std::uint32_t> context_;     // those of them that no kernel goes by
  std::uint32_t lastChannel_ = 0;
  Nanos ranFrom_{0};
  Host::Key kernelTimer_ = 0;
  std::array<Driver, kDriversMax> drivers_;
  std::uint64_t finished_ = 0;  // and not retired
  std::uint64_t finishedCost_ = 0;
  std::int64_t finishedNs_ = 0;
  bool reapComes_ = false;

  // Memory and vices.
  std::vector<std::int64_t> buffers_;
  std::optional<Reserving> reserving_;
  bool active_ = false;  // the vice
  bool toldLies_ = false;
  std::uint32_t stormsLeft_ = 0;
  struct Deferred {
    Do what;
    std::uint32_t arg;
  };
  std::vector<Deferred> deferred_;  // by silence
};

// Words that this process shares with others.
template <typename T>
T load(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}
template <typename T, typename V>
void store(T& word, V value) {
  std::atomic_ref<T>(word).store(static_cast<T>(value), std::memory_order_relaxed);
}
template <typename T, typename V>
T add(T& word, V value) {
  return std::atomic_ref<T>(word).fetch_add(static_cast<T>(value), std::memory_order_relaxed);
}
template <typename T, typename V>
T subtract(T& word, V value) {
  return std::atomic_ref<T>(word).fetch_sub(static_cast<T>(value), std::memory_order_relaxed);
}
inline std::uint64_t ns(Nanos t) {
  return static_cast<std::uint64_t>(t.value);
}

}  // namespace qgpu::sim
