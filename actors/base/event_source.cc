#include "actors/base/event_source.h"

namespace qgpu {

void EventSource::tell(EventRecord event) {
  for (const ActorId client : watchers_) {
    outbox_.putWithin(client, kEventsPerClient, [event](schema::Envelope::Builder envelope) {
      writeEvent(event, envelope.initEventTold());
    });
  }
  log_.add(std::move(event));
}

void EventSource::tellNow(EventRecord event) {
  event.seq = take();
  tell(std::move(event));
}

void EventSource::note(EventRecord event) {
  if (notes_.size() < EventLog::kKept) notes_.push_back(std::move(event));
}

void EventSource::tellNotes() {
  for (EventRecord& event : notes_) tellNow(std::move(event));
  notes_.clear();
}

// Numbers that a restart could give out again are not used: the ceiling is raised first.
void EventSource::tellReservedNotes() {
  for (EventRecord& event : notes_) {
    if (next_ >= ceiling_) break;
    tellNow(std::move(event));
  }
  notes_.clear();
}

// One entry for each client: a client passes events on to its own watchers.
Status EventSource::watch(ActorId client, bool on) {
  if (!on) {
    watchers_.erase(client);
  } else if (watchers_.size() < kWatchersMax) {
    watchers_.insert(client);
  } else if (!watchers_.contains(client)) {
    return fail(ErrorCode::Overloaded, std::to_string(watchers_.size()) + " clients watch already");
  }
  return ok();
}

std::vector<EventRecord> EventSource::after(std::uint64_t since) const {
  std::vector<EventRecord> found;
  for (const EventRecord* event : log_.after(since)) found.push_back(*event);
  return found;
}

// How many of the oldest rows go when so many are added.
std::size_t EventSource::surplus(std::size_t added) const {
  const std::size_t kept = audits_.size() + added;
  return std::min(kept > kAuditKept ? kept - kAuditKept : 0, audits_.size());
}

void EventSource::persistAudits(const std::vector<EventRecord>& audits, Turn& turn) const {
  for (const EventRecord& event : audits) {
    turn.persist({RowKind::Audit, event.seq},
                 [&](schema::Row::Builder row) { writeEvent(event, row.initAudit()); });
  }
  for (std::size_t i = 0; i < surplus(audits.size()); ++i) {
    turn.persist({RowKind::Audit, audits_[i]}, [](schema::Row::Builder row) { row.setErased(); });
  }
}

void EventSource::auditsStored(const std::vector<EventRecord>& audits) {
  for (std::size_t gone = surplus(audits.size()); gone > 0; --gone) audits_.pop_front();
  for (const EventRecord& event : audits) audits_.push_back(event.seq);
}

void EventSource::load(std::vector<EventRecord> audits) {
  std::sort(audits.begin(), audits.end(),
            [](const EventRecord& a, const EventRecord& b) { return a.seq < b.seq; });
  for (EventRecord& event : audits) {
    const bool again = !audits_.empty() && event.seq == audits_.back();
    if (again) continue;
    atLeast(event.seq + 1);
    audits_.push_back(event.seq);
    log_.add(std::move(event));
  }
}

}  // namespace qgpu
