#pragma once
// The webhook's own certificates: a CA that exists for it alone, and a server certificate that the
// CA signed. Made, looked at and renewed here; where they are kept is not this file's business.
//
// Renewing never cuts off who trusts what was there: the bundle holds the new CA and, until it
// expires, the one before. Times are Unix seconds and come from the caller.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/base/net/x509.h"

namespace qgpu {

inline constexpr std::int64_t kCaSeconds = 3650 * kDaySeconds;
inline constexpr std::int64_t kServerSeconds = 90 * kDaySeconds;

// PEM texts.
struct CertificateSet {
  std::string ca;     // a bundle, the newest first: who trusts us trusts these
  std::string caKey;  // of the newest
  std::string cert;
  std::string key;
};

// What is to take the place of `now`, with a server certificate for these DNS names, the first of
// which is its common name; nothing where `now` is good for more than a third of its time. What is
// broken in it, or missing, is made anew. Internal: the library gave no key.
Result<std::optional<CertificateSet>> renewed(const std::optional<CertificateSet>& now,
                                              const std::vector<std::string>& names,
                                              std::int64_t unixSeconds);

// The word of the paths that the API server alone is to know (webhook_server.h): whoever knows the
// CA's key can tell it, and nobody else.
std::string pathWord(const CertificateSet& set);

}  // namespace qgpu
