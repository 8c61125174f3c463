#pragma once
// One durable change of the node. NodeActor makes one at a time, in three steps: the part that owns
// what changes checks it, writes its rows, and applies it once their commit is known. So nothing
// that it was checked against changes in between, and a commit that fails leaves nothing to undo.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/asker.h"
#include "actors/base/codec.h"
#include "actors/base/event_kinds.h"
#include "runtime/actor.h"

namespace qgpu {

inline constexpr std::size_t kReportPathMax = 1'024;  // bytes

struct NodeChange {
  enum class Kind : std::uint8_t {
    Node,  // the node's own row: at the start, as a probe, to number more events
    Bind,
    End,    // unbind, evict: closes the task, or marks it as evicting while processes live
    Close,  // the row goes, and with it all that the task held
    Policy,
    Mark,    // cordon, uncordon, drain
    Report,  // where the newest report of a card lies
    Permit,  // something that the client does itself; the node permits and audits it
    Term,    // of the scheduler that this node obeys
  };
  Kind kind = Kind::Node;
  std::optional<Asker> asker;  // nobody: the node's own doing
  Who who;
  std::uint64_t task = 0;
  std::string text;      // reason of an End, text of a Permit, path of a Report
  std::string cardText;  // as asked: id, index or "all"
  Policy policy = Policy::BestEffort;
  CardMark mark = CardMark::Ready;
  TaskSpec spec;
  bool forRoom = false;             // an End of the node's own: it gave a card's memory to nobody
  bool ordered = false;             // by the member actor; the task is the one that `spec` names
  std::vector<std::string> wanted;  // ids of the cards that the scheduler chose
  std::uint64_t term = 0;
  // Filled by the check.
  std::vector<std::size_t> cards;
  Placement placement;
  std::string token;
  EventRecord event;              // seq 0: none
  std::uint32_t incarnation = 0;  // as the row of this change has it

  bool isOwnEnd() const {
    return kind == Kind::End && !asker && !forRoom;
  }  // of a task on a drained card
  // The event that goes with it. What is told by whom and when is filled in later.
  void tells(EventKind which, std::uint64_t ofTask, std::string card, std::string what) {
    event = {0, 0, which.name(), ofTask, std::move(card), std::move(what), ""};
  }
};

// What a check finds: rows are to be written, or nothing is left to do, since it answered already.
enum class Need : std::uint8_t { Commit, Nothing };

// The part that owns what a change changes.
class ChangeOwner {
 public:
  // Fills in what the change will do. The asker is told of the error.
  virtual Result<Need> check(NodeChange& change) = 0;
  // Its rows, but for the node's own and the audit, which go with every change.
  virtual void persist(const NodeChange& change, Turn& turn) = 0;
  // Once that is committed; the asker is answered.
  virtual void apply(const NodeChange& change, Turn& turn) = 0;

 protected:
  ~ChangeOwner() = default;
};

}  // namespace qgpu
