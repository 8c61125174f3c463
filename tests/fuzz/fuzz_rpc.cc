// Bytes on the RPC socket. Layout: FLAGS (1 byte: 1 may change, 2 does not read, 4 ends its
// writes, 8 goes away in the middle), SIZE (1 byte: pieces that the bytes arrive in), then the
// bytes. The real server and the real two-party RPC system take them.
//
// Promises: no crash; C2 (no more returns than calls, nothing outlives the connection), C7 (a
// stranger changes nothing, what is sent back is whole messages and bounded).

#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <kj/exception.h>
#include <vector>

#include "services/api/rpc/rpc_server.h"
#include "tests/fuzz/fuzz_servers.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

struct Rpc : Servers {
  Rpc() { server.serveUnix(listener()); }
  RpcServer server{actor, ChangeRule(kDaemon), RpcLimits(), io, timer};
};

// How many messages of a kind a stream holds, up to where it ends or is no message.
struct Spoken {
  std::size_t calls = 0;
  std::size_t questions = 0;  // calls and bootstraps
  std::size_t returns = 0;
  bool whole = true;
};

Spoken read(const std::string& bytes) {
  Spoken spoken;
  std::vector<capnp::word> words(bytes.size() / sizeof(capnp::word));
  if (!words.empty()) std::memcpy(static_cast<void*>(words.data()), bytes.data(), words.size() * 8);
  spoken.whole = bytes.size() % sizeof(capnp::word) == 0;
  kj::ArrayPtr<const capnp::word> rest(words.data(), words.size());
  const auto broken = kj::runCatchingExceptions([&] {
    while (rest.size() > 0) {
      capnp::FlatArrayMessageReader reader(rest);
      rest = kj::arrayPtr(reader.getEnd(), rest.end());
      const auto which = reader.getRoot<capnp::rpc::Message>().which();
      spoken.calls += which == capnp::rpc::Message::CALL ? 1 : 0;
      spoken.questions +=
          which == capnp::rpc::Message::CALL || which == capnp::rpc::Message::BOOTSTRAP ? 1 : 0;
      spoken.returns += which == capnp::rpc::Message::RETURN ? 1 : 0;
    }
  });
  spoken.whole = spoken.whole && broken == nullptr;
  return spoken;
}

void serve(Rpc& rpc, Input in) {
  const std::uint8_t flags = in.byte();
  const bool mayChange = (flags & 1U) != 0, deaf = (flags & 2U) != 0;
  const std::size_t piece = 1 + in.byte() * std::size_t{32};
  const std::string said = in.text(in.left());
  {
    MemoryPeer peer(rpc.io.connect(Servers::peer(mayChange)));
    if (!deaf) peer.startReading();
    for (std::size_t at = 0; at < said.size(); at += piece) peer.write(said.substr(at, piece));
    if ((flags & 4U) != 0) peer.endWrites();
    if ((flags & 8U) == 0) rpc.run();
    require(rpc.server.connections() <= 1, "one connection");
    if (!deaf) {
      const Spoken answers = read(peer.heard());
      require(answers.whole, "C7: what is sent back is whole messages");
      require(answers.returns <= read(said).questions, "C2: no more returns than questions");
    }
    if (deaf) rpc.advance(seconds(60));
  }
  rpc.checkAsked(mayChange);
  rpc.checkIdle();
  require(rpc.server.connections() == 0, "a connection ends with its peer");
}

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  static Rpc& rpc = *new Rpc;
  serve(rpc, Input(data, size));
  return 0;
}
