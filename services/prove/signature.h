#pragma once
// A report's signature, by OpenSSH's ssh-keygen: whoever knows SSH keys needs no other tool. It
// lies beside the file, as FILE.sig.

#include <string>

#include "runtime/result.h"

namespace qgpu::prove {

inline constexpr const char* kNamespace = "qgpu-report";  // a signature for else is none of ours

// Replaces FILE.sig. InvalidArgument: the key can't sign; Unavailable: there is no ssh-keygen.
Status sign(const std::string& file, const std::string& key);

// Who of `allowedSigners` (ssh-keygen(1), ALLOWED SIGNERS) signed it. NotFound: there is no
// signature; Denied: by nobody who is allowed; Corrupt: it is not what was signed.
Result<std::string> signerOf(const std::string& file, const std::string& allowedSigners);

}  // namespace qgpu::prove
