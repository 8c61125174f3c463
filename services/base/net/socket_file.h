#pragma once
// Where a daemon's unix sockets listen: an address that fits, and a path that nobody serves. A file
// that a dead daemon left is removed, a live one's is left alone; shared by all listeners.

#include <string>
#include <sys/un.h>

#include "runtime/result.h"

namespace qgpu {

// InvalidArgument: no path, or longer than a socket's may be.
Result<sockaddr_un> socketAddress(const std::string& path);

// Removes the file of a socket of this `type` (SOCK_STREAM, SOCK_SEQPACKET) on which no process
// listens.
// AlreadyExists: somebody does, or it is no socket. Unavailable: it can't be told or removed.
Status clearSocketFile(const std::string& path, int type);

}  // namespace qgpu
