#pragma once
// A client of one of the daemons' interfaces over a real socket, on a test's loop.

#include <capnp/rpc-twoparty.h>
#include <string>

#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::testing {

template <typename Interface>
struct RpcClient {
  RpcClient(LoopIo& io, const std::string& address)
      : stream(io.provider->getNetwork()
                   .parseAddress(kj::StringPtr(address.c_str()))
                   .wait(io.waitScope)
                   ->connect()
                   .wait(io.waitScope)),
        client(*stream),
        root(client.bootstrap().castAs<Interface>()) {}
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyClient client;
  typename Interface::Client root;
};

}  // namespace qgpu::testing
