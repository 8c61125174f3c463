#pragma once
// KJ's streams and listeners over the loop's EdgeSet: what kj::UnixEventPort would bring, for a
// port of ours. Sockets and pipes; Unix sockets pass descriptors (at most 253 a message) and tell
// their peer's credentials. Datagrams are not implemented: nothing here speaks them.

#include <kj/async-io.h>

#include "runtime/kj/bridge.h"

namespace qgpu {

kj::Own<kj::LowLevelAsyncIoProvider> newKjStreams(KjPort& port);

}  // namespace qgpu
