#pragma once
// The decision core of suspend=rm: which channels of one task are to be taken off the card's
// hardware and put back, in which calls to the driver, one call at a time. It exists apart from the
// calls so that its promises can be proven over every order of answers, deaths and late channels.
//
// It keeps: a task is told to be stopped only while every channel that is known was disabled and
// the disabling committed; what a disable named, whatever was answered, is named by an enable that
// the driver took, or is gone, before the task counts as free; after the first doubt nothing is
// disabled any more, and everything is enabled: at once, or where the task was stopped already, at
// its release, since others have the card. All of a task's channels go together: enables and
// disables are never mixed, except that a changed goal turns the order round.
//
// What computes goes before copies, in each step: that is what online waits for, whose gate is open
// all the while. Yet a task is told stopped only with its copies off as well. An earlier word would
// start nobody's kernels sooner but those of the next offline task, by the few calls that copies
// take; and it would let two tasks have the card at once, and be taken back where the copies are
// refused.
//
// The driver puts channels on by itself now and then (UVM does, about address spaces), and says so
// to nobody: what was stopped is taken off again every kAgainEvery, and when asked for. So stopped
// means: for all that is known.
//
// Others' calls wait for each of ours. So one names channels of kOwnersMax clients at the most,
// each of which is a look into a process; and of one client where nobody waits for it.
//
// Whether a channel is its process's own is asked as soon as it is told, so that a hold need not
// wait for that. What a process had proven and leaves at its death may run on, where somebody else
// keeps its file of the driver open: it is taken off for good. Usually it is gone, or goes in a
// moment. Where taking off takes more than a disable, which only the dead could be asked for, and
// it is still there after kReapsMax looks, it is a doubt.
//
// Pure: no clock, no I/O, no log. Times are the caller's.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/units.h"

namespace qgpu::suspend {

// A channel as its process named it to the driver. `client` and `channel` are its name.
struct Channel {
  std::uint32_t client = 0;
  std::uint32_t channel = 0;
  std::uint32_t group = 0;     // that it belongs to; 0: it stands alone
  std::uint32_t engine = 0;    // 1..8: graphics and compute, from 9 copies; 0: not known
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
  static constexpr int kTriesMax = 3;               // of one step that the driver refuses, in a row
  // Of disables in a row that met channels which had ended: a context that is torn down ends its
  // own one by one, and there are tenants who would do nothing else.
  static constexpr int kGonesMax = 64;
  // Of what may pass, and of an enable that failed; doubles. A doubt comes after kWaitsMax of them,
  // 127 ms; an enable goes on.
  static constexpr Nanos kRetryFirst = millis(1);
  static constexpr Nanos kRetryMax = millis(500);
  static constexpr int kWaitsMax = 7;
  static constexpr Nanos kAgainEvery = seconds(2);
  static constexpr Nanos kReapEvery = millis(100);
  static constexpr int kReapsMax = 10;
  static constexpr Nanos kProveEvery = millis(100);  // where it can't be asked now
  static constexpr int kProofsMax = 10;

  explicit ChannelSuspender(SuspendMethod method) : method_(method) {}

  // --- what is wanted ---
  void hold(Nanos now);
  void release(Nanos now);

  // --- what the task's processes do ---
  // `touched`: an earlier manager may have disabled it.
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
  bool reached_ = false;  // this hold was: the task has been stopped
  Nanos againAt_{0};      // when what is stopped is taken off once more
  Nanos reapAt_{0};       // when the dead are worth asking after again
  int reaps_ = 0;         // in vain
  Nanos proveAt_{0};      // when whose the channels are is worth asking again
  int proofs_ = 0;        // how often it was asked in vain
  bool singly_ = false;   // an enable failed: what is left is named one by one
  Nanos retryAt_{0}, retryAfter_ = kRetryFirst;
};

}  // namespace qgpu::suspend
