#pragma once
// The life of a binding between its commit and its end, see the head of schema/envelope.capnp: it
// is introduced to its task actor, to the attach server, and only then, since its gate can be
// driven, to its cards; who asked for it is answered; facts come of its processes and its owner;
// and it ends. An end is a durable change. Where processes are attached they get a grace first, in
// which they launch nothing more, and the binding is closed once the last one has left. Nobody is
// attached and the reason to stay is gone: it is closed as soon as that can be stored.
//
// Who calls: NodeActor (changes and messages). Kept here: P9 (a task whose owner is dead and that
// nobody is attached to is released, also where nothing could be stored when that happened), C2
// (who asked for a bind is answered within NodeOptions.introduceMax).

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "actors/node/bindings.h"
#include "actors/node/node_cards.h"

namespace qgpu {

class TaskLife final : public ChangeOwner {
 public:
  TaskLife(NodeContext& node, NodeCards& cards, Bindings& bindings)
      : node_(node), cards_(cards), bindings_(bindings) {}

  // --- the introduction ---
  void introduce(std::uint64_t task, Binding& binding, Turn& turn);
  void introduceAll(Turn& turn);

  // --- what is told of tasks; of those that are not here nothing is heeded (A10) ---
  void onGateOpened(schema::GateRegistered::Reader opened, Turn& turn);
  void onTaskFact(schema::TaskFact::Reader fact);
  void onOwnerGone(schema::Left::Reader gone, Turn& turn);
  // Of the attach room; kinds that it does not tell are not noted.
  void onEventTold(schema::Event::Reader told);
  // Of a card: the task gave none of its memory for what another one was refused.
  void onRoomNeeded(schema::RoomNeeded::Reader room);
  void onTick(NodeTick kind, std::uint64_t task);

  // --- ChangeOwner, of the kinds Bind, End and Close ---
  // Errors: of Bindings::check(); NotFound, Denied. An End of a task that nobody is attached to
  // becomes a Close.
  Result<Need> check(NodeChange& change) override;
  void persist(const NodeChange& change, Turn& turn) override;
  void apply(const NodeChange& change, Turn& turn) override;
  // Tasks whose binding is over, and still to be closed.
  bool anyToClose() const { return !toClose_.empty(); }
  std::uint64_t nextToClose() const { return *toClose_.begin(); }
  // Tasks that are to be ended for the memory of their card.
  bool anyEndsForRoom() const { return !forRoom_.empty(); }
  NodeChange takeEndForRoom();
  void endsForRoom(std::uint64_t task, const std::string& why) { forRoom_[task] = why; }

 private:
  void tellKnown(ActorId to, std::uint64_t task, const Binding& binding);
  void becomeLive(std::uint64_t task, Binding& binding, Turn& turn);
  void onIntroduceDue(std::uint64_t task, Binding& binding);
  void onOwnerCheck(std::uint64_t task, Binding& binding);
  void onKillDue(std::uint64_t task, Binding& binding);
  Result<Need> checkEnd(NodeChange& end);
  Need checkClose(NodeChange& close) const;
  void findOrdered(NodeChange& end);
  void applyEvict(const NodeChange& end, Turn& turn);
  void applyClose(const NodeChange& end);
  void startEviction(std::uint64_t task, const Binding& binding, Nanos grace, Turn& turn);
  void closeLater(std::uint64_t task, Binding& binding, const std::string& reason);

  NodeContext& node_;
  NodeCards& cards_;
  Bindings& bindings_;
  std::set<std::uint64_t> toClose_;
  std::map<std::uint64_t, std::string> forRoom_;  // why, by task
};

}  // namespace qgpu
