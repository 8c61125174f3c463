#include "runtime/dispatcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/check.h"

namespace qgpu {

namespace {

constexpr std::size_t kOrdinaryRingWords = 1 << 16;  // 512 KiB: some thousand messages
constexpr std::size_t kControlRingWords = 1 << 13;   // 64 KiB: some hundred
constexpr int kTurnsPerPump = 512;           // then descriptors and timers get their turn ...
constexpr Nanos kPumpMax = micros(500);      // ... or after so long
constexpr int kOrdinaryBatch = 16;           // between two looks at the control lane
constexpr std::uint32_t kPublishEvery = 32;  // ordinary messages to other loops

constexpr std::uint32_t indexOf(ActorId id) {
  return static_cast<std::uint32_t>(id) & 0xffff;
}
constexpr std::uint32_t raw(ActorId id) {
  return static_cast<std::uint32_t>(id);
}

// Of a counter with one writer.
void bump(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::uint64_t pointerBody(Words words) {
  return reinterpret_cast<std::uintptr_t>(new Words(std::move(words)));  // owned by its record
}
std::unique_ptr<Words> ownedWords(std::uint64_t body) {
  return std::unique_ptr<Words>(reinterpret_cast<Words*>(static_cast<std::uintptr_t>(body)));
}
std::uint64_t bodyValue(const capnp::word* body) {
  std::uint64_t value;
  std::memcpy(&value, body, sizeof value);
  return value;
}

}  // namespace

// --- Channel and ActorSystem ---

Channel::Channel() : control(kControlRingWords), ordinary(kOrdinaryRingWords) {}

Channel::~Channel() {
  for (LaneOut* lane : {&control, &ordinary}) {
    lane->ring.publish();
    while (const Record* record = lane->ring.front()) {
      if (record->kind == Record::Kind::Heap) ownedWords(bodyValue(lane->ring.frontBody()));
      lane->ring.pop();
    }
    for (const Waiting& waiting : lane->backlog) {
      if (waiting.record.kind == Record::Kind::Heap) ownedWords(waiting.body);
    }
  }
}

ActorSystem::ActorSystem(std::uint64_t seed)
    : seed_(seed), entries_(std::make_unique<std::atomic<ActorEntry*>[]>(kActorsMax)) {}

ActorSystem::~ActorSystem() {
  for (Dispatcher* dispatcher : dispatchers_) {
    QGPU_CHECK(dispatcher == nullptr, "dispatchers end before their system");
  }
  for (std::uint32_t i = 0; i < entriesUsed_.load(); ++i) {
    const std::unique_ptr<ActorEntry> entry(entryAt(i));
  }
}

std::uint32_t ActorSystem::join(Dispatcher& dispatcher) {
  QGPU_CHECK(dispatcherCount_ < kLoopsMax, "a process has at most kLoopsMax loops");
  const std::uint32_t index = dispatcherCount_++;
  dispatchers_[index] = &dispatcher;
  for (std::uint32_t other = 0; other < dispatcherCount_; ++other) {
    channels_[index][other] = std::make_unique<Channel>();
    if (other != index) channels_[other][index] = std::make_unique<Channel>();
  }
  return index;
}

ActorEntry* ActorSystem::newEntry(std::uint32_t& index) {
  index = entriesUsed_.fetch_add(1, std::memory_order_relaxed);
  QGPU_CHECK(index < kActorsMax, "at most kActorsMax actors live at once");
  return std::make_unique<ActorEntry>().release();  // owned by the table, see ~ActorSystem
}

// --- registration ---

Dispatcher::Dispatcher(ActorSystem& system, Loop& loop)
    : system_(system),
      loop_(loop),
      self_(system.join(*this)),
      now_(loop.now()),
      cellsToSelf_(channelTo(self_).ordinary.ring.firstBody()) {
  loop_.addGuest(*this);
}

Dispatcher::~Dispatcher() {
  for (auto& [id, timer] : timers_) loop_.cancel(timer.key);
  loop_.removeGuest(*this);
  system_.dispatchers_[self_] = nullptr;
}

ActorId Dispatcher::add(Actor& actor) {
  const ActorId id = reserve();
  attach(id, actor);
  return id;
}

ActorId Dispatcher::reserve() {
  std::uint32_t index = 0;
  ActorEntry* entry = nullptr;
  std::uint32_t generation = 1;
  if (freeIndices_.empty()) {
    entry = system_.newEntry(index);
    entry->home = self_;
  } else {
    index = freeIndices_.front() & 0xffff;
    generation = ((freeIndices_.front() >> 16) + 1) & 0xffff;
    if (generation == 0) generation = 1;
    freeIndices_.pop_front();
    entry = system_.entryAt(index);
  }
  const std::uint32_t id = generation << 16 | index;
  entry->prng = Prng(system_.seed_ * 0x9e3779b97f4a7c15ULL + id);
  entry->id.store(id, std::memory_order_relaxed);
  system_.entries_[index].store(entry, std::memory_order_release);
  return static_cast<ActorId>(id);
}

void Dispatcher::attach(ActorId id, Actor& actor) {
  ActorEntry* entry = ownEntry(id);
  QGPU_CHECK(entry != nullptr && entry->actor == nullptr, "attach() follows reserve(), once");
  entry->actor = &actor;
}

void Dispatcher::remove(ActorId id) {
  ActorEntry* entry = ownEntry(id);
  QGPU_CHECK(entry != nullptr, "only a registered actor of this loop is removed");
  std::erase_if(timers_, [&](auto& timer) {
    if (timer.second.actor != id) return false;
    loop_.cancel(timer.second.key);
    return true;
  });
  entry->timers = 0;
  entry->actor = nullptr;
  entry->id.store(0, std::memory_order_relaxed);
  freeIndices_.push_back(raw(id));
}

ActorEntry* Dispatcher::ownEntry(ActorId id) const {
  ActorEntry* entry = system_.entryAt(indexOf(id));
  if (entry == nullptr || entry->id.load(std::memory_order_relaxed) != raw(id)) return nullptr;
  return entry->home == self_ ? entry : nullptr;
}

DispatcherCounters Dispatcher::counters() const {
  const auto get = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  return {get(handled_), get(refused_), get(wakes_), get(undeliverable_), get(commitsFailed_)};
}

// --- sending ---

Dispatcher::Route* Dispatcher::routeTo(ActorId to) {
  const std::uint32_t index = indexOf(to);
  if (index >= routes_.size()) routes_.resize(std::max<std::size_t>(index + 1, 2 * routes_.size()));
  Route& route = routes_[index];
  if (route.entry == nullptr) route.entry = system_.entryAt(index);
  const bool alive =
      route.entry != nullptr && route.entry->id.load(std::memory_order_relaxed) == raw(to);
  return alive ? &route : nullptr;
}

bool Dispatcher::mailboxFull(Route& route) {
  if (route.sent - route.consumedSeen < kMailboxMax) return false;
  route.consumedSeen = route.entry->consumed[self_].load(std::memory_order_relaxed);
  return route.sent - route.consumedSeen >= kMailboxMax;
}

capnp::MessageBuilder* Dispatcher::refuse() {
  bump(refused_);
  return nullptr;
}

capnp::MessageBuilder* Dispatcher::beginInScratch(SendTo where) {
  sending_.where = where;
  return scratch_.begin();
}

capnp::MessageBuilder* Dispatcher::beginSend(ActorId from, ActorId to, Lane lane) {
  QGPU_CHECK(to != ActorId::kNobody, "a message has a receiver");
  Route* route = routeTo(to);
  sending_ = Sending{from, to, lane, SendTo::Ring, 0, route, nullptr};
  if (route == nullptr) {
    return lane == Lane::Control ? beginInScratch(SendTo::Nobody) : refuse();
  }
  sending_.home = route->entry->home;
  return lane == Lane::Control ? beginControl() : beginOrdinary();
}

capnp::MessageBuilder* Dispatcher::beginOrdinary() {
  if (mailboxFull(*sending_.route)) return refuse();
  if (gate_.closed(sending_.from)) return beginInScratch(SendTo::Gate);
  Channel& channel = channelTo(sending_.home);
  if (!channel.ordinary.backlog.empty()) return refuse();
  if (channel.turnOfMark != turnSerial_) {
    channel.turnOfMark = turnSerial_;
    channel.mark = channel.ordinary.ring.mark();
  }
  auto cell = channel.ordinary.ring.reserve();
  if (cell.size() == 0) return refuse();
  sending_.cell = cell.begin();
  return &cell_.emplace(cell);
}

capnp::MessageBuilder* Dispatcher::beginControl() {
  Channel& channel = channelTo(sending_.home);
  if (!channel.control.backlog.empty()) return beginInScratch(SendTo::Backlog);
  auto cell = channel.control.ring.reserve();
  if (cell.size() == 0) return beginInScratch(SendTo::Backlog);
  sending_.cell = cell.begin();
  return &cell_.emplace(cell);
}

void Dispatcher::finishSend() {
  const bool ordinary = sending_.lane == Lane::Ordinary;
  if (ordinary) ++sending_.route->sent;
  if (sending_.where == SendTo::Nobody) {
    scratch_.finish<schema::Envelope>();
    bump(undeliverable_);
  } else if (sending_.where == SendTo::Gate) {
    OwnedMessage held{sending_.from, sending_.to, scratch_.finish<schema::Envelope>()};
    if (turnOf_ == sending_.from) {
      turnHeld_.push_back(std::move(held));
    } else {
      gate_.hold(sending_.from, std::move(held));
    }
  } else if (sending_.where == SendTo::Backlog) {
    push(channelTo(sending_.home), Lane::Control,
         Record{raw(sending_.to), raw(sending_.from), 1, Record::Kind::Heap},
         pointerBody(scratch_.finish<schema::Envelope>()));
  } else {
    Channel& channel = channelTo(sending_.home);
    commitToRing(ordinary ? channel.ordinary.ring : channel.control.ring);
    if (ordinary && sending_.home != self_) ++unpublished_;
    if (ordinary && sending_.home == self_ && turnOf_ == ActorId::kNobody) {
      channel.ordinary.ring.publishToSelf();
    }
  }
  if (!ordinary) publishControl(sending_.home);
}

// A message that outgrew its cell moves to the heap and leaves a pointer.
void Dispatcher::commitToRing(MailboxRing& ring) {
  const auto segments = cell_->getSegmentsForOutput();
  const std::size_t words = segments[0].size();
  if (segments.size() == 1) {
    cell_.reset();
    ring.commit(raw(sending_.to), raw(sending_.from), Record::Kind::Message, words);
    return;
  }
  const std::uint64_t body = pointerBody(flatten<schema::Envelope>(*cell_));
  cell_.reset();
  std::memset(static_cast<void*>(sending_.cell), 0, words * sizeof(capnp::word));
  std::memcpy(static_cast<void*>(sending_.cell), &body, sizeof body);
  ring.commit(raw(sending_.to), raw(sending_.from), Record::Kind::Heap, 1);
}

void Dispatcher::push(Channel& channel, Lane lane, const Record& record, std::uint64_t body) {
  Channel::LaneOut& out = lane == Lane::Control ? channel.control : channel.ordinary;
  if (out.backlog.empty()) {
    auto cell = out.ring.reserve();
    if (cell.size() != 0) {
      std::memcpy(static_cast<void*>(cell.begin()), &body, sizeof body);
      out.ring.commit(record.to, record.from, record.kind, 1);
      return;
    }
  }
  QGPU_CHECK(lane == Lane::Ordinary || out.backlog.size() < kControlBacklogMax,
             "slice decisions are few: an actor sends itself or another into a flood");
  out.backlog.push_back({record, body});
}

void Dispatcher::publishControl(std::uint32_t loop) {
  MailboxRing& ring = channelTo(loop).control.ring;
  if (loop == self_) {
    ring.publishToSelf();
  } else if (ring.publish()) {
    wakeIfAsleep(loop);
  }
}

void Dispatcher::publishOrdinary() {
  unpublished_ = 0;
  for (std::uint32_t loop = 0; loop < system_.dispatcherCount_; ++loop) {
    if (channelTo(loop).ordinary.ring.publish() && loop != self_) wakeIfAsleep(loop);
  }
}

// The order (publish, then look whether the other sleeps) pairs with maySleep() over there.
void Dispatcher::wakeIfAsleep(std::uint32_t loop) {
  Dispatcher& other = *system_.dispatchers_[loop];
  if (!other.asleep_.load(std::memory_order_seq_cst) || !other.asleep_.exchange(false)) return;
  bump(wakes_);
  other.loop_.wake();
}

// --- timers and rows ---

capnp::MessageBuilder* Dispatcher::beginTimer(ActorId self, Nanos delay, TimerId& id) {
  ActorEntry* entry = ownEntry(self);
  QGPU_CHECK(entry != nullptr, "a timer belongs to an actor of this loop");
  QGPU_CHECK(entry->timers < kTimersMax, "an actor has at most kTimersMax timers");
  ++entry->timers;
  timerActor_ = self;
  timerAt_ = (turnOf_ == ActorId::kNobody ? loop_.now() : now_) + delay;
  id = static_cast<TimerId>(++lastTimer_);
  return scratch_.begin();
}

void Dispatcher::finishTimer() {
  const std::uint64_t id = lastTimer_;
  const Loop::TimerKey key = loop_.at(timerAt_, [this, id] { fireTimer(id); });
  timers_.emplace(id, ActorTimer{timerActor_, key, scratch_.finish<schema::Envelope>()});
}

// The message stays in timers_ until its turn comes, so that a cancel still catches it.
void Dispatcher::fireTimer(std::uint64_t id) {
  const std::uint32_t to = raw(timers_.at(id).actor);
  push(channelTo(self_), Lane::Control, Record{to, to, 1, Record::Kind::Timer}, id);
  publishControl(self_);
}

void Dispatcher::cancelTimer(ActorId self, TimerId id) {
  const auto found = timers_.find(static_cast<std::uint64_t>(id));
  if (found == timers_.end() || found->second.actor != self) return;
  loop_.cancel(found->second.key);
  --ownEntry(self)->timers;
  timers_.erase(found);
}

capnp::MessageBuilder* Dispatcher::beginPersist(ActorId self, RowKey key) {
  QGPU_CHECK(turnOf_ == self, "rows are persisted within the actor's own turn");
  QGPU_CHECK(journal_ != nullptr, "a loop whose actors persist has a journal");
  rowKey_ = key;
  return scratch_.begin();
}

void Dispatcher::finishPersist() {
  rows_.push_back(StoredRow{rowKey_, scratch_.finish<schema::Row>()});
}

// --- turns ---

void Dispatcher::turn() {
  asleep_.store(false, std::memory_order_relaxed);
  moveBacklogs();
  now_ = loop_.now();
  const Nanos deadline = now_ + kPumpMax;
  int budget = kTurnsPerPump;
  while (budget > 0 && now_ < deadline) {
    const int urgent = drainControl(budget);
    budget -= urgent;
    const int ordinary = drainOrdinary(std::min(budget, kOrdinaryBatch));
    budget -= ordinary;
    if (urgent + ordinary == 0) break;
    if (unpublished_ > 0) publishOrdinary();
  }
  wakeSendersThatWait();
}

// Each turn on the control lane reads the clock; an ordinary batch shares one reading.
int Dispatcher::drainControl(int budget) {
  int turns = 0;
  for (std::uint32_t from = 0; from < system_.dispatcherCount_; ++from) {
    MailboxRing& ring = channelFrom(from).control.ring;
    while (turns < budget && !stopped()) {
      const Record* record = ring.front();
      if (record == nullptr) break;
      now_ = loop_.now();
      deliver(*record, ring.frontBody());
      ring.pop();
      if (from == self_) ring.rewindIfEmpty();
      ++turns;
    }
  }
  return turns;
}

int Dispatcher::drainOrdinary(int budget) {
  const std::uint32_t loops = system_.dispatcherCount_;
  const MailboxRing& ownControl = channelFrom(self_).control.ring;
  for (std::uint32_t k = 0; k < loops; ++k) {
    const std::uint32_t from = (nextFrom_ + k) % loops;
    MailboxRing& ring = channelFrom(from).ordinary.ring;
    int turns = 0;
    while (turns < budget && !stopped()) {
      const Record* record = ring.front();
      if (record == nullptr) break;
      if (turns == 0) now_ = loop_.now();
      // The entry outlives its actor, so the count stays right for the index's next owner.
      auto& consumed = system_.entryAt(record->to & 0xffff)->consumed[from];
      consumed.store(consumed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      const capnp::word* body = ring.frontBody();
      if (from == self_) ring.rewindBehindFront();
      deliver(*record, body);
      ring.pop();
      if (from == self_) ring.rewindIfEmpty();
      ++turns;
      if (!ownControl.empty()) break;
    }
    if (turns > 0) {
      nextFrom_ = (from + 1) % loops;
      return turns;
    }
  }
  return 0;
}

void Dispatcher::deliver(const Record& record, const capnp::word* body) {
  const auto to = static_cast<ActorId>(record.to);
  const auto from = static_cast<ActorId>(record.from);
  if (record.kind == Record::Kind::Message) {
    runTurn(to, from, body);
  } else if (record.kind == Record::Kind::Heap) {
    const std::unique_ptr<Words> words = ownedWords(bodyValue(body));
    runTurn(to, from, words->data());
  } else {
    deliverTimer(bodyValue(body));
  }
}

void Dispatcher::deliverTimer(std::uint64_t id) {
  const auto found = timers_.find(id);
  if (found == timers_.end()) return;  // cancelled after it was due
  const ActorTimer timer = std::move(found->second);
  timers_.erase(found);
  --ownEntry(timer.actor)->timers;
  runTurn(timer.actor, timer.actor, timer.words.data());
}

void Dispatcher::runTurn(ActorId to, ActorId from, const capnp::word* words) {
  ActorEntry* entry = ownEntry(to);
  if (entry == nullptr || entry->actor == nullptr) return bump(undeliverable_);
  ++turnSerial_;
  turnOf_ = to;
  Turn turn(*this, to, from, now_, entry->prng);
  entry->actor->handle(cellsToSelf_.read(words), turn);
  turnOf_ = ActorId::kNobody;
  endTurn(to);
  bump(handled_);
}

void Dispatcher::endTurn(ActorId self) {
  if (!rows_.empty()) {
    persistTurn(self);
  } else {
    for (OwnedMessage& message : turnHeld_) gate_.hold(self, std::move(message));
    turnHeld_.clear();
  }
  channelTo(self_).ordinary.ring.publishToSelf();
  if (unpublished_ >= kPublishEvery) publishOrdinary();
}

// What the turn put into rings is not visible yet: it is taken back and waits for the commit.
void Dispatcher::persistTurn(ActorId self) {
  for (std::uint32_t loop = 0; loop < system_.dispatcherCount_; ++loop) {
    Channel& channel = channelTo(loop);
    if (channel.turnOfMark != turnSerial_) continue;
    channel.ordinary.ring.takeBack(
        channel.mark, [&](const Record& record, const capnp::word* body) {
          OwnedMessage held{static_cast<ActorId>(record.from), static_cast<ActorId>(record.to), {}};
          if (record.kind == Record::Kind::Heap) {
            held.words = std::move(*ownedWords(bodyValue(body)));
          } else {
            held.words = Words(record.words);
            std::memcpy(held.words.data(), body, record.words * sizeof(capnp::word));
          }
          turnHeld_.push_back(std::move(held));
        });
  }
  gate_.open(self);
  for (OwnedMessage& message : turnHeld_) gate_.hold(self, std::move(message));
  turnHeld_.clear();
  journal_->append(std::exchange(rows_, {}),
                   [this, self](const Status& status) { commitDone(self, status); });
}

void Dispatcher::commitDone(ActorId self, const Status& status) {
  std::vector<OwnedMessage> messages = gate_.resolve(self);
  if (status.ok()) {
    for (OwnedMessage& message : messages) release(std::move(message));
    return;
  }
  bump(commitsFailed_);
  for (const OwnedMessage& message : messages) --routes_[indexOf(message.to)].sent;
  capnp::MessageBuilder* told = beginSend(ActorId::kNobody, self, Lane::Control);
  tellFailedCommit(told->initRoot<schema::Envelope>(), status.error().message, messages);
  finishSend();
}

void Dispatcher::release(OwnedMessage message) {
  Route* route = routeTo(message.to);
  if (route == nullptr) {
    --routes_[indexOf(message.to)].sent;
    return bump(undeliverable_);
  }
  Channel& channel = channelTo(route->entry->home);
  push(channel, Lane::Ordinary, Record{raw(message.to), raw(message.from), 1, Record::Kind::Heap},
       pointerBody(std::move(message.words)));
  if (route->entry->home == self_) channel.ordinary.ring.publish();
}

// --- sleeping ---

bool Dispatcher::maySleep() {
  publishOrdinary();
  if (stopped()) return true;
  if (!moveBacklogs()) {
    for (std::uint32_t loop = 0; loop < system_.dispatcherCount_; ++loop) {
      // Exchanges on both sides: either this sees the new room or the receiver sees the wish.
      channelTo(loop).senderWaits.exchange(true, std::memory_order_acq_rel);
    }
    moveBacklogs();
  }
  asleep_.store(true, std::memory_order_seq_cst);
  if (!inputWaits()) return true;
  asleep_.store(false, std::memory_order_relaxed);
  return false;
}

bool Dispatcher::inputWaits() const {
  for (std::uint32_t from = 0; from < system_.dispatcherCount_; ++from) {
    const Channel& channel = channelFrom(from);
    if (!channel.control.ring.empty() || !channel.ordinary.ring.empty()) return true;
  }
  return false;
}

// Moves waiting records into their rings as far as there is room; true when none waits any more.
bool Dispatcher::moveBacklogs() {
  bool all = true;
  for (std::uint32_t loop = 0; loop < system_.dispatcherCount_; ++loop) {
    Channel& channel = channelTo(loop);
    for (Channel::LaneOut* lane : {&channel.control, &channel.ordinary}) {
      while (!lane->backlog.empty()) {
        auto cell = lane->ring.reserve();
        if (cell.size() == 0) break;
        const Channel::Waiting& waiting = lane->backlog.front();
        std::memcpy(static_cast<void*>(cell.begin()), &waiting.body, sizeof waiting.body);
        lane->ring.commit(waiting.record.to, waiting.record.from, waiting.record.kind, 1);
        lane->backlog.pop_front();
      }
      all = all && lane->backlog.empty();
      if (lane->ring.publish() && loop != self_) wakeIfAsleep(loop);
    }
  }
  return all;
}

void Dispatcher::wakeSendersThatWait() {
  for (std::uint32_t from = 0; from < system_.dispatcherCount_; ++from) {
    if (from == self_) continue;
    if (channelFrom(from).senderWaits.exchange(false, std::memory_order_acq_rel)) {
      system_.dispatchers_[from]->loop_.wake();
    }
  }
}

}  // namespace qgpu
