#pragma once
// Nodes that have more room than before, and are therefore offered to the tasks that wait; and the
// nodes that have just refused a task, which are offered later. A task that waits is tried on these
// nodes alone, so an idle cluster costs nothing.
//
// Who calls: whoever gives room back (gain), Tasks::wakeWaiting() (which empties the list), and
// Evictions (which looks again only once rooms have changed). A pure core: "now" is an argument.

#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "actors/model.h"
#include "actors/placement/wait_queue.h"
#include "runtime/planted.h"

namespace qgpu {

class FreedRoom {
 public:
  struct Wake {
    std::optional<WaitQueue::Place> upTo;  // the last that was tried, where a bound stopped it
    bool again = false;                    // the node gained more since
  };
  using Nodes = std::map<NodeId, Wake>;

  void gain(NodeId node) {
    if (QGPU_PLANTED(WaitersNotWoken)) return;
    changed_ = true;
    const auto [entry, isNew] = nodes_.try_emplace(node);
    if (!isNew && entry->second.upTo) entry->second.again = true;
  }
  bool gained(NodeId node) const { return nodes_.contains(node); }
  void forget(NodeId node) { nodes_.erase(node); }

  // The node gains at `when`, which is never before that of an earlier call.
  void gainLater(NodeId node, Nanos when) { later_.emplace_back(when, node); }
  void gainDue(Nanos now) {
    while (!later_.empty() && later_.front().first <= now) {
      gain(later_.front().second);
      later_.pop_front();
    }
  }

  // Rooms have changed, or those who want some.
  void change() { changed_ = true; }
  bool takeChanged() { return std::exchange(changed_, false); }

  Nodes& nodes() { return nodes_; }
  bool empty() const { return nodes_.empty(); }

 private:
  Nodes nodes_;
  std::deque<std::pair<Nanos, NodeId>> later_;
  bool changed_ = false;
};

}  // namespace qgpu
