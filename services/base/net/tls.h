#pragma once
// Mutual TLS of everything that leaves the machine. Both sides show a certificate that the same CA
// signed, so the CA is the list of who is trusted. With what, a certificate says itself: units (OU)
// of its subject are roles, qgpu-node, qgpu-reader and qgpu-admin (certificate.h). A server's
// certificate names, as common name or DNS entry, the host as its clients write it, also where
// that is an IP address. Nothing of the system's trust store takes part, and TLS is 1.2 at least.

#include <cstdint>
#include <kj/compat/tls.h>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// PEM files: --tls-cert (with its chain), --tls-key (not encrypted), --tls-ca (one or several).
struct TlsFiles {
  std::string cert;
  std::string key;
  std::string ca;

  bool none() const { return cert.empty() && key.empty() && ca.empty(); }
};

// What the three files hold.
struct TlsTexts {
  std::string cert;
  std::string key;
  std::string ca;

  bool operator==(const TlsTexts&) const = default;
};

// InvalidArgument names the flag and the file that is missing or unreadable.
Result<TlsTexts> readTlsTexts(const TlsFiles& files);

// Whether a server asks its clients for a certificate. Any: it asks for none, and shows the CA with
// its own, so that who knows the CA by its fingerprint alone can tell.
enum class TlsPeers : std::uint8_t { Certified, Any };

// For connections in both directions. InvalidArgument names the flag and the file that is missing,
// unreadable or of another kind.
Result<kj::Own<kj::TlsContext>> openTls(const TlsFiles& files);
// The same of files that were read already.
Result<kj::Own<kj::TlsContext>> openTls(const TlsFiles& files, const TlsTexts& texts,
                                        TlsPeers peers = TlsPeers::Certified);

// What a server has before its certificate: one context, with which every handshake fails. The
// contexts of certificates are appended to it and all stay, since connections keep theirs.
std::vector<kj::Own<kj::TlsContext>> closedTls();

}  // namespace qgpu
