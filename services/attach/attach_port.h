#pragma once
// The attach room as one actor of the card loop: attach server and gate port behind one address.
// Card actors send it gateOrder, the node taskKnown and taskClosed, task actors reportAsked.
//
// It is an adapter, not a core: it does I/O, so it lives on the card loop only. What it does per
// message is bounded: a few system calls, no file but in the run dir at attach and death. The
// listener before it is on another loop: what anybody may say costs cards no time.

#include <vector>

#include "runtime/actor.h"
#include "runtime/dispatcher.h"
#include "services/attach/attach_server.h"
#include "services/attach/gate_port.h"
#include "services/attach/guard_news.h"
#include "services/attach/loop_platform.h"
#include "services/attach/unheld.h"
#include "services/cards/cards.h"

namespace qgpu {

// What the manager puts together for it: addresses, cards, and the options of its parts.
struct AttachPortConfig {
  ActorId node = ActorId::kNobody;
  std::vector<Card> cards;          // by index
  std::vector<ActorId> cardActors;  // of the same cards, in the same order
  AttachServerOptions server;
  AttachListenerOptions listener;
  GatePortOptions gate;
  SuspendersOptions suspend;
  UnheldOptions unheld;
  Loop* listenerLoop = nullptr;  // null: the card loop, where nothing depends on cards' time
};

// A manager has one. It owns the task table and all parts of the attach room, and passes each
// message to the part that it is for.
class AttachPort final : public Actor {
 public:
  // `self` comes from dispatcher.reserve() of the card loop; card and node actors know it.
  AttachPort(Dispatcher& dispatcher, ActorId self, AttachPortConfig config);
  AttachPort(const AttachPort&) = delete;
  AttachPort& operator=(const AttachPort&) = delete;
  ~AttachPort() override;

  // Reads who was attached before a restart and opens RUN_DIR/attach.sock. On the card loop's
  // thread or before it runs, and best after the node was started, so that guests find their tasks.
  // AlreadyExists: another manager serves this run dir. Unavailable: the folder or the socket can't
  // be made or read.
  Status listen();

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  const AttachListener& listener() const { return listener_; }  // of its loop's thread
  const AttachServer& server() const { return server_; }
  const GatePort& gate() const { return port_; }
  const UnheldCounters& unheld() const { return unheld_; }  // of any thread

 private:
  void tellUseOf(ActorId actor);
  void tellClient(const std::string& token);
  void onNews(std::uint32_t card, const suspend::News& news);
  void tellSuspendLost(const Card& card);
  void accuse(const UnheldFinder::Accused& accused, const std::string& what);
  void onRefused(const GuardRefusal& refusal);

  Dispatcher& dispatcher_;
  const ActorId self_;
  const ActorId node_;
  const std::function<void(const Card&)> lost_;
  std::vector<Card> cards_;
  Outlet outlet_;
  Suspenders suspenders_;
  LoopPlatform around_;
  TaskTable tasks_;
  GatePort port_;
  TokenBook book_;
  Loop& listenerLoop_;
  // What is posted to the listener may outlive this on its loop.
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  AttachServer server_;  // takes the tasks with it
  AttachListener listener_;
  Guard* const guard_;
  GuardNews guardNews_;
  FdWatch guardWatch_;
  const bool strict_;
  UnheldCounters unheld_;
  UnheldWatch watch_;  // last: it ends first
};

}  // namespace qgpu
