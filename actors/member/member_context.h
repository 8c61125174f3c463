#pragma once
// What every part of the member knows and may do in a turn: ask the node, answer a client, look
// again later. Whoever asks the node says what is done with its answer.
//
// Who calls: all parts of the member. Kept here: C5 (what a full mailbox refused is sent again, in
// order), C6.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/base/asker.h"
#include "actors/base/outbox.h"
#include "actors/member/fault.h"
#include "runtime/actor.h"

namespace qgpu {

struct MemberOptions {
  std::int64_t cpuMilli = 0;  // of this machine; 0: not counted
  Bytes hostMem{0};           // of this machine; 0: not counted
  std::string attachSocket;
  std::vector<std::string> environment;  // NAME=VALUE, of tenants on this node
  Nanos joinMax = seconds(10);           // from the connection to the welcome
  Nanos leaseOverMax = seconds(5);       // then the connection is made anew
  Nanos retryAfter = seconds(5);         // of a scheduler that turned this node away
  Nanos forwardMax = millis(4'500);      // less than the clients wait
  Nanos batch = millis(500);             // of events that ask for the same report
  Nanos refreshEvery = seconds(10);      // of figures of use
  Nanos endAgain = seconds(1);           // of an end that the node could not store
};

struct MemberPeers {
  ActorId node{};
  ActorId link{};  // to the scheduler
};

// Kinds of the member's Tick messages; each goes to the part that asked for it.
enum class MemberTick : std::uint32_t {
  Join,
  Beat,
  Lease,
  LeaseDrop,
  Retry,
  Forward,
  Batch,
  Refresh,
  EndAgain,
  Resend
};

class MemberContext {
 public:
  static constexpr Nanos kResend = millis(20);             // of what a full mailbox refused
  static constexpr std::size_t kRepliesPerClient = 1'024;  // then its own deadline answers

  using Ask = std::function<void(schema::Request::Builder)>;
  using Heard = std::function<void(schema::Reply::Reader, Turn&)>;

  MemberContext(MemberOptions options, MemberPeers peers)
      : options_(std::move(options)), peers_(peers) {}

  const MemberOptions& options() const { return options_; }
  const MemberPeers& peers() const { return peers_; }
  static void later(Turn& turn, Nanos delay, MemberTick kind, std::uint64_t value);

  // `heard` is called once, with the node's answer; null: whatever it is.
  void askNode(Ask ask, Heard heard = nullptr);
  void onReply(schema::Reply::Reader reply, Turn& turn);

  void replyFailed(const Asker& asker, const Fault& why);
  void replyBound(const Asker& asker, std::uint64_t nodeTask, const std::string& token,
                  const std::vector<std::string>& cards);

  // At the end of every turn.
  void flush(Turn& turn);
  void onResendDue() { resendArmed_ = false; }

 private:
  const MemberOptions options_;
  const MemberPeers peers_;
  Outbox outbox_;
  bool resendArmed_ = false;
  std::uint64_t lastCorr_ = 0;
  std::map<std::uint64_t, Heard> asked_;
};

}  // namespace qgpu
