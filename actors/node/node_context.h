#pragma once
// What every part of the node knows and may do in a turn: who the node is and whom it speaks to,
// the time, events, messages to other actors, answers to clients, ticks. Of its own it has the
// time.
//
// Who calls: all parts of the node. Kept here: D2 (messages leave when the shell lets them; events
// that come while a change is in flight are numbered after it), C5 (a client that does not read has
// kRepliesPerClient answers, and then its own deadline).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "actors/base/durable_shell.h"
#include "actors/base/event_source.h"
#include "actors/node/node_options.h"

namespace qgpu {

// Kinds of the node's Tick messages; each goes to the part that asked for it.
enum class NodeTick : std::uint32_t {
  Introduce = DurableShell::kTickOwn,
  OwnerCheck,
  Kill,
  Gather
};

class NodeContext {
 public:
  static constexpr std::size_t kRepliesPerClient = 1'024;

  NodeContext(const NodeOptions& options, const NodePeers& peers, DurableShell& shell,
              EventSource& feed)
      : options_(options), peers_(peers), shell_(shell), feed_(feed) {}

  const NodeOptions& options() const { return options_; }
  const NodePeers& peers() const { return peers_; }
  const DurableShell& shell() const { return shell_; }
  EventSource& feed() { return feed_; }

  void setNow(Nanos now) { now_ = now; }
  Nanos now() const { return now_; }  // loop time
  std::uint64_t unixMs() const;       // the wall clock now
  static void later(Turn& turn, Nanos delay, NodeTick kind, std::uint64_t value);

  // Told now, or after the change in flight, so that numbers are told in order.
  void note(EventKind kind, std::uint64_t task, const std::string& card, const std::string& text);

  // To other actors; `build` runs when the message leaves.
  void tell(ActorId to, Outbox::Build build) { shell_.outbox().put(to, std::move(build)); }
  // False where `limit` messages wait for that actor already.
  bool tellWithin(ActorId to, std::size_t limit, Outbox::Build build) {
    return shell_.outbox().putWithin(to, limit, std::move(build));
  }
  // The task is over; `kill`: its processes are ended if they don't go by themselves.
  void tellClosed(ActorId to, std::uint64_t task, bool kill, const std::string& reason);

  // To who asked, if anybody did; `fill` runs when the message leaves.
  void reply(const Asker& asker, std::function<void(schema::Reply::Builder)> fill);
  void replyFailed(const std::optional<Asker>& asker, const Error& error);
  void replyDone(const std::optional<Asker>& asker, const std::string& text);

 private:
  const NodeOptions& options_;
  const NodePeers& peers_;
  DurableShell& shell_;
  EventSource& feed_;
  Nanos now_{0};
};

}  // namespace qgpu
