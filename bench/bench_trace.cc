// What the trace of a card costs (actors/card/card_trace.h). A card actor with 24 tenants that
// always want more is given the same messages with and without a trace, a stretch each, in turn. A
// turn is one message, built, handled and answered. The difference is taken within each pair of
// stretches, on the thread's own clock, and the middle one of all pairs is told, so that a stretch
// in which the machine was busy with something else counts for nothing. Each stretch has a card of
// its own, made in the same memory: where a card lies costs it more than its trace does.
//
// In turns alone the card actor looks as busy as can be: its loop also carries each order to a
// gate, looks at gates, and sleeps. cost_of_core_percent is the trace's part of a core at the most
// slices a second that a card can have.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <malloc.h>
#include <optional>
#include <utility>
#include <vector>

#include "actors/card/card_actor.h"
#include "runtime/message.h"

namespace {

using namespace qgpu;

constexpr std::uint64_t kTenants = 24;
constexpr int kPairs = 201;
constexpr int kSlices = 4'000;  // of a stretch
constexpr int kWarmSlices = 500;
constexpr std::size_t kCellWords = 64;
constexpr ActorId kPort{1}, kNode{2}, kTask{3}, kCard{4};

// Builds messages where a mailbox would, and remembers the last order and the timer.
class Host final : public TurnHost {
 public:
  capnp::MessageBuilder* beginSend(ActorId, ActorId, Lane) override { return begin(); }
  void finishSend() override {
    const auto said = message_->getRoot<schema::Envelope>().asReader();
    if (said.isGateOrder()) {
      const auto order = said.getGateOrder();
      if (order.getOrder() == schema::GateOrder::Order::HOLD && order.getEpoch() != 0) {
        held = order.getTask();
        epoch = order.getEpoch();
      }
    }
    end();
  }
  capnp::MessageBuilder* beginTimer(ActorId, Nanos delay, TimerId& id) override {
    due = now + delay;
    id = TimerId{++lastTimer_};
    return begin();
  }
  void finishTimer() override { end(); }
  void cancelTimer(ActorId, TimerId) override {}
  capnp::MessageBuilder* beginPersist(ActorId, RowKey) override { std::abort(); }
  void finishPersist() override {}

  Nanos now = seconds(1);
  Nanos due = kNever;
  std::uint64_t held = 0;
  std::uint32_t epoch = 0;

 private:
  capnp::MessageBuilder* begin() {
    return &message_.emplace(kj::arrayPtr(cell_.data(), cell_.size()));
  }
  void end() {
    message_.reset();
    std::memset(cell_.data(), 0, cell_.size() * sizeof(capnp::word));
  }
  Words cell_ = Words(kCellWords);
  std::optional<CellBuilder> message_;
  std::uint64_t lastTimer_ = 0;
};

// One card with its tenants. Its time is made up; what it costs is the processor's.
class Card {
 public:
  explicit Card(std::size_t traceKept)
      : actor_(0, ArbiterConfig{}, {kPort, kNode}, host_.now, traceKept) {
    for (std::uint64_t id = 1; id <= kTenants; ++id) {
      tell([&](schema::Envelope::Builder message) {
        auto joined = message.initJoined();
        joined.setTask(id);
        joined.setActor(static_cast<std::uint32_t>(kTask));
        joined.setSharePermille(1000 / kTenants);
        joined.setClass(schema::TaskClass::ORDINARY);
      });
      tell([&](schema::Envelope::Builder message) {
        message.initBusy().setTask(id);
        message.getBusy().setSinceNs(static_cast<std::uint64_t>(host_.now.value));
      });
    }
  }

  // The processor time of the turns of so many slices.
  std::int64_t stretch(int slices) {
    const std::int64_t before = processorTime();
    for (int i = 0; i < slices; ++i) {
      while (host_.held == 0) {
        host_.now = std::max(host_.now, host_.due);
        host_.due = kNever;
        tell([](schema::Envelope::Builder message) { message.initTick(); });
      }
      host_.now += micros(20);
      const std::uint64_t task = std::exchange(host_.held, 0);
      tell([&](schema::Envelope::Builder message) {
        message.initSettled().setTask(task);
        message.getSettled().setEpoch(host_.epoch);
        message.getSettled().setAtNs(static_cast<std::uint64_t>(host_.now.value));
      });
    }
    return processorTime() - before;
  }

  std::uint64_t turns() const { return turns_; }
  std::uint64_t entries() const { return actor_.trace().newest(); }

 private:
  template <typename Build>
  void tell(Build build) {
    capnp::MallocMessageBuilder message(kj::arrayPtr(words_.data(), words_.size()));
    build(message.initRoot<schema::Envelope>());
    const auto reader = message.getRoot<schema::Envelope>().asReader();
    Turn turn(host_, kCard, kPort, host_.now, prng_);
    actor_.handle(reader, turn);
    ++turns_;
  }
  static std::int64_t processorTime() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  }

  Host host_;
  Prng prng_{1};
  Words words_ = Words(kCellWords);
  CardActor actor_;
  std::uint64_t turns_ = 0;
};

double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

int main() {
  ::mallopt(M_MMAP_THRESHOLD, 64 << 10);  // the ring has pages of its own, each time
  std::vector<double> percents, costs, withs, withouts;
  std::uint64_t turns = 0, entries = 0;
  const auto turnNs = [&](std::size_t traceKept) {
    Card card(traceKept);
    card.stretch(kWarmSlices);
    const std::uint64_t before = card.turns();
    const std::int64_t ns = card.stretch(kSlices);
    turns = card.turns() - before;
    entries = std::max(entries, card.entries());
    return static_cast<double>(ns) / static_cast<double>(turns);
  };
  for (int i = 0; i < kPairs; ++i) {
    double with = 0;
    if (i % 2 == 0) with = turnNs(CardTrace::kKept);
    const double without = turnNs(0);
    if (i % 2 != 0) with = turnNs(CardTrace::kKept);
    withs.push_back(with);
    withouts.push_back(without);
    costs.push_back(with - without);
    percents.push_back(100.0 * (with - without) / without);
  }
  const double perSlice = static_cast<double>(turns) / kSlices;
  const double slicesMost = 1e9 / static_cast<double>(ArbiterConfig{}.sliceMin.value);
  std::printf(
      "{\"bench\":\"trace\",\"tenants\":%llu,\"entries_a_stretch\":%llu,\"turn_ns\":{"
      "\"without\":%.1f,\"with\":%.1f},\"trace_ns_a_turn\":%.2f,\"cost_of_turns_percent\":%.2f,"
      "\"cost_of_core_percent\":%.5f}\n",
      static_cast<unsigned long long>(kTenants), static_cast<unsigned long long>(entries),
      middle(withouts), middle(withs), middle(costs), middle(percents),
      middle(costs) * perSlice * slicesMost / 1e7);
}
