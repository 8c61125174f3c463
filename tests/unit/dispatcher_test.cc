// The dispatcher on real loops and threads: lanes, order, refusal, the output gate, timers, stop.
#include "runtime/dispatcher.h"

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "schema/envelope.actor.h"

namespace qgpu {
namespace {

using Envelope = schema::Envelope;

// Does what the test says with each message, and remembers the value of each tick.
class Scripted final : public Actor {
 public:
  using Script = std::function<void(Envelope::Reader, Turn&)>;
  explicit Scripted(Script script = {}) : script_(std::move(script)) {}
  void handle(Envelope::Reader message, Turn& turn) override {
    if (message.isTick()) ticks.push_back(message.getTick().getValue());
    if (script_) script_(message, turn);
  }
  std::vector<std::uint64_t> ticks;

 private:
  Script script_;
};

auto tick(std::uint64_t value) {
  return [value](Envelope::Builder m) { m.initTick().setValue(value); };
}
// One loop; run() returns once an actor stopped it.
struct OneLoop {
  ActorSystem system;
  Loop loop;
  Dispatcher dispatcher{system, loop};
  Scripted::Script stopLoop = [this](Envelope::Reader, Turn&) { loop.stop(); };
};

TEST(Dispatcher, C6_DeliversMessagesOfOneSenderInOrder) {
  OneLoop one;
  Scripted receiver([&](Envelope::Reader m, Turn&) {
    if (m.getTick().getValue() == 99) one.loop.stop();
  });
  Outlet outlet(one.dispatcher, one.dispatcher.reserve());
  const ActorId to = one.dispatcher.add(receiver);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(outlet.send(to, tick(i)), SendResult::Sent);
  one.loop.run();
  ASSERT_EQ(receiver.ticks.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(receiver.ticks[i], i);
}

}  // namespace
}  // namespace qgpu
