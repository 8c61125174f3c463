#pragma once
// One round of the scheduler: the changes that are decided together and committed together, what
// was before each of them, and what leaves once they are committed. And what every part of the
// scheduler may do in a turn: know the time, note an event, answer a client, put an effect off
// until the commit.
//
// A part that changes something durable calls open() and remembers in the round what was before;
// SchedulerActor persists the round, and hands it to the parts again to be undone where the commit
// fails. Kept here: D2 (effects leave after the commit), C2 (who asked is told of a failure).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/durable_shell.h"
#include "actors/base/event_source.h"
#include "actors/join/join_tokens.h"
#include "actors/scheduler/model.h"

namespace qgpu {

// How a task was before a round touched it.
struct JobBefore {
  std::optional<Job> job;  // nothing: it did not exist
  std::optional<Spot> spot;
};

// A message of a node that waits for its turn: schema::FromMember.
struct Heard {
  Words message;
  Nanos at;  // when it arrived
};

// The changes that are decided together and committed together. Everything that leaves because of
// them waits in `effects`.
struct Round {
  std::map<std::uint64_t, JobBefore> jobs;
  std::map<MemberId, NodeMarks> marks;
  std::map<std::uint64_t, Job> ended;
  std::map<RequestKey, std::uint64_t> requests;  // whose they were before; 0: nobody's
  std::uint64_t nextTask = 0;                    // as it was before
  std::size_t members = 0;                       // where nodes are new: how many are stored then
  std::optional<Score> priority;                 // as it was before
  std::optional<std::vector<JoinToken>> tokens;  // as they were before
  std::vector<EventRecord> audits;
  std::vector<std::function<void(Turn&)>> effects;
  std::vector<Asker> askers;                                 // who is told of a failure
  std::vector<Heard> messages;                               // taken up again after a failure
  std::vector<std::pair<MemberId, std::uint64_t>> forwards;  // like askers, with their corr
  std::size_t searches = 0;                                  // for tasks to evict
  bool cluster = false;                                      // the cluster's own row is due
  bool gathered = false;                                     // nobody is waited for any more
  std::uint64_t term = 0;                                    // as that row has it

  bool empty() const {
    return !cluster && jobs.empty() && marks.empty() && members == 0 && audits.empty() &&
           !priority && !tokens;
  }
};

class Rounds {
 public:
  static constexpr std::size_t kTouchedMax = 1'024;        // tasks that a round begins to change
  static constexpr std::size_t kRepliesPerClient = 4'096;  // then the client's own deadline answers

  Rounds(const SchedulerOptions& options, DurableShell& shell, EventSource& feed)
      : options_(options), shell_(shell), feed_(feed) {}

  // --- the round ---
  void begin() { round_ = std::make_unique<Round>(); }
  // What is decided goes into it; between begin() and end() alone.
  Round& open() { return *round_; }
  const Round& open() const { return *round_; }
  bool full() const { return round_->jobs.size() >= kTouchedMax; }
  // To be done once the round is committed, in order; never where its commit fails.
  void after(std::function<void(Turn&)> effect) { round_->effects.push_back(std::move(effect)); }
  std::unique_ptr<Round> end() { return std::move(round_); }

  // --- the turn ---
  void setNow(Nanos now) { now_ = now; }
  Nanos now() const { return now_; }  // loop time
  std::uint64_t unixMs() const;       // the wall clock now
  Outbox& outbox() { return shell_.outbox(); }
  const DurableShell& shell() const { return shell_; }
  EventSource& feed() { return feed_; }

  // --- events ---
  // Told when no round is in flight, so that numbers are told in order. `where`: a node, or
  // node/card.
  void note(EventKind kind, std::uint64_t task, const std::string& where, const std::string& text);
  // Stored with the round, and told once it is committed.
  void audit(EventKind kind, const Who& who, std::uint64_t task, const std::string& where,
             const std::string& text);

  // --- answers; `fill` runs when the message leaves, so it tells what is known then ---
  void reply(const Asker& asker, std::function<void(schema::ClusterReply::Builder)> fill);
  void replyFailed(const Asker& asker, const Error& error);
  void replyDone(const Asker& asker, const std::string& text);

 private:
  const SchedulerOptions& options_;
  DurableShell& shell_;
  EventSource& feed_;
  std::unique_ptr<Round> round_;  // that is decided or in flight
  Nanos now_{0};
};

}  // namespace qgpu
