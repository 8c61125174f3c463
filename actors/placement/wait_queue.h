#pragma once
// Tasks that fit nowhere now, in the order in which they get room: online ones first, then
// ordinary, then offline, and the oldest first within each class. A pure core.
//
// Tasks that ask for the same are one shape: where the oldest of a shape does not fit, none does.
// So when a node gains room, each shape that could go there is looked at once, not each task, and
// nothing is looked at while no node gains any. Shapes that name a node are kept under its name.
//
// Each shape knows why it waits, as somebody who judges rooms has said: the queue keeps the codes
// and counts tasks by them, so that metrics look at no shape.
//
// Kept here: C5 (bounded by kTasksMax), and that the room of a task goes to who waited longest.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/placement/cluster_ledger.h"

namespace qgpu {

class WaitQueue {
 public:
  static constexpr std::size_t kTasksMax = 131'072;

  // A place in the order: class first, then age. The numbers of tasks grow with their age.
  struct Place {
    std::uint32_t rank = 0;  // 0 online, 1 ordinary, 2 offline
    std::uint64_t task = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Candidate {
    Place place;
    const ClusterAsk* ask = nullptr;  // valid until the queue changes
  };
  // Why it fits nowhere: a stable code, and a sentence. Until somebody has judged a shape it waits
  // for nodes to be heard of: that is so for what a restart has found.
  struct Why {
    Reason reason = Reason::StaleState;
    std::string text = "it is not known yet what the nodes hold";
  };

  // What decides whether it fits; scores and applications do not. A group fits as a whole, so its
  // tasks are shapes of their own.
  using Key =
      std::tuple<TaskClass, std::int64_t, std::int64_t, std::uint32_t, std::string, std::string,
                 std::vector<std::string>, std::int64_t, std::int64_t, std::string>;
  static Key keyOf(const ClusterAsk& ask);

  bool full() const { return tasks_.size() >= kTasksMax; }
  // False where it waits already.
  bool add(std::uint64_t task, const ClusterAsk& ask);
  bool remove(std::uint64_t task);
  bool contains(std::uint64_t task) const { return tasks_.contains(task); }

  // Whether a task that asks for the same waits: then this one would not fit either.
  bool waitsAlike(const ClusterAsk& ask) const { return shapes_.contains(keyOf(ask)); }

  // The oldest task of the next shape in the order that may go to the node of this name; `after`
  // is the last one that was looked at, none at the begin.
  std::optional<Candidate> next(const std::string& node, std::optional<Place> after) const;

  // The next task of the same shape behind this one, which waits.
  std::optional<Candidate> behind(const Place& place) const;

  // Of all tasks that ask for the same; nothing changes where none waits.
  void setWhy(const ClusterAsk& ask, Why why);
  bool hasWhy(std::uint64_t task) const;     // somebody has set it; the task waits
  const Why* why(std::uint64_t task) const;  // null: it does not wait
  // What the oldest of its shape asks for; null: it does not wait.
  const ClusterAsk* ask(std::uint64_t task) const;
  // All shapes in turn: the one behind `cursor`, which moves on; null, and no cursor, at the end.
  const ClusterAsk* shapeAfter(std::optional<Key>& cursor) const;
  std::size_t waitingFor(TaskClass taskClass, Reason reason) const;

  std::size_t size() const { return tasks_.size(); }
  std::size_t shapes() const { return shapes_.size(); }

 private:
  struct Shape {
    ClusterAsk ask;
    std::uint32_t rank = 0;
    std::set<std::uint64_t> tasks;
    Why why;
    bool judged = false;
  };
  using Shapes = std::map<Key, Shape>;
  using Heads = std::map<Place, Shapes::iterator>;  // the oldest of each shape

  static const Heads::value_type* following(const Heads& heads, std::optional<Place> after);
  std::size_t& countOf(const Shape& shape);

  Shapes shapes_;
  std::map<std::uint64_t, Shapes::iterator> tasks_;
  std::map<std::string, Heads> heads_;                         // by the node named; "": any
  std::array<std::array<std::size_t, kReasons>, 3> counts_{};  // tasks, by rank and reason
};

}  // namespace qgpu
