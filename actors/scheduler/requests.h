#pragma once
// What clients ask of the scheduler (schema::ClusterRequest). Requests wait here for the next round
// and become part of it, in order: a change is checked and made, a question (lists, explain,
// what-if, events) is answered from memory. Both are answered after the round's commit, so that
// nobody reads what may be undone. The peer in a request is as the kernel or TLS told the client,
// so it is believed.
//
// Who calls: SchedulerActor. Kept here: C2 (one answer for each request), C5 (requests that wait
// are bounded), C7 (what clients send is checked, and every change is audited).

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "actors/join/join_tokens.h"
#include "actors/scheduler/drains.h"
#include "actors/scheduler/plans.h"
#include "actors/scheduler/reports.h"

namespace qgpu {

// A part of SchedulerActor, which owns it and all that its constructor takes, and calls it alone.
class Requests {
 public:
  static constexpr std::size_t kRequestsMax = 4'096;       // that wait for a round
  static constexpr std::size_t kOutboxMax = 65'536;        // beyond it no new change is taken
  static constexpr std::size_t kPageMost = 1'024;          // entries of one page of a list
  static constexpr Nanos kGuessesToldEvery = seconds(60);  // of tokens that nobody made

  Requests(Rounds& rounds, const Members& members, Waiting& waiting, Tasks& tasks, Drains& drains,
           Plans& plans, Reports& reports, JoinTokens& joinTokens)
      : rounds_(rounds),
        members_(members),
        waiting_(waiting),
        tasks_(tasks),
        drains_(drains),
        plans_(plans),
        reports_(reports),
        joinTokens_(joinTokens) {}

  // Keeps a request of the sender of this turn until take(). Overloaded is answered where
  // kRequestsMax wait, or where kOutboxMax messages have not left yet.
  void onClusterRequest(schema::ClusterRequest::Reader request, Turn& turn);
  // Whether requests wait, so that a round is worth opening.
  bool hasWork() const { return !asked_.empty(); }
  // Makes the requests that wait part of the round that is open, until that one is full.
  void take();
  // The loop time from which `uptime` of info counts.
  void start(Nanos now) { startedAt_ = now; }

 private:
  struct Asked {  // a request that waits for its turn
    ActorId client{};
    Words words;
  };

  void onAsked(const Asker& asker, schema::ClusterRequest::Reader request);
  void onQuestion(const Asker& asker, schema::ClusterRequest::Reader request);
  Status onChange(const Asker& asker, schema::ClusterRequest::Reader request);
  Status submit(const Asker& asker, const Who& who, ClusterSpec spec);
  Status repeated(const Asker& asker, std::uint64_t task, const ClusterSpec& spec);
  Status remove(const Asker& asker, const Who& who, std::uint64_t task);
  void tellAssigned(const Asker& asker, const Who& who, std::uint64_t task);
  Status choosePriority(const Asker& asker, const Who& who, Score score);
  Status permit(const Asker& asker, const Who& who, const std::string& what);
  void watch(const Asker& asker, bool on);
  JoinTokens& changeTokens();
  Status invite(const Asker& asker, const Who& who, schema::Invite::Reader invite);
  Status revoke(const Asker& asker, const Who& who, const std::string& id);
  Status admit(const Asker& asker, const Who& who, schema::Admission::Reader shown);
  void tellTokens(const Asker& asker, const std::string& id);

  Rounds& rounds_;
  const Members& members_;
  Waiting& waiting_;
  Tasks& tasks_;
  Drains& drains_;
  Plans& plans_;
  Reports& reports_;
  JoinTokens& joinTokens_;
  std::deque<Asked> asked_;
  std::optional<Nanos> startedAt_;
  std::optional<Nanos> refusedAt_;  // of a token that nobody made; told then
};

}  // namespace qgpu
