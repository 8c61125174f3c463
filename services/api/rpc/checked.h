#pragma once
// What a peer sent, copied and checked before any message of the actors is begun (C7): reading a
// peer's message may throw, and its texts and lists may be long. Nothing here knows one request
// from another: the schema says what is a text, a list or an enum, and the actors say what an ask
// may be. Every function throws a refusal, "invalid-argument: ..." with the field and what it may
// be.

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <string>

#include "actors/model.h"
#include "schema/cluster.capnp.h"
#include "services/api/rpc/rpc_session.h"

namespace qgpu {

inline constexpr std::size_t kTextMax = 256;    // bytes of a name or id
inline constexpr std::size_t kEntriesMax = 64;  // of a list that a request holds

std::string checkedText(capnp::Text::Reader text, const char* what);

// Bounds texts and lists, refuses values of enums that this daemon does not know, and makes the
// peer the owner of every TaskSpec, unless it may change things and says who is. Only a process of
// this machine (a unix socket of the task's own node) can own one, and is known by its start.
void checkRequest(capnp::DynamicStruct::Builder request, const Peer& peer, bool takesOwners);

// The member of the union that is set, and which page of a list is asked for: all of a request but
// what a client says of who asks. Unsupported where this daemon does not know the member.
void copyQuestion(capnp::DynamicStruct::Reader from, capnp::DynamicStruct::Builder to);

// A request as a peer made it up, or as a call's parameters say it.
template <typename Request>
class CheckedRequest {
 public:
  // `build` is given a builder of Request and may throw.
  template <typename Build>
  CheckedRequest(const Peer& peer, bool takesOwners, Build&& build) {
    auto request = message_.template initRoot<Request>();
    build(request);
    checkRequest(request, peer, takesOwners);
  }

  typename Request::Reader read() { return message_.template getRoot<Request>().asReader(); }

  void fill(typename Request::Builder out) { copyQuestion(read(), out); }

 private:
  capnp::MallocMessageBuilder message_;
};

}  // namespace qgpu
