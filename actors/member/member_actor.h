#pragma once
// The member actor: a node's part in a cluster. Towards the node actor it is a client: it asks what
// the node has, carries out what the scheduler ordered, and answers local binds, which it forwards.
// Towards the scheduler it speaks FromMember and hears ToMember, through a link that connects. What
// it knows stands in parts, each with its own state, header and test:
//
//   MemberSession  the connection, the lease      KnownTasks     the scheduler's tasks here
//   Forwards       binds that are asked for here  MemberView     what the node has and has told
//   MemberOrders   what the scheduler orders      MemberContext  what every part may do in a turn
//
// Parts know one another only downwards, in the order of the members below.

#include <cstdint>
#include <string>

#include "actors/member/member_orders.h"

namespace qgpu {

class MemberActor final : public Actor, private MemberSession::Owner {
 public:
  MemberActor(MemberOptions options, MemberPeers peers) : member_(std::move(options), peers) {}

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  MemberState state() const { return session_.state(); }
  std::uint64_t termSeen() const { return session_.termSeen(); }
  std::uint64_t dropped() const { return session_.dropped(); }
  std::size_t forwards() const { return forwards_.size(); }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onLinkUp(capnp::Void, Turn& turn);
  void onLinkDown(capnp::Text::Reader why, Turn& turn);
  void onToMember(schema::ToMember::Reader message, Turn& turn);
  void onRequest(schema::Request::Reader request, Turn& turn) {
    forwards_.onRequest(request, view_.nodeName(), turn);
  }
  void onReply(schema::Reply::Reader reply, Turn& turn) { member_.onReply(reply, turn); }
  void onEventTold(schema::Event::Reader event, Turn& turn) { view_.onEventTold(event, turn); }
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  // MemberSession::Owner
  void onEntered(Turn& turn) override { view_.onEntered(turn); }
  void onLeft(const std::string& why) override;

  MemberContext member_;
  MemberSession session_{member_, *this};
  KnownTasks known_;
  Forwards forwards_{member_, session_, known_};
  MemberView view_{member_, session_, known_, forwards_};
  MemberOrders orders_{member_, session_, known_, forwards_, view_};
};

}  // namespace qgpu
