#include "tests/sim/crowd.h"

#include <algorithm>
#include <cstdio>
#include <kj/string-tree.h>

#include "services/wire/gate_abi.h"

namespace qgpu::sim {
namespace {

const char* name(GuestNews::Kind kind) {
  constexpr const char* kNames[] = {"attached",  "waits",  "submitted", "started", "frozen",
                                    "thawed",    "undone", "retired",   "died",    "bytes returned",
                                    "allocated", "freed",  "refused",   "failed",  "orphaned",
                                    "lies",      "silent", "disobeys"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace

// --- Crowd ---

void Crowd::onPhase(Phase phase, Nanos now) {
  for (Watch* watch : watches_) watch->onPhase(phase, now);
}
void Crowd::onBoot(const Boot& boot, Nanos now) {
  for (Watch* watch : watches_) watch->onBoot(boot, now);
}
void Crowd::onEnd(Ending ending, Nanos now) {
  for (Watch* watch : watches_) watch->onEnd(ending, now);
}
void Crowd::onSent(const Carried& message, Nanos now) {
  for (Watch* watch : watches_) watch->onSent(message, now);
}
void Crowd::onRefused(ActorId from, ActorId to, Nanos now) {
  for (Watch* watch : watches_) watch->onRefused(from, to, now);
}
void Crowd::onTurn(const Carried& message, Nanos now) {
  for (Watch* watch : watches_) watch->onTurn(message, now);
}
void Crowd::onTurnEnd(ActorId self, Nanos now) {
  for (Watch* watch : watches_) watch->onTurnEnd(self, now);
}
void Crowd::onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                       Nanos now) {
  for (Watch* watch : watches_) watch->onAppended(batch, self, rows, now);
}
void Crowd::onAnswered(std::uint64_t batch, const Status& status, Nanos now) {
  for (Watch* watch : watches_) watch->onAnswered(batch, status, now);
}
void Crowd::onGate(const GateStore& store, Nanos now) {
  for (Watch* watch : watches_) watch->onGate(store, now);
}
void Crowd::onGuest(const GuestNews& news, Nanos now) {
  for (Watch* watch : watches_) watch->onGuest(news, now);
}

// --- Tracer ---

std::string Tracer::who(ActorId id) const {
  if (id == boot_.node) return "node";
  if (id == boot_.attach) return "attach";
  for (std::size_t i = 0; i < boot_.cards.size(); ++i) {
    if (id == boot_.cards[i].actor) return "card" + std::to_string(i);
  }
  const auto task = std::find(boot_.tasks.begin(), boot_.tasks.end(), id);
  if (task != boot_.tasks.end()) return "slot" + std::to_string(task - boot_.tasks.begin());
  const auto client = std::find(boot_.clients.begin(), boot_.clients.end(), id);
  if (client != boot_.clients.end()) return "client";
  return id == ActorId::kNobody ? "nobody" : "#" + std::to_string(static_cast<unsigned>(id));
}

void Tracer::line(Nanos now, const std::string& text) const {
  if (open_) std::printf("%14.6f ms  %s\n", static_cast<double>(now.value) / 1e6, text.c_str());
}

void Tracer::onPhase(Phase phase, Nanos now) {
  constexpr const char* kNames[] = {"safety", "liveness", "restart"};
  line(now, std::string("--- phase ") + kNames[static_cast<std::size_t>(phase)]);
}

void Tracer::onBoot(const Boot& boot, Nanos now) {
  boot_ = boot;
  line(now, "--- manager " + std::to_string(boot.life) + ", incarnation " +
                std::to_string(boot.incarnation) + ", rows " + std::to_string(boot.rows.size()));
}

void Tracer::onEnd(Ending ending, Nanos now) {
  constexpr const char* kNames[] = {"killed", "power lost", "stopped"};
  line(now, std::string("--- manager ") + kNames[static_cast<std::size_t>(ending)]);
}

void Tracer::onRefused(ActorId from, ActorId to, Nanos now) {
  if (open_) line(now, who(from) + " -> " + who(to) + " refused: mailbox full");
}

void Tracer::onTurn(const Carried& message, Nanos now) {
  if (!open_) return;
  const kj::String text = kj::str(message.message);
  line(now, who(message.from) + (message.lane == Lane::Control ? " => " : " -> ") +
                who(message.to) + " " + text.cStr());
}

void Tracer::onAppended(std::uint64_t batch, ActorId, const std::vector<StoredRow>& rows,
                        Nanos now) {
  if (!open_) return;
  std::string text = "batch " + std::to_string(batch) + ":";
  for (const StoredRow& row : rows) {
    const auto reader = capnp::readMessageUnchecked<schema::Row>(row.words.data());
    text += std::string(" ") + kj::str(reader).cStr();
  }
  line(now, text);
}

void Tracer::onAnswered(std::uint64_t batch, const Status& status, Nanos now) {
  if (!open_) return;
  line(now, "batch " + std::to_string(batch) +
                (status.ok() ? " committed" : " failed: " + status.error().message));
}

void Tracer::onGate(const GateStore& store, Nanos now) {
  if (!open_) return;
  std::string text = "gate of task " + std::to_string(store.task) + " epoch " +
                     std::to_string(store.epoch) +
                     ((store.flags & QGPU_GATE_OPEN) != 0 ? " open" : " shut");
  if ((store.flags & QGPU_GATE_NOTIFY) != 0) text += " notify";
  if ((store.flags & QGPU_GATE_CONTENDED) != 0) text += " contended";
  if ((store.flags & QGPU_GATE_FROZEN) != 0) text += " frozen";
  line(now, text + (store.closed ? " closed" : ""));
}

void Tracer::onGuest(const GuestNews& news, Nanos now) {
  if (!open_) return;
  line(now, "task " + std::to_string(news.task) + " process " + std::to_string(news.process) + " " +
                name(news.kind) + (news.amount != 0 ? " " + std::to_string(news.amount) : "") +
                " (" + std::to_string(news.inFlight) + " in flight, " +
                std::to_string(news.waiting) + " wait)");
}

}  // namespace qgpu::sim
