#pragma once
// Ordinary messages of one actor that wait to leave: for the commit before them, or for room in a
// full mailbox. An ordinary send may be refused, and a turn that persists loses its sends when the
// commit fails; what must arrive goes through here, in order for each receiver.
//
// Kept here: C5 (refusal is handled, nothing is lost silently), C6 (FIFO per receiver).

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "runtime/actor.h"
#include "runtime/planted.h"

namespace qgpu {

class Outbox {
 public:
  using Build = std::function<void(schema::Envelope::Builder)>;

  void put(ActorId to, Build build) {
    waiting_[to].push_back(std::move(build));
    ++size_;
  }

  // For what may be left out when its receiver lags: false where `limit` messages wait already.
  bool putWithin(ActorId to, std::size_t limit, Build build) {
    if (waitingFor(to) >= limit) return false;
    put(to, std::move(build));
    return true;
  }

  // Sends what receivers take. What is refused stays, ahead of anything newer to that receiver.
  void flush(Turn& turn) {
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      std::deque<Build>& queue = entry->second;
      while (!queue.empty()) {
        const bool sent = turn.send(entry->first, queue.front()) == SendResult::Sent;
        if (!sent) QGPU_MARK(OutboxRefused);
        if (!sent && !QGPU_PLANTED(RefusedSendDropped)) break;
        queue.pop_front();
        --size_;
      }
      entry = queue.empty() ? waiting_.erase(entry) : std::next(entry);
    }
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::size_t waitingFor(ActorId to) const {
    const auto found = waiting_.find(to);
    return found == waiting_.end() ? 0 : found->second.size();
  }

 private:
  std::map<ActorId, std::deque<Build>> waiting_;
  std::size_t size_ = 0;
};

}  // namespace qgpu
