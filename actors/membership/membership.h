#pragma once
// Who belongs to a cluster now: the session of each node, when its lease ends and when it counts as
// lost. A pure core: no clock, "now" is an argument, and loop times never go back.
//
// A node renews its lease with each beat. At the end of the lease it is suspect: it gets nothing
// new, and it keeps what it has. Only after the fence time, when the node itself has refused to
// start anything for a while, is it lost. A beat costs O(1): it moves a time, and the one ordered
// structure of deadlines is looked at only when the earliest of them is due.
//
// Kept here: C1 (sessions of one term, the fence is longer than the lease), C3 (suspicion is not
// death), P6 and A10 (messages of another session, or out of order, are told apart).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/model.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

class Membership {
 public:
  struct Times {
    Nanos beat = seconds(5);
    Nanos lease = seconds(15);  // from a beat to suspicion
    Nanos fence = seconds(20);  // from a beat to loss
  };
  static constexpr std::size_t kMembersMax = 16'384;

  explicit Membership(Times times);

  // Sessions of a later term never have a number of an earlier one.
  void setTerm(std::uint64_t term);
  std::uint64_t term() const { return term_; }

  // A node that is known and was not heard of yet: it is joining, and lost after the fence.
  MemberId add(Nanos now);

  // A node said hello by `link`; that was heard at `heardAt`. AlreadyExists where it has a session
  // by another link that was heard of since or within two beats before, unless its manager is a
  // later one. A session that it had is over.
  Result<std::uint64_t> open(MemberId member, std::uint32_t link, std::uint32_t incarnation,
                             Nanos heardAt);

  enum class Arrival : std::uint8_t {
    Taken,
    Stale,  // of another session: to be dropped
    Gap,    // something before it was lost: the session is to be closed
  };
  // A message of a session arrived. Numbers start at 1 and have no gaps.
  Arrival arrived(std::uint32_t link, std::uint64_t session, std::uint64_t seq);
  // The lease of the session by this link begins anew. True where that ended a suspicion.
  bool beat(std::uint32_t link, Nanos now);

  // The session by this link is over, and its node suspect until it says hello again or the fence
  // passes. Nobody where the link had no session.
  std::optional<MemberId> close(std::uint32_t link);
  std::vector<std::uint32_t> links() const;

  struct Moved {
    MemberId member{};
    NodeLife life = NodeLife::Joining;
  };
  // Whose lease or fence time ran out by now, at most `limit` of them. Whoever looks so late that
  // it must have slept forgives what it may have missed.
  std::vector<Moved> due(Nanos now, std::size_t limit);

  NodeLife life(MemberId member) const { return at(member).life; }
  // 0: none now.
  std::uint64_t session(MemberId member) const { return at(member).session; }
  std::uint32_t link(MemberId member) const { return at(member).link; }
  std::optional<MemberId> memberOf(std::uint32_t link) const;
  std::size_t size() const { return members_.size(); }
  std::size_t alive() const { return alive_; }

 private:
  struct Member {
    NodeLife life = NodeLife::Joining;
    Nanos heard{0};
    std::uint64_t session = 0;
    std::uint32_t link = 0;
    std::uint32_t incarnation = 0;
    std::uint64_t seq = 0;  // of the last message
    Nanos watchedUntil{0};  // of its one entry in deadlines_, if it has one
  };

  Member& at(MemberId member);
  const Member& at(MemberId member) const;
  void move(Member& member, NodeLife life);
  void watch(MemberId id, Nanos until);
  Nanos deadline(const Member& member) const;

  const Times times_;
  std::uint64_t term_ = 0;
  std::uint64_t sessions_ = 0;
  std::vector<Member> members_;
  std::map<std::uint32_t, MemberId> byLink_;
  // One entry for each member that is not lost, never later than its true deadline: beats do not
  // touch it, and an entry that turns out to be early is put back.
  std::set<std::pair<Nanos, MemberId>> deadlines_;
  Nanos forgiven_{0};  // nobody was heard of before this time
  Nanos looked_{0};
  std::size_t alive_ = 0;
};

}  // namespace qgpu
