#pragma once
// When the process that listens at an address ends: a connection to it breaks, and then its host
// refuses another one. A host that is gone, or cut off, says neither; nor does one where something
// listens again by then.

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
