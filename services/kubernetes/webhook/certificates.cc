#include "services/kubernetes/webhook/certificates.h"

#include <algorithm>

#include "services/base/net/pem.h"

namespace qgpu {
namespace {

constexpr const char* kCaName = "qgpu webhook CA";
constexpr std::size_t kPathWordDigits = 40;  // 160 bits; a step of a path has 63 at most

// Without a certificate it has ended.
std::int64_t endOf(const std::string& pem) {
  const Result<std::int64_t> end = expiryOf(pem);
  return end ? *end : 0;
}

bool isGood(const std::string& cert, const std::string& key, std::int64_t now, std::int64_t whole) {
  return belongTogether(cert, key) && endOf(cert) - now > whole / 3;
}

bool isGoodServer(const CertificateSet& set, const std::vector<std::string>& names,
                  std::int64_t now) {
  return isGood(set.cert, set.key, now, kServerSeconds) && signedBy(set.cert, set.ca) &&
         std::ranges::all_of(names, [&](const std::string& name) { return isFor(set.cert, name); });
}

// A key pair for what is asked; a CA's own where `ca` is null.
Result<KeyPair> newPair(const CertificateAsk& ask, const KeyPair* ca) {
  Result<std::string> key = newPrivateKey();
  if (!key) return key.error();
  Result<std::string> cert = newCertificate(ask, *key, ca);
  if (!cert) return cert.error();
  return KeyPair{std::move(*cert), std::move(*key)};
}

}  // namespace

std::string pathWord(const CertificateSet& set) {
  return sha256Hex("qgpu webhook path " + set.caKey).substr(0, kPathWordDigits);
}

Result<std::optional<CertificateSet>> renewed(const std::optional<CertificateSet>& now,
                                              const std::vector<std::string>& names,
                                              std::int64_t unixSeconds) {
  using Use = CertificateAsk::Use;
  CertificateSet set = now.value_or(CertificateSet{});
  const std::int64_t from = unixSeconds - kEarlySeconds;
  if (isGood(set.ca, set.caKey, unixSeconds, kCaSeconds)) {
    if (isGoodServer(set, names, unixSeconds)) return std::optional<CertificateSet>();
  } else {
    const CertificateAsk ask{
        .use = Use::Ca, .name = kCaName, .from = from, .until = unixSeconds + kCaSeconds};
    Result<KeyPair> ca = newPair(ask, nullptr);
    if (!ca) return ca.error();
    // With the one before, where it is still somebody's trust.
    set.ca = ca->cert + (endOf(set.ca) > unixSeconds ? firstCertificate(set.ca) : "");
    set.caKey = std::move(ca->key);
  }
  const KeyPair ca{set.ca, set.caKey};
  const CertificateAsk ask{.use = Use::Server,
                           .name = names.front(),
                           .names = names,
                           .from = from,
                           .until = unixSeconds + kServerSeconds};
  Result<KeyPair> server = newPair(ask, &ca);
  if (!server) return server.error();
  set.cert = std::move(server->cert);
  set.key = std::move(server->key);
  return std::optional(std::move(set));
}

}  // namespace qgpu
