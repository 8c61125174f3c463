#pragma once
// Whose a certificate is and what it may do. That the CA of --tls-ca signed it is OpenSSL's to
// check; what it says of its owner is read here, from its subject and its DNS entries:
//
//   OU=qgpu-node       joins as a node of one of its names, and reads
//   OU=qgpu-scheduler  is shown by a scheduler; reads
//   OU=qgpu-reader     reads
//   OU=qgpu-admin      reads, and changes anything
//
// One may have several of them. Any other unit that begins with "qgpu-" gives nothing but reading,
// since it is misspelt or of a later version. A certificate without any such unit was made before
// there were roles, most likely for a node: it joins under its own name, so that an upgrade loses
// no node, and reads.

#include <kj/compat/tls.h>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu {

inline constexpr const char* kNodeUnit = "qgpu-node";
inline constexpr const char* kSchedulerUnit = "qgpu-scheduler";
inline constexpr const char* kReaderUnit = "qgpu-reader";
inline constexpr const char* kAdminUnit = "qgpu-admin";

struct CertificateOwner {
  static constexpr std::size_t kNamesMax = 64;  // names and units that are looked at
  static constexpr std::size_t kNameMax = 253;  // bytes of one; a longer one does not count

  std::string name;                // its common name, for the audit; "?" for what does not print
  std::vector<std::string> names;  // common name and DNS entries
  std::vector<std::string> units;  // those that begin with "qgpu-"

  bool mayChange() const;
  bool mayJoin() const;
  bool mayJoinAs(std::string_view node) const;
};

// Of a peer that showed one.
CertificateOwner ownerOf(kj::TlsPeerIdentity& peer);
// Of the first certificate in a PEM text; no names where it is none.
CertificateOwner ownerOf(const std::string& pem);

}  // namespace qgpu
