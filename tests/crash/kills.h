#pragma once
// kill -9 of the real manager, again and again on one database, under real tenants and busy
// clients. After each restart: every acknowledged bind is there, what has ended stays away, each
// request has one task, the incarnation has grown, no tenant was harmed (D1, P6, P9, C9, A10, A14).

#include <cstdint>
#include <string>

namespace qgpu::crash {

struct KillOptions {
  std::uint64_t count = 200;
  std::uint64_t seed = 1;
  std::string cards = "opencl";  // or sim:NxM: plain tenants only, but more of them
};

// Returns the verdict as one JSON line; throws a Violation.
std::string runKills(const KillOptions& options);

}  // namespace qgpu::crash
