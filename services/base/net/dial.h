#pragma once
// Connecting to a daemon's RPC socket: "HOST:PORT", with mutual TLS where certificates were given,
// or "unix:PATH".

#include <kj/async-io.h>
#include <kj/compat/tls.h>
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

// A connected stream, over TLS where `tls` is given and the address is HOST:PORT. Fails with a
// kj::Exception that says why; sets no deadline.
kj::Promise<kj::Own<kj::AsyncIoStream>> dial(kj::Network& network, const std::string& address,
                                             kj::Maybe<kj::TlsContext&> tls);

}  // namespace qgpu
