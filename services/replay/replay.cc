#include "services/replay/replay.h"

#include <algorithm>
#include <cstring>
#include <kj/exception.h>
#include <utility>
#include <vector>

#include "services/base/wall_time.h"
#include "services/replay/difference.h"

namespace qgpu {
namespace {

constexpr ActorId kAsks{0xffff'ffff};  // no actor of a recording

Error noBegin(const RecordingReader& from) {
  return fail(ErrorCode::Corrupt, from.name() + " does not begin as a recording does");
}

std::int64_t dateOf(schema::Turn::Reader turn) {
  return turn.getUnixMsAtZero() + Nanos(turn.getNowNs()) / millis(1);
}

bool same(const Words& a, const Words& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(capnp::word)) == 0;
}

}  // namespace

Result<std::unique_ptr<SchedulerReplay>> SchedulerReplay::open(
    std::unique_ptr<RecordingReader> from) {
  std::unique_ptr<SchedulerReplay> replay(new SchedulerReplay(std::move(from)));
  Status loaded = ok();
  const auto failure = kj::runCatchingExceptions([&] { loaded = replay->load(); });
  if (failure != nullptr) return noBegin(*replay->from_);
  if (!loaded) return loaded.error();
  return replay;
}

Status SchedulerReplay::load() {
  if (from_->at() == RecordingReader::At::Damage) return from_->damage();
  if (from_->at() != RecordingReader::At::Record) return ok();  // cut: there are no turns
  if (!from_->record().isBegan()) return noBegin(*from_);
  const auto began = from_->record().getBegan();
  life_ = readLife(began);
  unixMsAtZero_ = began.getUnixMsAtZero();
  SchedulerOptions options = readOptions(began.getOptions());
  const auto& [beat, lease, fence] = options.times;
  if (beat >= lease || lease >= fence) return noBegin(*from_);
  recorder_.emplace(static_cast<TurnHost&>(*this), static_cast<RecordSink&>(*this), life_.seed,
                    [this] { return unixMsAtZero_; });
  options.unixMsAtZero = recorder_->date();
  std::vector<StoredRow> rows;
  from_->next();
  for (; from_->at() == RecordingReader::At::Record && from_->record().isRow(); from_->next()) {
    rows.push_back(readRecordedRow(from_->record().getRow()));
  }
  if (from_->at() == RecordingReader::At::Damage) return from_->damage();
  actor_ = std::make_unique<SchedulerActor>(std::move(options), life_.peers, rows);
  recorder_->attach(*actor_);
  return ok();
}

Status SchedulerReplay::run(std::int64_t untilUnixMs) {
  const auto failure = kj::runCatchingExceptions([&] {
    while (from_->at() == RecordingReader::At::Record && seen_.difference.empty()) {
      const auto record = from_->record();
      if (record.isEnded()) {
        seen_.ended = record.getEnded().cStr();
        return;
      }
      if (!record.isTurn()) return differs("recorded, it " + inWords(record) + "; now it does not");
      if (dateOf(record.getTurn()) > untilUnixMs) return;
      turn();
    }
  });
  if (failure != nullptr) {
    return fail(ErrorCode::Corrupt,
                from_->name() + " is damaged: " + turnText_ + " does not decode");
  }
  if (from_->at() == RecordingReader::At::Damage) return from_->damage();
  seen_.cut = from_->at() != RecordingReader::At::Record;
  return ok();
}

// The reader goes on while the actor reads its message, so that lies here.
void SchedulerReplay::turn() {
  const Words words = from_->words();
  const kj::ArrayPtr<const capnp::word> segment = kj::arrayPtr(words.data(), words.size());
  capnp::ReaderOptions limits;
  limits.traversalLimitInWords += 16 * words.size();
  capnp::SegmentArrayMessageReader message(kj::arrayPtr(&segment, 1), limits);
  const auto told = message.getRoot<schema::Recorded>().getTurn();
  unixMsAtZero_ = told.getUnixMsAtZero();
  seen_.lastUnixMs = dateOf(told);
  if (seen_.turns++ == 0) seen_.firstUnixMs = seen_.lastUnixMs;
  turnText_ = "turn " + std::to_string(seen_.turns) + " at " + rfc3339Micro(seen_.lastUnixMs) +
              ", " + kindOf(told.getMessage()) + " of actor " + std::to_string(told.getSender());
  now_ = Nanos(told.getNowNs());
  const auto sender = static_cast<ActorId>(told.getSender());
  if (sender == life_.self && !own_.empty()) heard(told.getMessage());
  give(told.getMessage(), sender, now_);
}

// A timer's message is not among them, and one that is not their first may have overtaken it.
void SchedulerReplay::heard(schema::Envelope::Reader message) {
  const Words words = flatten(message);
  const auto it =
      std::find_if(own_.begin(), own_.end(), [&](const Words& own) { return same(own, words); });
  if (it != own_.end()) own_.erase(it);
}

void SchedulerReplay::give(schema::Envelope::Reader message, ActorId sender, Nanos now) {
  Prng unused(0);  // the recorder has one of its own
  Turn turn(*this, life_.self, sender, now, unused);
  recorder_->handle(message, turn);
}

void SchedulerReplay::differs(const std::string& how) {
  if (seen_.difference.empty()) seen_.difference = turnText_ + ": " + how;
}

void SchedulerReplay::count(schema::Recorded::Reader record) {
  if (record.isStored()) ++seen_.rows;
  if (!record.isSent() || !record.getSent().getMessage().isToMember()) return;
  const auto words = record.getSent().getMessage().getToMember();
  if (words.isBind() || words.isEnd()) ++seen_.orders;
}

void SchedulerReplay::put(Words record) {
  if (!seen_.difference.empty()) return;
  if (from_->at() != RecordingReader::At::Record) return;  // cut, or damaged, within a turn
  if (same(record, from_->words())) {
    count(from_->record());
    return from_->next();
  }
  differs(
      differenceOf(from_->record(), capnp::readMessageUnchecked<schema::Recorded>(record.data())));
}

Result<Words> SchedulerReplay::ask(const Fill& fill) {
  const Error tooShort =
      fail(ErrorCode::NotFound, from_->name() + " ends before the scheduler can answer");
  if (actor_ == nullptr) return tooShort;
  asks_ = true;
  capnp::MallocMessageBuilder builder;
  auto request = builder.initRoot<schema::Envelope>().initClusterRequest();
  request.setMayChange(true);
  fill(request);
  give(builder.getRoot<schema::Envelope>().asReader(), kAsks, now_);
  // It answers once a commit that is under way is known.
  while (answer_.empty() && from_->at() == RecordingReader::At::Record) {
    if (from_->record().isTurn()) turn();
    from_->next();
  }
  // Where the recording ends before that, it is taken for done.
  while (answer_.empty() && !own_.empty()) {
    const Words words = std::move(own_.front());
    own_.pop_front();
    give(readEnvelope(words.data()), life_.self, now_);
  }
  if (answer_.empty()) return tooShort;
  return std::move(answer_);
}

// --- TurnHost ---

capnp::MessageBuilder* SchedulerReplay::beginSend(ActorId, ActorId to, Lane lane) {
  const bool wasFull = !asks_ && lane == Lane::Ordinary &&
                       from_->at() == RecordingReader::At::Record && from_->record().isRefused() &&
                       from_->record().getRefused() == static_cast<std::uint32_t>(to);
  to_ = to;
  return wasFull ? nullptr : scratch_.begin();
}

void SchedulerReplay::finishSend() {
  const Words words = scratch_.finish<schema::Envelope>();
  const auto message = readEnvelope(words.data());
  if (to_ == life_.self) own_.push_back(flatten(message));
  if (to_ == kAsks && message.isClusterReply()) answer_ = flatten(message.getClusterReply());
}

capnp::MessageBuilder* SchedulerReplay::beginTimer(ActorId, Nanos, TimerId& id) {
  const bool known = from_->at() == RecordingReader::At::Record && from_->record().isTimer();
  if (known) id = static_cast<TimerId>(from_->record().getTimer().getId());
  return scratch_.begin();
}

}  // namespace qgpu
