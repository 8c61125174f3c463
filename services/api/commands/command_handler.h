#pragma once
// What an admin socket leads to: the commands of one daemon. AdminServer knows lines, peers and
// limits; a handler reads a line (commands.h), asks the daemon's actor by its client, and makes the
// reply a JSON document.

#include <capnp/message.h>
#include <kj/async.h>
#include <kj/function.h>
#include <string>
#include <type_traits>

#include "runtime/result.h"
#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/commands.h"
#include "services/api/commands/housekeeping.h"
#include "services/api/commands/node_actor_client.h"

namespace qgpu {

// One JSON document without its newline; with `events`, the connection tells these from then on,
// until nothing comes because its peer read too slowly.
struct AdminAnswer {
  using Event = kj::Own<capnp::MallocMessageBuilder>;  // root: schema::Event
  using Events = kj::Function<kj::Promise<kj::Maybe<Event>>()>;

  AdminAnswer(std::string text) : document(std::move(text)) {}  // most answers are their text
  AdminAnswer(std::string text, Events source)
      : document(std::move(text)), events(kj::mv(source)) {}

  std::string document;
  kj::Maybe<Events> events;
};

class AdminHandler {
 public:
  // `line` came from `peer`, which lives until the promise is done. It never throws.
  virtual kj::Promise<AdminAnswer> answer(const Peer& peer, std::string line) = 0;

 protected:
  ~AdminHandler() = default;
};

template <typename Api>
inline constexpr Side kSideOf = std::is_same_v<Api, NodeApi> ? Side::Node : Side::Cluster;

// What both daemons' handlers do with a line of theirs: read it, look whether the peer may, ask the
// actor, and render its reply or the error. NodeHandler and ClusterHandler of services/api/admin
// add what differs.
template <typename Api>
class CommandHandler : public AdminHandler {
 public:
  kj::Promise<AdminAnswer> answer(const Peer& peer, std::string line) override;

 protected:
  using Reply = typename Api::Reply::Reader;

  // `actor` and `keeping` outlive the handler.
  CommandHandler(ActorClient<Api>& actor, Housekeeping& keeping)
      : actor_(actor), keeping_(keeping) {}
  ~CommandHandler() = default;

  // Before a command of Does::Run is asked: whose process it is.
  virtual Status own(const Peer&, TaskSpec&) { return ok(); }
  // The document of a reply that is no failure.
  virtual std::string render(Reply reply) = 0;
  // The answer to a list, which may come page by page.
  virtual kj::Promise<AdminAnswer> list(const Peer& peer, Command command) {
    return ask(peer, std::move(command));
  }

  // A token, whose secret no actor knows.
  virtual kj::Promise<AdminAnswer> invite(const Peer& peer, Command command) {
    return ask(peer, std::move(command));
  }

  // Asks the actor and renders its reply; a snapshot or log level is then carried out.
  kj::Promise<AdminAnswer> ask(const Peer& peer, Command command);

  ActorClient<Api>& actor_;
  Housekeeping& keeping_;

 private:
  kj::Promise<AdminAnswer> finish(const Command& command, Reply reply);
};

extern template class CommandHandler<NodeApi>;
extern template class CommandHandler<ClusterApi>;

}  // namespace qgpu
