#pragma once
// Connecting to a daemon's RPC socket: "HOST:PORT", with mutual TLS where certificates were given,
// "unix:PATH", or "srv:NAME", the hosts and ports that DNS has under this name at that time
// (srv.h). A host that is called srv is none such: "srv:12346".

#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kDialAddressesMax = 16;

// "ADDR[,ADDR]" taken apart and checked. InvalidArgument names the address that is none.
Result<std::vector<std::string>> parseDialList(const std::string& list);

// True for unix sockets and for hosts that can't be another machine.
bool dialStaysHere(const std::string& address);

// Why TLS refused a connection, for a person, from what OpenSSL said of it; other texts stay as
// they are.
std::string tlsExplained(std::string text);

// What else dial() is told of an address srv:NAME.
struct SrvDialing {
  // Bounds the connection to each target but the last, so that a dead host does not take the time
  // of those behind it; outlives the promise.
  kj::Maybe<kj::Timer&> timer;
  // How often this address was dialled in vain: as many targets that come first are tried last,
  // because one may take connections and then say nothing.
  std::size_t failures = 0;
};

// A connected stream, over TLS where `tls` is given and the address is none of unix:PATH. Of
// srv:NAME it is one to the first target that takes it, in DNS's order, and TLS asks for the
// target's host. Fails with a kj::Exception that says why; sets no deadline. `network` and what
// `tls` and `srv` name outlive the promise.
kj::Promise<kj::Own<kj::AsyncIoStream>> dial(kj::Network& network, const std::string& address,
                                             kj::Maybe<kj::TlsContext&> tls, SrvDialing srv = {});

}  // namespace qgpu
