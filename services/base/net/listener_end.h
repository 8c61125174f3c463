#pragma once
// When the process that listens at an address ends: its host closes a connection to it in order,
// and then refuses another one. A host that is gone, or cut off, says neither; nor does one where
// something listens again by then. A firewall, or another machine that has got the address, can
// reset the connection and refuse the next, but not close it in order: a reset tells nothing.

#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>

namespace qgpu {

// Connects to `address` as dial() does, until it succeeds, and holds the connection. Over once the
// process there has ended. `network`, `timer` and `tls` outlive the promise.
kj::Promise<void> listenerEnd(kj::Network& network, kj::Timer& timer, std::string address,
                              kj::Maybe<kj::TlsContext&> tls);

}  // namespace qgpu
