#pragma once
// Binds that somebody on this node asks for while a scheduler places its tasks: they are forwarded,
// and answered with what became of them, or when their time is up.
//
// Who calls: MemberActor (requests, the tick of the deadline, the end of a connection),
// MemberOrders and MemberView (what became of a task). Kept here: C2 (each forwarded bind has one
// answer), C5.

#include <cstdint>
#include <map>
#include <string>

#include "actors/member/known_tasks.h"
#include "actors/member/member_session.h"

namespace qgpu {

class Forwards {
 public:
  static constexpr std::size_t kForwardsMax = 256;  // that wait for the scheduler

  Forwards(MemberContext& member, MemberSession& session, KnownTasks& known)
      : member_(member), session_(session), known_(known) {}

  std::size_t size() const { return forwards_.size(); }

  // `node`: the name of this one, the only one that will do.
  void onRequest(schema::Request::Reader request, const std::string& node, Turn& turn);
  // The scheduler made it this task, of which an order came before. False: nobody waits for it.
  bool becomes(std::uint64_t forward, std::uint64_t task);
  // All that wait for this task, as it stands; where it is asked for they wait on.
  void settle(std::uint64_t task);

  void fail(std::uint64_t forward, const Fault& why);
  void failTask(std::uint64_t task, const Fault& why);
  void failAll(const Fault& why);
  void onTick(Turn& turn);

 private:
  struct Forward {
    Asker asker;
    Nanos until;
    std::uint64_t task = 0;  // what became of it; 0: nothing yet
  };

  void onDue(Turn& turn);

  MemberContext& member_;
  MemberSession& session_;
  KnownTasks& known_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Forward> forwards_;  // in the order of their deadlines
  bool armed_ = false;
};

}  // namespace qgpu
