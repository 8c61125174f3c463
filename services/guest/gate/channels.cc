#include "services/guest/gate/channels.h"

#include <cstdlib>
#include <sys/socket.h>

#include "services/guest/gate/test_hooks.h"
#include "services/nvidia_abi/rm_card.h"
#include "services/nvidia_abi/rm_events.h"

namespace qgpu::guest {
namespace {

constexpr std::uint64_t kTellNsMax = kNsPerSecond;      // one note, or all: more is not waited
constexpr std::uint64_t kRetryFirstNs = 50 * kNsPerMs;  // of a driver that refuses; doubles up to
constexpr std::uint64_t kRetryMaxNs = 5 * kNsPerSecond;
constexpr std::uint32_t kCardsMax = 32;  // that the driver numbers
constexpr std::uint32_t kNoCard = ~0u;   // as an event says that its card is not known

bool takesChannelsOff() {
  return loadRelaxed(session.gate->suspend) == QGPU_SUSPEND_RM;
}

// --- the timeslice of this process's work ---

std::atomic<bool> refusalSaid{false};
constinit thread_local bool givesTimeslice = false;  // the driver's call comes back here

std::uint32_t setTimeslice(int fd, rm::Named group, std::uint64_t us) {
  givesTimeslice = true;
  const std::uint32_t status = rm::setTimeslice(fd, group, us);
  givesTimeslice = false;
  return status;
}

// Where the manager wants one (services/attach/pages/timeslices.h says which and why), each group
// of channels gets it through the process's own file of the driver: as it is made, and again once
// it was scheduled or the program set another, since a real driver forgets what was set before, and
// once the manager wants another. A driver that refuses costs the program nothing: it runs on with
// what the driver gives, and says so once. By the thread that called the driver, before the program
// has its answer.
void giveTimeslice(const RmChannelEvent& event) {
  const std::uint64_t us = loadRelaxed(session.gate->timeslice_us);
  const rm::Handle group = event.objectClass == rm::kChannelGroup ? event.object : event.group;
  if (us == 0 || group == 0 || givesTimeslice) return;
  const int saved = errno;
  const std::uint32_t status = setTimeslice(event.fd, {event.client, group}, us);
  if (status != rm::kOk && !refusalSaid.exchange(true)) {
    say("the driver gives no timeslices of %llu us (status 0x%x); this program runs with its own",
        static_cast<unsigned long long>(us), status);
  }
  errno = saved;
}

// --- the channels that are there ---

// As they were at one moment, without their groups.
class Channels {
 public:
  Channels() { eachRmChannel(take, this); }
  ~Channels() { free(all_); }
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  bool whole() const { return whole_; }  // false: there was no memory for all of them
  RmChannelEvent* begin() const { return all_; }
  RmChannelEvent* end() const { return all_ + count_; }

 private:
  // With the lock of what is visited held: it waits for nobody.
  static void take(const RmChannelEvent& event, void* to) {
    auto& self = *static_cast<Channels*>(to);
    if (!rm::isChannel(event.objectClass)) return;
    if (self.count_ == self.room_) {
      const std::size_t room = self.room_ ? 2 * self.room_ : 64;
      void* more = realloc(self.all_, room * sizeof event);
      if (!more) {
        self.whole_ = false;
        return;
      }
      self.all_ = static_cast<RmChannelEvent*>(more);
      self.room_ = room;
    }
    self.all_[self.count_++] = event;
  }

  RmChannelEvent* all_ = nullptr;
  std::size_t count_ = 0, room_ = 0;
  bool whole_ = true;
};

// What all groups have that are there, but for those that got another since: the link thread's,
// and before it starts the attaching one's.
std::uint64_t timesliceOfAll = 0;

// Each of a group's channels names it. One that is freed meanwhile is refused, and no loss.
void keepTimeslices() {
  const std::uint64_t us = loadRelaxed(session.gate->timeslice_us);
  if (us == 0 || us == timesliceOfAll) return;
  timesliceOfAll = us;
  const Channels present;
  for (const RmChannelEvent& each : present) {
    if (each.group != 0) setTimeslice(each.fd, {each.client, each.group}, us);
  }
}

// --- notes ---

Mutex mutex;          // held while notes are sent, so the descriptor stays what it is; never in a
int connection = -1;  // call to the driver
std::uint32_t presentAs = QGPU_NOTE_MADE;  // what a channel that is there is told to be
bool gaveUp = false;                       // on a manager that lives

// With the mutex held. The link thread finds the connection shut, and begins anew.
void leave(bool managerLives) {
  if (connection < 0) return;
  shutdown(connection, SHUT_RDWR);
  connection = -1;
  gaveUp = managerLives;
}

// With the mutex held. The kernel is asked itself: send() would be a place where the program's
// thread can be cancelled, with the mutex in its hand.
void send(const RmChannelEvent& of, std::uint32_t what, std::uint64_t untilNs) {
  if (connection < 0) return;
  qgpu_note note{};
  note.magic = QGPU_NOTE_MAGIC;
  note.what = what;
  note.client = of.client;
  note.object = of.object;
  note.group = of.group;
  note.engine = of.engine;
  note.device = of.device;
  note.fd = of.fd;
  const int saved = errno;
  long sent = -1;
  do {
    sent = syscall(SYS_sendto, connection, &note, sizeof note, MSG_NOSIGNAL, nullptr, 0);
  } while (sent < 0 && errno == EINTR && nowNs() < untilNs);
  if (sent != static_cast<long>(sizeof note)) leave(errno == EAGAIN || errno == EINTR);
  errno = saved;
}

void tell(const RmChannelEvent& of, std::uint32_t what) {
  Lock lock(mutex);
  send(of, what, nowNs() + kTellNsMax);
}

// Told after the driver did it, when another thread may have got the name again. Then the note that
// tells the new one tells this one's end too, and one that came after it would end the new one.
void tellEnded(const RmChannelEvent& of) {
  Lock lock(mutex);
  if (isRmChannel(of.client, of.object)) return;
  send(of, QGPU_NOTE_ENDED, nowNs() + kTellNsMax);
}

// With the mutex held since before they are looked at: what ends afterwards is told to end after.
void sendAll(std::uint32_t what) {
  if (connection < 0) return;
  const std::uint64_t until = nowNs() + kTellNsMax;
  const Channels present;
  for (const RmChannelEvent& each : present) {
    if (nowNs() > until) return leave(true);
    send(each, what, until);
  }
  if (!present.whole()) leave(true);
}

// In the thread that called the driver.
void onChannel(const RmChannelEvent& event) {
  switch (event.what) {
    case RmChannelEvent::What::kMade:
      if (!rm::isChannel(event.objectClass)) return giveTimeslice(event);
      return tell(event, QGPU_NOTE_MADE);
    case RmChannelEvent::What::kEnabled:
      tell(event, QGPU_NOTE_ENABLED);
      return giveTimeslice(event);
    case RmChannelEvent::What::kSliced:
      return giveTimeslice(event);
    case RmChannelEvent::What::kEnded:
      return tellEnded(event);
    case RmChannelEvent::What::kKept: {
      Lock lock(mutex);
      return sendAll(presentAs);
    }
  }
}

// --- without a manager ---

// The link thread's, and before it starts the attaching one's.
bool attached = false;  // to a manager that takes channels off
struct {
  bool mayBeOff = false;  // by a manager, and not put back since
  bool tried = false;     // to put them back, since a manager ruled
  bool said = false;      // that it can't, since then
  bool leftOutSaid = false;
  std::uint64_t lastNs = 0, nextNs = 0;  // of the tries
  std::uint64_t retryNs = kRetryFirstNs;
} off;

void beginAnew(bool mayBeOff) {
  const std::uint64_t last = off.lastNs;
  off = {};
  off.lastNs = last;
  off.mayBeOff = mayBeOff;
}

// Whether the driver has it as a channel no more. Only the client's own file is answered.
bool isGone(const RmChannelEvent& channel, std::uint32_t refusal) {
  std::uint32_t objectClass = 0;
  std::uint32_t status = rm::kNoAnswer;
  if (channel.fd >= 0) {
    status = rm::classOf(channel.fd, {channel.client, channel.object}, objectClass);
  }
  if (status != rm::kNoAnswer) return !rm::isChannel(objectClass);
  return refusal == rm::kObjectNotFound || refusal == rm::kInvalidClient;
}

// Of two refusals the one that another try may end, where there is one.
void add(std::uint32_t& refused, std::uint32_t one) {
  if (refused == rm::kOk || (one != rm::kOk && one != rm::kObjectNotFound)) refused = one;
}

// As often as a lost manager may have disabled them; but one that is heard meanwhile rules again,
// and knows itself how often.
std::uint32_t enable(rm::Card& card, const rm::Named* names, std::uint32_t count) {
  std::uint32_t refused = rm::kOk;
  for (int i = 0; i < rm::kDisablesMax && refused == rm::kOk; ++i) {
    if (i > 0 && takesChannelsOff() && !managerLost()) break;
    refused = card.disable(false, false, names, count);
  }
  return refused;
}

// Together, or where the driver refuses that, one by one. Its refusal of one that is there; kOk.
// What is done is of this card.
std::uint32_t putBack(rm::Card& card, RmChannelEvent* const* channels, std::uint32_t count) {
  rm::Named names[rm::kDisabledMax];
  for (std::uint32_t i = 0; i < count; ++i) names[i] = {channels[i]->client, channels[i]->object};
  std::uint32_t refused = enable(card, names, count);
  if (count == 1 && refused != rm::kOk && isGone(*channels[0], refused)) refused = rm::kOk;
  if (refused == rm::kOk) {
    for (std::uint32_t i = 0; i < count; ++i) channels[i]->device = card.device();
    return rm::kOk;
  }
  if (count == 1) return refused;
  refused = rm::kOk;
  for (std::uint32_t i = 0; i < count; ++i) add(refused, putBack(card, channels + i, 1));
  return refused;
}

// Those that are told to be of a card, `told`, by a card.
std::uint32_t putBack(rm::Card& card, const Channels& present, std::uint32_t told) {
  RmChannelEvent* some[rm::kDisabledMax];
  std::uint32_t count = 0, refused = rm::kOk;
  for (RmChannelEvent& each : present) {
    if (each.device == told) some[count++] = &each;
    if (count == 0 || (count < rm::kDisabledMax && &each + 1 != present.end())) continue;
    add(refused, putBack(card, some, count));
    count = 0;
  }
  return refused;
}

void sayOnce(const char* why) {
  if (off.said) return;
  off.said = true;
  say("cannot put this program's work back on the card, where a lost manager may have taken it "
      "off: %s; it tries again",
      why);
}

void sayRefusal(std::uint32_t status) {
  char why[48] = "the driver takes no call";
  if (status != rm::kNoAnswer) snprintf(why, sizeof why, "the driver's status 0x%x", status);
  sayOnce(why);
}

// The card is a client of the driver by itself, and its calls pass through this library as a
// program's do. Null; or what failed.
const char* openCard(rm::Card& card, std::uint32_t device) {
  const char* root = testSetting("QGPU_DRIVER_ROOT");
  return card.openDevice(root ? root : "", -1, device, rmLayout());
}

bool putBackOnCard(const Channels& present, std::uint32_t device) {
  rm::Card card;
  if (const char* failed = openCard(card, device)) {
    sayOnce(failed);
    return false;
  }
  const std::uint32_t refused = putBack(card, present, device);
  if (refused != rm::kOk) sayRefusal(refused);
  return refused == rm::kOk;
}

bool anyOfNoCard(const Channels& present) {
  for (const RmChannelEvent& each : present) {
    if (each.device == kNoCard) return true;
  }
  return false;
}

// Those whose card is not known, by whichever takes them. What no card knows is left out: no try of
// it would end. False: it is worth another try, as where a card can't be opened now.
bool putBackSomewhere(const Channels& present) {
  bool all = true;
  for (std::uint32_t device = 0; device < kCardsMax && anyOfNoCard(present); ++device) {
    rm::Card card;
    if (const char* failed = openCard(card, device)) {
      if (!card.mayOpenLater()) continue;  // it is no card
      sayOnce(failed);
      all = false;
      continue;
    }
    const std::uint32_t refused = putBack(card, present, kNoCard);
    if (refused == rm::kOk || refused == rm::kObjectNotFound) continue;
    sayRefusal(refused);
    all = false;
  }
  if (!all || off.leftOutSaid || !anyOfNoCard(present)) return all;
  off.leftOutSaid = true;
  say("cannot put a part of this program's work back on the card, if a lost manager has taken it "
      "off: no card knows it");
  return true;
}

// False: it is worth another try.
bool putAllBack() {
  const Channels present;
  bool all = present.whole();
  for (const RmChannelEvent& each : present) {
    if (each.device == kNoCard) continue;
    const RmChannelEvent* before = present.begin();
    while (before->device != each.device) ++before;
    if (before == &each && !putBackOnCard(present, each.device)) all = false;
  }
  return putBackSomewhere(present) && all;
}

void tryToPutBack(std::uint64_t now) {
  off.tried = true;
  off.mayBeOff = !putAllBack();
  off.lastNs = now;
  off.nextNs = off.mayBeOff ? now + off.retryNs : 0;
  off.retryNs = off.mayBeOff ? off.retryNs * 2 : kRetryFirstNs;
  if (off.retryNs > kRetryMaxNs) off.retryNs = kRetryMaxNs;
}

void forgetInChild() {
  mutex.renewInChild();
  timesliceOfAll = 0;
  connection = -1;
  gaveUp = attached = false;
  beginAnew(false);
}

}  // namespace

void tellChannels(int to, bool again) {
  onForkInChild(forgetInChild);
  if (timesliceOfAll == 0) timesliceOfAll = loadRelaxed(session.gate->timeslice_us);
  if (!takesChannelsOff()) {
    onRmChannel(onChannel);  // for timeslices: nobody is told
    return;
  }
  Lock lock(mutex);
  // From here on a channel that is made is told by its maker; so what was made before is seen.
  connection = to;
  gaveUp = false;
  presentAs = again ? QGPU_NOTE_THERE : QGPU_NOTE_MADE;
  attached = true;
  beginAnew(true);
  onRmChannel(onChannel);
  sendAll(presentAs);
}

bool stopTelling() {
  if (attached) off.mayBeOff = true;  // it may have done so until now, whatever was put back before
  attached = false;
  Lock lock(mutex);
  connection = -1;
  return !gaveUp;
}

void keepChannels(bool managerIsLost) {
  if (!managerIsLost) keepTimeslices();
  if (!takesChannelsOff() || managerIsLost) {
    const std::uint64_t now = nowNs(), grace = loadRelaxed(session.gate->orphan_grace_ns);
    if (attached && now - off.lastNs > grace) off.mayBeOff = true;  // a thread of it may still live
    if (off.mayBeOff && now >= off.nextNs) tryToPutBack(now);
  } else if (off.tried) {
    beginAnew(true);
    Lock lock(mutex);
    sendAll(QGPU_NOTE_ENABLED);
  }
}

}  // namespace qgpu::guest
