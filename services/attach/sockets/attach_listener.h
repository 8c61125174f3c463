#pragma once
// The attach socket: RUN_DIR/attach.sock (SOCK_SEQPACKET), which anybody on the machine may knock
// at. It takes connections, hears their first words and turns away who has no token, on a loop that
// no card waits for; only a connection with the token of a task goes on to the attach server (C7).
//
// Each uid has so many connections that have shown no token yet, each task so many that have. Who
// is over is let in all the same where its token is there at once, so that a uid that floods the
// listener keeps no tenant of the same uid out. While the node has not told of all its tasks, a
// token that nobody has yet is waited for.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "runtime/fd.h"
#include "runtime/loop.h"
#include "runtime/result.h"
#include "services/attach/roster/roster.h"
#include "services/attach/sockets/arrival_buckets.h"
#include "services/attach/sockets/token_book.h"

namespace qgpu {

inline constexpr std::size_t kHellosMax = 64;  // connections that have not said hello yet
inline constexpr int kAcceptsPerTurn = 16;
inline constexpr std::size_t kComersMax = 1'024;  // uids that are told apart

// A connection that said the token of a task.
struct Arrival {
  Fd connection;
  qgpu_hello said{};
  Fd page;  // the file in memory that came along
  std::uint64_t task = 0;
};

// Limits of what a stranger may cost; AttachPort takes them as they are.
struct AttachListenerOptions {
  std::string path;               // an AttachPort fills in the first three
  std::uint32_t incarnation = 1;  // told with a refusal
  Nanos helloWithin = seconds(2);
  std::uint32_t comersAtOnce = 256;  // of one uid without a token, and one more each ...
  Nanos comerEach = millis(5);
  std::uint32_t arrivalsAtOnce = 256;  // of one task, and one more each ...
  Nanos arrivalEach = millis(10);
};

// Connections since the start, by what became of them.
struct ListenerCounters {
  std::uint64_t accepted = 0;
  std::uint64_t letIn = 0;
  std::uint64_t refused = 0;     // with a reason
  std::uint64_t turnedAway = 0;  // over its part, or out of descriptors
  std::uint64_t evicted = 0;     // silent connections that made room for others
};

// AttachPort has one. Everything but its constructor runs on the thread of `loop`, which may be
// another one than the card loop.
class AttachListener {
 public:
  using LetIn = std::function<void(Arrival)>;

  // `letIn` runs on `loop`, once for each connection with the token of a task. `loop` and `book`
  // outlive the listener.
  AttachListener(Loop& loop, const TokenBook& book, AttachListenerOptions options, LetIn letIn);
  AttachListener(const AttachListener&) = delete;
  AttachListener& operator=(const AttachListener&) = delete;
  ~AttachListener();

  // AlreadyExists: another daemon serves this path. Unavailable: the socket can't be made.
  Status listen();

  // The book has a new token, or is complete.
  void tokenCame(const std::string& token);
  void bookComplete();

  // Connections now: those that said nothing yet, and those whose token no task has yet.
  std::size_t silent() const { return silent_.size(); }
  std::size_t waiting() const { return hellos_.size() - silent_.size(); }
  const ListenerCounters& counters() const { return counters_; }

 private:
  struct Hello {
    std::uint64_t id = 0;
    std::uint32_t uid = 0;
    bool counted = false;  // in the bucket of its uid
    Fd connection;
    FdWatch watch;
    Loop::TimerKey timer = 0;
    qgpu_hello said{};
  };

  void acceptSome();
  void acceptWithoutDescriptors();
  void admit(Fd connection);
  void onHello(std::uint64_t id);
  bool hear(Hello& hello);
  void answer(Hello& hello);
  void wait(Hello& hello);
  void goOn(Hello& hello, std::uint64_t task);
  void refuse(std::uint64_t id, const std::string& reason);
  void drop(std::uint64_t id);

  Loop& loop_;
  const TokenBook& book_;
  const AttachListenerOptions options_;
  const LetIn letIn_;
  Fd listen_;
  Fd spare_;  // given up to turn a connection away when out of others
  FdWatch listenWatch_;
  ArrivalBuckets comers_;    // by uid
  ArrivalBuckets arrivals_;  // by task
  std::map<std::uint64_t, Hello> hellos_;
  std::set<std::uint64_t> silent_;  // of these, the ones that said nothing yet; oldest first
  std::uint64_t lastId_ = 0;
  ListenerCounters counters_;
};

}  // namespace qgpu
