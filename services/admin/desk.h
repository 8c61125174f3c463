#pragma once
// What an admin socket leads to: the commands of one daemon. AdminServer knows lines, peers and
// limits; a desk knows what the lines mean and whom to ask.

#include <capnp/message.h>
#include <kj/async.h>
#include <kj/function.h>

#include <string>

#include "runtime/result.h"
#include "services/admin/door.h"
#include "services/admin/housekeeping.h"

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

class AdminDesk {
 public:
  // `line` came from `peer`, which lives until the promise is done. It never throws.
  virtual kj::Promise<AdminAnswer> answer(const Peer& peer, std::string line) = 0;

 protected:
  ~AdminDesk() = default;
};

// The document that says how it went; `done` is what the actor said of it.
kj::Promise<AdminAnswer> keepSnapshot(Housekeeping& keeping, std::string done);
AdminAnswer keepLogLevel(Housekeeping& keeping, const std::string& level, std::string_view done);

// The document of a peer that may read only and asked for a change of `what`.
std::string refuseChange(const Peer& peer, std::string_view what);

// Events after `since` of a door, as an answer to `watch`.
template <typename Words>
kj::Promise<AdminAnswer> watchFrom(Door<Words>& door, const Peer& peer, std::uint64_t since);

}  // namespace qgpu
