#include "actors/membership/membership.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/planted.h"

namespace qgpu {

Membership::Membership(Times times) : times_(times) {
  QGPU_CHECK(times.beat < times.lease && times.lease < times.fence,
             "a lease outlives a beat and ends before its fence");
}

void Membership::setTerm(std::uint64_t term) {
  QGPU_CHECK(term > term_ && byLink_.empty(), "terms grow, and sessions belong to one term");
  term_ = term;
  sessions_ = 0;
}

Membership::Member& Membership::at(MemberId member) {
  const auto index = static_cast<std::size_t>(member);
  QGPU_CHECK(index < members_.size(), "no such member");
  return members_[index];
}

const Membership::Member& Membership::at(MemberId member) const {
  return const_cast<Membership*>(this)->at(member);
}

MemberId Membership::add(Nanos now) {
  QGPU_CHECK(members_.size() < kMembersMax, "the caller has looked at size()");
  const auto id = static_cast<MemberId>(members_.size());
  members_.emplace_back().heard = now;
  watch(id, now + times_.fence);
  return id;
}

void Membership::watch(MemberId id, Nanos until) {
  Member& member = at(id);
  deadlines_.erase({member.watchedUntil, id});
  member.watchedUntil = until;
  deadlines_.emplace(until, id);
}

void Membership::move(Member& member, NodeLife life) {
  if (member.life == NodeLife::Alive) --alive_;
  if (life == NodeLife::Alive) ++alive_;
  member.life = life;
}

Result<std::uint64_t> Membership::open(MemberId id, std::uint32_t link, std::uint32_t incarnation,
                                       Nanos heardAt) {
  Member& member = at(id);
  const bool elsewhere = member.session != 0 && member.link != link;
  if (elsewhere && incarnation <= member.incarnation && heardAt - member.heard <= 2 * times_.beat) {
    return fail(ErrorCode::AlreadyExists,
                "a node of this name has another connection that is alive: two nodes need two "
                "names (--nodename)");
  }
  if (member.session != 0) close(member.link);
  if (byLink_.contains(link)) close(link);  // it said hello under another name before
  member.session = (term_ << 32) | ++sessions_;
  member.link = link;
  member.incarnation = incarnation;
  member.seq = 0;
  member.heard = std::max(member.heard, heardAt);
  byLink_[link] = id;
  move(member, NodeLife::Alive);
  watch(id, deadline(member));
  return member.session;
}

Membership::Arrival Membership::arrived(std::uint32_t link, std::uint64_t session,
                                        std::uint64_t seq) {
  const auto found = byLink_.find(link);
  if (found == byLink_.end()) return Arrival::Stale;
  Member& member = at(found->second);
  if (session != member.session || seq <= member.seq) return Arrival::Stale;
  if (seq != member.seq + 1) return Arrival::Gap;
  member.seq = seq;
  return Arrival::Taken;
}

bool Membership::beat(std::uint32_t link, Nanos now) {
  const auto found = byLink_.find(link);
  if (found == byLink_.end()) return false;
  Member& member = at(found->second);
  member.heard = now;
  if (member.life == NodeLife::Alive) return false;
  move(member, NodeLife::Alive);
  return true;
}

std::optional<MemberId> Membership::close(std::uint32_t link) {
  const auto found = byLink_.find(link);
  if (found == byLink_.end()) return std::nullopt;
  const MemberId id = found->second;
  byLink_.erase(found);
  Member& member = at(id);
  member.session = 0;
  if (member.life == NodeLife::Alive) move(member, NodeLife::Suspect);
  return id;
}

std::vector<std::uint32_t> Membership::links() const {
  std::vector<std::uint32_t> all;
  for (const auto& [link, member] : byLink_) all.push_back(link);
  return all;
}

std::optional<MemberId> Membership::memberOf(std::uint32_t link) const {
  const auto found = byLink_.find(link);
  if (found == byLink_.end()) return std::nullopt;
  return found->second;
}

Nanos Membership::deadline(const Member& member) const {
  const Nanos heard = std::max(member.heard, forgiven_);
  const bool isLease = member.life == NodeLife::Alive || QGPU_PLANTED(PlacedBeforeFence);
  return heard + (isLease ? times_.lease : times_.fence);
}

std::vector<Membership::Moved> Membership::due(Nanos now, std::size_t limit) {
  // Beats that came while nobody ran still wait to be read, so their senders are not to blame.
  if (looked_ != Nanos(0) && now - looked_ > times_.beat) {
    QGPU_MARK(SchedulerSlept);
    forgiven_ = now;
  }
  looked_ = now;
  std::vector<Moved> moved;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now && moved.size() < limit) {
    const MemberId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    Member& member = at(id);
    if (deadline(member) <= now) {
      const bool suspect = member.life == NodeLife::Alive;
      move(member, suspect ? NodeLife::Suspect : NodeLife::Lost);
      moved.push_back({id, member.life});
    }
    if (member.life != NodeLife::Lost) watch(id, deadline(member));
  }
  return moved;
}

}  // namespace qgpu
