#pragma once
// Where a service is, as DNS says it in SRV records (RFC 2782): hosts and ports under one name, so
// that they change in one place. glibc's own calls for them wait for DNS, so a look-up has a thread
// of its own; it asks the servers of /etc/resolv.conf, in datagrams alone, for some seconds at
// most. What an answer says and whom to try first are pure functions.

#include <cstdint>
#include <kj/async.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kSrvNameMax = 253;    // bytes
inline constexpr std::size_t kSrvTargetsMax = 16;  // that one look-up gives

struct SrvTarget {
  std::uint16_t priority = 0;  // the lowest first
  std::uint16_t weight = 0;    // share among those of one priority
  std::uint16_t port = 0;
  std::string host;  // without a dot at its end
};

// Whether DNS can be asked for it: labels of at most 63 letters, digits, '-' and '_' with dots
// between them, and perhaps one behind.
bool isSrvName(std::string_view name);

// The targets in DNS's answer for `name`. NotFound: it has none, or says that the service is not
// there (RFC 2782's target "."). Unavailable: the answer is cut or can't be read.
Result<std::vector<SrvTarget>> parseSrv(std::span<const std::uint8_t> answer,
                                        const std::string& name);

// The order in which they are tried, at most kSrvTargetsMax: by priority, and within one at random
// by weight. `seed` is the only dice.
std::vector<SrvTarget> srvOrder(std::vector<SrvTarget> targets, std::uint64_t seed);

// The targets of `name` in such an order, as DNS has them now. Fails as parseSrv() does, and as
// Unavailable where DNS does not answer.
kj::Promise<Result<std::vector<SrvTarget>>> lookUpSrv(std::string name);

}  // namespace qgpu
