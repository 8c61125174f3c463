#pragma once
// The decision core of suspend=rm: which channels of one task are to be taken off the card's
// hardware and put back, in which calls to the driver, one call at a time. It exists apart from the
// calls so that its promises can be proven over every order of answers, deaths and late channels.
//
// It keeps: a task is told to be stopped only while every channel that is known was disabled and
// the disabling committed; what disables named, whatever was answered, is named by as many enables
// that the driver took, or is gone, before the task counts as free; after the first doubt nothing
// is disabled any more, and everything is enabled: at once, or where the task was stopped already,
// at its release, since others have the card. All of a task's channels go together: enables and
// disables are never mixed, except that a changed goal turns the order round.
//
// Channels that compute are disabled before channels that copy, in each step: an online task waits
// for the first alone, and its gate is open all the while. A task is reported as stopped only when
// its copies are off too. Reporting it earlier would let the next offline task begin a few calls
// sooner; but two tasks would then have the card at once, and the report would have to be taken
// back where the driver refuses to disable the copies.
//
// The driver enables channels by itself now and then (UVM does, around address spaces) and does not
// report it. So the channels of a stopped task are disabled again after kAgainFirst, then after
// twice as long each time up to kAgainMost, and when again() is called. Between these calls
// "stopped" means: as far as is known.
//
// The driver counts (580.159 on an H200 does): a channel that was disabled twice runs again after
// two enables, and a call that it refused for one channel's sake counts for the others. One enable
// too many changes nothing. So each channel is enabled as often as it may have been disabled, each
// once before any a second time. A task of which a channel was disabled kOffsMax times in one hold
// is in doubt.
//
// The driver serves one call at a time, so other programs wait while it serves ours. A call
// therefore names channels of at most kOwnersMax clients, since each client costs a look into its
// process, and of one client only where no hold waits for the call.
//
// Whether a channel belongs to the process that named it is checked as soon as it is named, so that
// a hold does not wait for the check. When a process dies, a channel that was proven to be its own
// may run on if another process keeps the file of the driver open. Such a channel is taken off the
// card for good; usually it is gone already, or goes within a moment. Some suspend methods need
// more than a disable, which only the dead process could do: where the channel is still there after
// kReapsMax looks, the task is in doubt.
//
// Pure: no clock, no I/O, no log. Times are the caller's.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/units.h"
#include "services/nvidia_abi/rm_controls.h"

namespace qgpu::suspend {

// A channel as its process named it to the driver. `client` and `channel` are its name.
struct Channel {
  std::uint32_t client = 0;
  std::uint32_t channel = 0;
  std::uint32_t group = 0;     // that it belongs to; 0: it stands alone
  std::uint32_t engine = 0;    // 1..8: graphics and compute, from 9 copies and video; 0: not known
  std::uint32_t process = 0;   // the caller's name for whose it is
  int fd = -1;                 // of its client's open file, in that process
  std::uint32_t device = ~0u;  // the driver's number of its card; ~0: not known
  bool proven = false;         // once it was found to be its process's own
  bool dead = false;           // its process is, which had proven it

  bool computes() const { return engine <= 8; }  // or may do so
};

// What takes running work off the card once its channels are disabled. Which one does is the
// driver's secret: the self-test tries them in this order.
enum class SuspendMethod : std::uint8_t {
  kDisable,            // nothing more
  kDisableRestart,     // the runlist is read anew
  kDisablePreempt,     // each group is preempted
  kSchedulingPreempt,  // only scheduling is disabled, then each group is preempted
};
inline constexpr SuspendMethod kSuspendMethods[] = {
    SuspendMethod::kDisable, SuspendMethod::kDisableRestart, SuspendMethod::kDisablePreempt,
    SuspendMethod::kSchedulingPreempt};
const char* nameOf(SuspendMethod method);

enum class Step : std::uint8_t { kDisable, kRestart, kPreempt, kEnable, kProve };

// One call. kPreempt names a channel of the group, kRestart one of the engine; a dead one is alone.
struct Order {
  Step step = Step::kEnable;
  std::vector<Channel> channels;
};

enum class Answer : std::uint8_t {
  kDone,
  kGone,    // some that were named are no more, or are not their process's: named beside
  kLater,   // it can't be done or asked now, and that may pass: the driver is busy, or we lack room
  kFailed,  // the driver refused it, of channels that their processes have
};

class ChannelSuspender {
 public:
  static constexpr std::size_t kChannelsMax = 512;  // of a task; more can't be held wholly
  static constexpr std::size_t kNamedMax = 64;      // in one call
  static constexpr std::size_t kOwnersMax = 8;  // of one call; an owner is a client of a process
  static constexpr int kTriesMax = 3;           // of one step that the driver refuses, in a row
  // Of disables in a row that met channels which had ended: a context that is torn down ends its
  // own one by one, and there are tenants who would do nothing else.
  static constexpr int kGonesMax = 64;
  // Of what may pass, and of an enable that failed; doubles. A doubt comes after kWaitsMax of them,
  // 127 ms; an enable goes on.
  static constexpr Nanos kRetryFirst = millis(1);
  static constexpr Nanos kRetryMax = millis(500);
  static constexpr int kWaitsMax = 7;
  static constexpr Nanos kAgainFirst = seconds(2);
  static constexpr Nanos kAgainMost = seconds(3'600);
  static constexpr int kOffsMax = rm::kDisablesMax;
  static constexpr Nanos kReapEvery = millis(100);
  static constexpr int kReapsMax = 10;
  static constexpr Nanos kProveEvery = millis(100);  // where it can't be asked now
  static constexpr int kProofsMax = 10;

  explicit ChannelSuspender(SuspendMethod method) : method_(method) {}

  // --- what is wanted ---
  void hold(Nanos now);
  void release(Nanos now);

  // --- what the task's processes do ---
  // `touched`: an earlier manager may have disabled it, nobody knows how often.
  void made(const Channel& channel, bool touched = false);
  // Names a channel, or all of a group or client.
  void ended(std::uint32_t client, std::uint32_t name);
  // Its process had the driver run it: what was disabled may run again.
  void scheduled(std::uint32_t client, std::uint32_t name);
  void processGone(std::uint32_t process);

  // Something may have put on what was taken off.
  void again();
  // It can't be held so: a process of it can't be reached, or the like.
  void doubt(std::string why);

  // The call that must be made now; none while one is under way or nothing is to be done.
  std::optional<Order> next(Nanos now);
  // What became of it. `gone` are left out of everything from now on.
  void answered(Answer answer, const std::vector<Channel>& gone, Nanos now);

  // Of a task without channels nothing is known.
  bool stopped() const { return holds() && !asked_ && !channels_.empty() && allOff(); }
  bool computingOff() const;  // so is all that computes, whatever copies do
  // Nothing of the living that we disabled is, or may be, disabled, and nothing of the dead may
  // run.
  bool free() const;
  bool has(std::uint32_t client, std::uint32_t channel) const;  // of a process that lives
  bool held() const { return wanted_; }
  bool doubted() const { return !doubt_.empty(); }
  const std::string& why() const { return doubt_; }
  // When next() is worth asking again though nothing happened; kNever: never.
  Nanos retryAt() const;
  std::size_t channels() const { return channels_.size(); }

 private:
  // kMaybe: a call named it and was not wholly done, or it was scheduled since it was disabled.
  enum class State : std::uint8_t { kOn, kMaybe, kOff };
  struct Entry {
    Channel channel;
    State state = State::kOn;
    int offs = 0;   // disables that the driver may have counted; none where it is on
    int taken = 0;  // of these, in this hold, that it took
    int given = 0;  // enables that it took since the release
    bool committed = false;
    bool named = false;  // in the call that is under way
    bool late = false;   // something happened to it since
    bool asked = false;  // whether it is its own
    bool stuck = false;  // its enable failed: not before retryAt_ again
  };
  using Name = std::pair<std::uint32_t, std::uint32_t>;

  Step commitStep() const {
    return method_ == SuspendMethod::kDisableRestart ? Step::kRestart : Step::kPreempt;
  }
  Name committedBy(const Channel& channel) const;
  template <typename Which>
  bool areOff(Which which) const;
  bool allOff() const;
  bool holds() const { return wanted_ && doubt_.empty(); }
  bool staysOff() const { return wanted_ && (doubt_.empty() || reached_); }
  void beginAnew();
  void maybeOn();
  std::optional<Order> ask(Step step, std::vector<Channel> channels);
  std::vector<Channel> chosen(bool disable) const;
  std::vector<Channel> toEnable(Nanos now);
  std::optional<Order> nextHeld(Nanos now);
  std::optional<Order> nextDetached(Nanos now);
  template <typename Which>
  bool any(Which which) const;
  std::optional<Channel> uncommitted() const;
  void forget(const std::vector<Channel>& gone);
  void noteStopped(Nanos now);
  void onNotTakenOff(Answer answer, const char* what, Nanos now);
  void onDisabled(Answer answer, bool someGone, Nanos now);
  void onReaped(Answer answer, Nanos now);
  void onProved(Answer answer, Nanos now);
  void onCommitted(Answer answer, bool someGone, Nanos now);
  void onEnabled(Answer answer, bool someGone, Nanos now);

  const SuspendMethod method_;
  std::map<Name, Entry> channels_;
  bool wanted_ = false;  // held
  std::optional<Order> asked_;
  std::string doubt_;
  // In a row, of what is wanted now: refused, met what had ended, waited.
  int tries_ = 0, gones_ = 0, waits_ = 0;
  bool reached_ = false;            // this hold was: the task has been stopped ...
  bool reachedAnew_ = false;        // ... since what is off was last in doubt
  Nanos againAt_{0};                // when what is stopped is taken off once more ...
  Nanos againAfter_ = kAgainFirst;  // ... and how long after the time before
  Nanos reapAt_{0};                 // when the dead are worth asking after again
  int reaps_ = 0;                   // in vain
  Nanos proveAt_{0};                // when whose the channels are is worth asking again
  int proofs_ = 0;                  // how often it was asked in vain
  bool singly_ = false;             // an enable failed: what is left is named one by one
  Nanos retryAt_{0}, retryAfter_ = kRetryFirst;
};

}  // namespace qgpu::suspend
