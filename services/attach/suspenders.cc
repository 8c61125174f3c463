#include "services/attach/suspenders.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include "runtime/realtime.h"
#include "services/cards/suspend/driver_calls.h"

namespace qgpu {
namespace {

suspend::CardName nameOf(const Card& card) {
  return {card.id, card.layoutVersion(), card.minor};
}

std::unique_ptr<suspend::CardCheck> checkOf(const Card& card, const std::string& probe) {
  if (probe.empty()) return nullptr;
  return std::make_unique<suspend::ProbeCheck>(nameOf(card), *card.method, probe);
}

Result<std::unique_ptr<suspend::Calls>> openDriver(const Card& card) {
  auto opened = suspend::DriverCalls::open(nameOf(card));
  if (!opened) return opened.error();
  return std::unique_ptr<suspend::Calls>(std::move(*opened));
}

suspend::Channel channelOf(const qgpu_note& note, std::uint32_t process) {
  return {note.client, note.object, note.group, note.engine, process, note.fd, note.device};
}

}  // namespace

Suspenders::Suspenders(Loop& loop, std::vector<Card>& cards, SuspendersOptions options, OnNews news)
    : loop_(loop), news_(std::move(news)) {
  for (Card& card : cards) {
    cards_.emplace_back();
    if (card.suspend != schema::Suspend::RM || !card.method) continue;
    auto calls = options.open ? options.open(card) : openDriver(card);
    if (!calls) {
      card.suspend = schema::Suspend::GATE;
      card.suspendWhy = calls.error().message;
      continue;
    }
    const auto tell = [this, here = std::weak_ptr(here_), index = card.index](suspend::News said) {
      loop_.post([this, here, index, said = std::move(said)] {
        if (!here.expired()) news_(index, said);
      });
    };
    cards_.back() = std::make_unique<suspend::Suspender>(
        std::move(*calls), *card.method, tell,
        [realtime = options.realtime] { return realtime ? void(askRealtime()) : void(); },
        checkOf(card, options.probe));
  }
}

Suspenders::~Suspenders() {
  for (const auto& card : cards_) {
    if (card) card->end();
  }
  cards_.clear();  // what they tell to their end is posted, and forgotten
}

suspend::Suspender* Suspenders::of(const GuestTask& task) const {
  return task.cards.empty() ? nullptr : cards_.at(task.cards.front()).get();
}

void Suspenders::hold(const GuestTask& task) {
  if (auto* card = of(task)) card->hold(task.id, task.gate.ask);
}

void Suspenders::release(const GuestTask& task) {
  if (auto* card = of(task)) card->release(task.id);
}

void Suspenders::again(const GuestTask& task) {
  if (auto* card = of(task)) card->again(task.id);
}

void Suspenders::attached(const GuestTask& task, const GuestProcess& process) {
  auto* card = of(task);
  if (!card) return;
  Fd pidfd(::fcntl(process.pidfd.get(), F_DUPFD_CLOEXEC, 0));
  if (!pidfd) {
    const std::string why = std::strerror(errno);
    return card->doubt(task.id, "a process of it can't be reached: " + why);
  }
  card->attached(process.entry.pid, std::move(pidfd));
}

void Suspenders::gone(const GuestTask& task, const GuestProcess& process) {
  if (auto* card = of(task)) card->gone(task.id, process.entry.pid);
}

void Suspenders::removed(const GuestTask& task) {
  if (auto* card = of(task)) card->removed(task.id);
}

bool Suspenders::noted(const GuestTask& task, const GuestProcess& process, const qgpu_note& note) {
  auto* card = of(task);
  if (!card || note.magic != QGPU_NOTE_MAGIC) return false;
  switch (note.what) {
    case QGPU_NOTE_MADE:
    case QGPU_NOTE_THERE:
      card->made(task.id, channelOf(note, process.entry.pid), note.what == QGPU_NOTE_THERE);
      return true;
    case QGPU_NOTE_ENABLED:
      card->enabled(task.id, note.client, note.object);
      return true;
    case QGPU_NOTE_ENDED:
      card->ended(task.id, note.client, note.object);
      return true;
    default:
      return false;
  }
}

}  // namespace qgpu
