#pragma once
// What the scheduler orders. All orders go to the node in the order in which they came, a few at a
// time; what the node answers is told to the scheduler, if it is still the same connection. Orders
// that the node has not heard of when a connection is over are forgotten: the next hello shows that
// they were not carried out.
//
// Who calls: MemberActor. Kept here: C1 (nothing new is bound without a lease, also where it ran
// out while the order waited), P6 (one effect and one answer for each task and epoch; a stale epoch
// changes nothing), C5 (orders that wait are bounded).

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "actors/member/member_view.h"

namespace qgpu {

class MemberOrders {
 public:
  static constexpr std::size_t kOrdersMax = 4'096;  // that wait for the node
  static constexpr std::size_t kAtNodeMax = 64;     // that the node works on

  MemberOrders(MemberContext& member, MemberSession& session, KnownTasks& known, Forwards& forwards,
               MemberView& view)
      : member_(member), session_(session), known_(known), forwards_(forwards), view_(view) {}

  void onBind(schema::OrderBind::Reader order, Turn& turn);
  void onEnd(schema::OrderEnd::Reader order);
  void onMark(schema::OrderMark::Reader order, Turn& turn);
  // What somebody here asked for is this task, of which an order came before, or it failed.
  void onForwarded(schema::MemberForwarded::Reader message);

  // At the end of every turn: to the node, as many as it takes.
  void send(Turn& turn);
  // Binds that the node has not answered.
  std::size_t bindsAtNode() const { return bindsAtNode_; }
  void onEndAgainDue();
  void forget();

 private:
  struct Order {
    enum class Kind : std::uint8_t { Place, End, Mark };
    Kind kind = Kind::Place;
    std::uint64_t attempt = 0;  // of the connection by which it came
    std::uint64_t task = 0;
    std::uint32_t epoch = 0;
    TaskSpec spec;
    std::vector<std::string> cards;  // of a Mark: the one card
    bool held = false;               // asked again for its answer: nothing new is bound
    std::uint64_t nodeTask = 0;
    std::string reason;
    schema::OrderMark::Mark mark = schema::OrderMark::Mark::UNCORDON;
  };

  Order made(Order::Kind kind) const;
  void askAgain(std::uint64_t task, KnownTask& known);
  void sendOne(Order order);
  static void write(const Order& order, schema::Request::Builder request);
  void onReply(const Order& order, schema::Reply::Reader reply, Turn& turn);
  void onPlaced(const Order& order, schema::Bound::Reader bound, Turn& turn);
  void onNotPlaced(const Order& order, const Fault& why, Turn& turn);
  void onEndReply(const Order& order, schema::Reply::Reader reply, Turn& turn);
  void sayBound(std::uint64_t task, const KnownTask& known, Turn& turn);
  void sayRefused(std::uint64_t task, std::uint32_t epoch, const Fault& why, Turn& turn);

  MemberContext& member_;
  MemberSession& session_;
  KnownTasks& known_;
  Forwards& forwards_;
  MemberView& view_;
  std::deque<Order> orders_;
  std::vector<Order> endsAgain_;
  std::size_t atNode_ = 0;
  std::size_t bindsAtNode_ = 0;
};

}  // namespace qgpu
