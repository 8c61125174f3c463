#pragma once
// PEM texts read and checked, for everything here that speaks TLS. Errors begin with `named`, which
// tells whoever must mend it where the text came from ("--tls-cert=/etc/qgpu/node.pem: ").

#include <kj/compat/tls.h>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// A whole file of at most 1 MiB. InvalidArgument: missing, unreadable, longer, or no file.
Result<std::string> readSmallFile(const std::string& named, const std::string& path);

Result<kj::TlsPrivateKey> parsePrivateKey(const std::string& named, const std::string& pem);
// One certificate with the chain behind it.
Result<kj::TlsCertificate> parseCertificate(const std::string& named, const std::string& pem);
// A bundle's certificates, one by one: KJ trusts the first of each only.
Result<std::vector<kj::TlsCertificate>> parseBundle(const std::string& named,
                                                    const std::string& pem);

// KJ takes any key; a wrong one would fail each handshake later.
bool belongTogether(const std::string& cert, const std::string& key);

}  // namespace qgpu
