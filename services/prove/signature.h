#pragma once
// A report's signature, by OpenSSH's ssh-keygen: whoever knows SSH keys needs no other tool. It
// lies beside the file, as FILE.sig.

#include <string>

#include "runtime/result.h"

namespace qgpu::prove {

inline constexpr const char* kNamespace = "qgpu-report";  // a signature for else is none of ours

// Replaces FILE.sig. InvalidArgument: the key can't sign; Unavailable: there is no ssh-keygen.
Status sign(const std::string& file, const std::string& key);

// The text of a file, and who of `allowedSigners` (ssh-keygen(1), ALLOWED SIGNERS) signed it.
// What is answered is what was looked at, whatever becomes of the file. NotFound: there is no
// signature; Denied: by nobody who is allowed; Corrupt: it is not what was signed; Unavailable:
// there is no ssh-keygen; the errors of readDocument() too.
struct Signed {
  std::string text;
  std::string signer;
};
Result<Signed> readSigned(const std::string& file, const std::string& allowedSigners);

}  // namespace qgpu::prove
