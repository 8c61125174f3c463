#pragma once
// How `doctor` looks at files and sockets: limits on what it reads, and no waiting.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu::ctl {

// At most 4 MiB; nothing where it can't be read.
std::optional<std::string> readWhole(const std::string& path);
std::string firstLine(const std::string& path);  // empty where there is none
bool exists(const std::string& path);
// Names in a folder that begin and end so, sorted.
std::vector<std::string> namesIn(const std::string& folder, std::string_view begin,
                                 std::string_view end);

enum class SocketState {
  Missing,
  NoSocket,  // something else has the name
  Stale,     // nobody listens
  Alive,
  Closed,  // we may not connect
};
SocketState socketState(const std::string& path);

// True where something listens there; `host` is an IP address.
bool listensAt(const std::string& host, const std::string& port);

// The body of what GET answers at HOST:PORT, an IP address, without TLS; at most 4 MiB.
// Unavailable: why there is none.
Result<std::string> fetch(const std::string& address, const std::string& path, Nanos limit);

// The numbers of "5.10.0-35-amd64" or "535.54.03", as many as are asked for; missing ones are 0.
std::vector<unsigned> versionNumbers(std::string_view text, std::size_t count);

}  // namespace qgpu::ctl
