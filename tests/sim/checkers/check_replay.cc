#include "tests/sim/checkers/check_replay.h"

#include <capnp/any.h>
#include <optional>
#include <string>
#include <utility>

#include "actors/card/card_actor.h"
#include "runtime/message.h"

namespace qgpu::sim {

// The second actor of one card, and the host that it believes in.
class ReplayCheck::Second final : public TurnHost {
 public:
  Second(const Boot& boot, std::uint32_t index, Nanos now)
      : self_(boot.cards[index].actor),
        card_(index, config(boot), CardPeers{boot.attach, boot.node}, now) {}

  ActorId self() const { return self_; }

  // --- what the first one does in its turn ---
  void begins(const Carried& message) {
    message_ = message;
    first_.clear();
    refused_.clear();
  }
  void sends(const Carried& sent) { first_.push_back({sent.to, sent.lane, flatten(sent.message)}); }
  void isRefused(ActorId to) { refused_.push_back(to); }

  // The same turn; what differs, or nothing.
  std::string ends(Nanos now) {
    const Carried message = *std::exchange(message_, std::nullopt);
    if (message.timer && (timer_ == 0 || due_ > now)) return "a timer that it had not asked for";
    if (message.timer) timer_ = 0;
    second_.clear();
    now_ = now;
    Turn turn(*this, self_, message.from, now, prng_);
    card_.handle(message.message, turn);
    return difference();
  }

  // TurnHost
  capnp::MessageBuilder* beginSend(ActorId, ActorId to, Lane lane) override {
    if (lane == Lane::Ordinary && mustRefuse(to)) return nullptr;
    second_.push_back({to, lane, {}});
    return scratch_.begin();
  }
  void finishSend() override { second_.back().words = scratch_.finish<schema::Envelope>(); }
  capnp::MessageBuilder* beginTimer(ActorId, Nanos delay, TimerId& id) override {
    id = static_cast<TimerId>(timer_ = ++timers_);
    due_ = now_ + delay;
    return scratch_.begin();
  }
  void finishTimer() override { scratch_.finish<schema::Envelope>(); }
  void cancelTimer(ActorId, TimerId id) override {
    if (static_cast<std::uint64_t>(id) == timer_) timer_ = 0;
  }
  capnp::MessageBuilder* beginPersist(ActorId, RowKey) override { return scratch_.begin(); }
  void finishPersist() override {}

 private:
  struct Sent {
    ActorId to;
    Lane lane;
    Words words;
  };

  static ArbiterConfig config(const Boot& boot) {
    ArbiterConfig config;
    config.policy = static_cast<qgpu::Policy>(boot.policy);
    config.onlineIdle = boot.onlineIdle;
    config.sliceMin = boot.sliceMin;
    config.sliceMax = boot.sliceMax;
    config.lingerMax = boot.lingerMax;
    config.settleMax = boot.settleMax;
    config.settleFactor = boot.settleFactor;
    config.patience = boot.patience;
    config.resumeCost = boot.resumeCost;
    return config;
  }

  // A mailbox fills up within a turn, so who was refused was so after what was taken.
  bool mustRefuse(ActorId to) const {
    std::size_t taken = 0, given = 0;
    for (const Sent& sent : first_) taken += sent.to == to && sent.lane == Lane::Ordinary;
    for (const Sent& sent : second_) given += sent.to == to && sent.lane == Lane::Ordinary;
    bool any = false;
    for (const ActorId id : refused_) any = any || id == to;
    return any && given >= taken;
  }

  // Lanes apart: urgent words leave within the turn, the others after it.
  std::string difference() const {
    for (const Lane lane : {Lane::Control, Lane::Ordinary}) {
      std::size_t a = 0, b = 0;
      while (true) {
        while (a < first_.size() && first_[a].lane != lane) ++a;
        while (b < second_.size() && second_[b].lane != lane) ++b;
        if (a == first_.size() && b == second_.size()) break;
        if (a == first_.size() || b == second_.size()) return "it says more or less";
        if (!same(first_[a++], second_[b++])) return "it says something else";
      }
    }
    return "";
  }

  static bool same(const Sent& a, const Sent& b) {
    if (a.to != b.to) return false;
    const auto one = capnp::readMessageUnchecked<capnp::AnyPointer>(a.words.data());
    const auto other = capnp::readMessageUnchecked<capnp::AnyPointer>(b.words.data());
    return one == other;
  }

  const ActorId self_;
  CardActor card_;
  Prng prng_{0};
  ScratchBuilder scratch_;
  std::optional<Carried> message_;
  std::vector<Sent> first_, second_;
  std::vector<ActorId> refused_;
  std::uint64_t timer_ = 0, timers_ = 0;
  Nanos now_{0}, due_{0};
};

ReplayCheck::ReplayCheck(Verdict& verdict) : verdict_(verdict) {}
ReplayCheck::~ReplayCheck() = default;

void ReplayCheck::onBoot(const Boot& boot, Nanos now) {
  seconds_.clear();
  for (std::uint32_t i = 0; i < boot.cards.size(); ++i) {
    seconds_.push_back(std::make_unique<Second>(boot, i, now));
  }
}

void ReplayCheck::onEnd(Ending, Nanos) {
  seconds_.clear();
}

ReplayCheck::Second* ReplayCheck::of(ActorId actor) {
  for (const auto& second : seconds_) {
    if (second->self() == actor) return second.get();
  }
  return nullptr;
}

void ReplayCheck::onSent(const Carried& message, Nanos) {
  if (message.timer) return;
  if (Second* second = of(message.from)) second->sends(message);
}

void ReplayCheck::onRefused(ActorId from, ActorId to, Nanos) {
  if (Second* second = of(from)) second->isRefused(to);
}

void ReplayCheck::onTurn(const Carried& message, Nanos) {
  if (Second* second = of(message.to)) second->begins(message);
}

void ReplayCheck::onTurnEnd(ActorId self, Nanos now) {
  Second* second = of(self);
  if (second == nullptr) return;
  const std::string what = second->ends(now);
  if (!what.empty()) verdict_.violated("A13", "given the same words, the card differs: " + what);
}

}  // namespace qgpu::sim
