#include "services/api/rpc/certificate.h"

#include <algorithm>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <optional>

namespace qgpu {
namespace {

constexpr std::string_view kUnitsBegin = "qgpu-";

// KJ 0.9.2 tells the common name of a peer's certificate and keeps the certificate itself private.
// An explicit instantiation may name private members, which the language allows for this end; where
// another KJ has no such member, this does not compile.
struct PeerCertificate {
  using Member = void* kj::TlsPeerIdentity::*;
  friend X509* certificateOf(PeerCertificate, kj::TlsPeerIdentity& peer);
};
template <PeerCertificate::Member kMember>
struct PeerCertificateIs {
  friend X509* certificateOf(PeerCertificate, kj::TlsPeerIdentity& peer) {
    return static_cast<X509*>(peer.*kMember);
  }
};
template struct PeerCertificateIs<&kj::TlsPeerIdentity::cert>;

// A zero within would let one name look like another to whoever reads up to it.
void addText(std::vector<std::string>& to, const unsigned char* text, int size) {
  if (size <= 0 || to.size() >= CertificateOwner::kNamesMax) return;
  const std::string_view all(reinterpret_cast<const char*>(text), static_cast<std::size_t>(size));
  if (all.size() > CertificateOwner::kNameMax || all.find('\0') != std::string_view::npos) return;
  to.emplace_back(all);
}

std::vector<std::string> subjectTexts(const X509& certificate, int field) {
  std::vector<std::string> out;
  const X509_NAME* subject = ::X509_get_subject_name(&certificate);
  for (int at = -1; (at = ::X509_NAME_get_index_by_NID(subject, field, at)) >= 0;) {
    unsigned char* text = nullptr;
    const int size = ::ASN1_STRING_to_UTF8(
        &text, ::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, at)));
    if (size < 0) continue;
    addText(out, text, size);
    ::OPENSSL_free(text);
  }
  return out;
}

void addDnsEntries(std::vector<std::string>& to, const X509& certificate) {
  auto* entries = static_cast<GENERAL_NAMES*>(
      ::X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(entries); ++i) {
    int type = 0;
    const void* value = ::GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(entries, i), &type);
    if (type != GEN_DNS) continue;
    const auto* text = static_cast<const ASN1_STRING*>(value);
    addText(to, ::ASN1_STRING_get0_data(text), ::ASN1_STRING_length(text));
  }
  ::GENERAL_NAMES_free(entries);
}

std::string printableOf(std::string name) {
  for (char& c : name) {
    if (c <= ' ' || c > '~') c = '?';
  }
  return name;
}

CertificateOwner readOwner(const X509& certificate) {
  CertificateOwner owner;
  owner.names = subjectTexts(certificate, NID_commonName);
  owner.name = printableOf(owner.names.empty() ? "" : owner.names.front());
  addDnsEntries(owner.names, certificate);
  for (std::string& unit : subjectTexts(certificate, NID_organizationalUnitName)) {
    if (unit.starts_with(kUnitsBegin)) owner.units.push_back(std::move(unit));
  }
  ::ERR_clear_error();
  return owner;
}

bool holds(const std::vector<std::string>& all, std::string_view one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

bool CertificateOwner::mayChange() const {
  return holds(units, kAdminUnit);
}

bool CertificateOwner::mayJoin() const {
  return !names.empty() && (units.empty() || holds(units, kNodeUnit));
}

bool CertificateOwner::mayJoinAs(std::string_view node) const {
  return mayJoin() && holds(names, node);
}

CertificateOwner ownerOf(kj::TlsPeerIdentity& peer) {
  const X509* certificate = certificateOf(PeerCertificate{}, peer);
  return certificate == nullptr ? CertificateOwner() : readOwner(*certificate);
}

CertificateOwner ownerOf(const std::string& pem) {
  BIO* bio = ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = ::PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  const CertificateOwner owner =
      certificate == nullptr ? CertificateOwner() : readOwner(*certificate);
  ::X509_free(certificate);
  ::BIO_free(bio);
  ::ERR_clear_error();
  return owner;
}

}  // namespace qgpu
