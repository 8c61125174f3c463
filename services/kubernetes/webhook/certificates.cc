#include "services/kubernetes/webhook/certificates.h"

#include <ctime>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

namespace qgpu {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Buffer = std::unique_ptr<BIO, Freed<BIO_vfree>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;

constexpr const char* kCaName = "qgpu webhook CA";
constexpr int kSerialBytes = 16;

Error broken(const char* what) {
  ERR_clear_error();
  return fail(ErrorCode::Internal, std::string("OpenSSL gave no ") + what);
}

std::string textOf(BIO* buffer) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(buffer, &data);
  return std::string(data, size > 0 ? static_cast<std::size_t>(size) : 0);
}

std::string pemOf(X509* certificate) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(buffer.get(), certificate);
  return textOf(buffer.get());
}

std::string pemOf(EVP_PKEY* key) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(buffer.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return textOf(buffer.get());
}

Buffer reading(const std::string& text) {
  return Buffer(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Certificate readCertificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(reading(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Key readKey(const std::string& pem) {
  // Without a callback that says no, OpenSSL would ask a terminal for a passphrase.
  const auto none = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(reading(pem).get(), nullptr, none, nullptr));
  ERR_clear_error();
  return key;
}

std::int64_t endOf(const X509* certificate) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) != 1) return 0;
  return static_cast<std::int64_t>(::timegm(&parts));
}

bool extend(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension made(X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()));
  return made != nullptr && X509_add_ext(certificate, made.get(), -1) == 1;
}

// Everything but extensions and signature.
bool describe(X509* certificate, EVP_PKEY* key, const std::string& name, std::int64_t from,
              std::int64_t until) {
  unsigned char serial[kSerialBytes];
  if (RAND_bytes(serial, sizeof serial) != 1) return false;
  serial[0] &= 0x7f;  // positive
  const std::unique_ptr<BIGNUM, Freed<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
  if (number == nullptr ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return false;
  }
  X509_NAME* subject = X509_get_subject_name(certificate);
  const auto* bytes = reinterpret_cast<const unsigned char*>(name.c_str());
  return X509_set_version(certificate, X509_VERSION_3) == 1 &&
         ASN1_TIME_set(X509_getm_notBefore(certificate), static_cast<time_t>(from)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), static_cast<time_t>(until)) != nullptr &&
         X509_set_pubkey(certificate, key) == 1 &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, bytes, -1, -1, 0) == 1;
}

bool makeCa(X509* ca, EVP_PKEY* key, std::int64_t now) {
  return describe(ca, key, kCaName, now - kEarlySeconds, now + kCaSeconds) &&
         X509_set_issuer_name(ca, X509_get_subject_name(ca)) == 1 &&
         extend(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         extend(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
         extend(ca, ca, NID_subject_key_identifier, "hash") &&
         X509_sign(ca, key, EVP_sha256()) != 0;
}

bool makeServer(X509* server, EVP_PKEY* key, X509* ca, EVP_PKEY* caKey,
                const std::vector<std::string>& names, std::int64_t now) {
  std::string entries;
  for (const std::string& name : names) entries += (entries.empty() ? "DNS:" : ",DNS:") + name;
  return describe(server, key, names.front(), now - kEarlySeconds, now + kServerSeconds) &&
         X509_set_issuer_name(server, X509_get_subject_name(ca)) == 1 &&
         extend(server, ca, NID_basic_constraints, "critical,CA:FALSE") &&
         extend(server, ca, NID_key_usage, "critical,digitalSignature") &&
         extend(server, ca, NID_ext_key_usage, "serverAuth") &&
         extend(server, ca, NID_subject_alt_name, entries) &&
         extend(server, ca, NID_authority_key_identifier, "keyid") &&
         X509_sign(server, caKey, EVP_sha256()) != 0;
}

bool lasts(const X509* certificate, std::int64_t now, std::int64_t whole) {
  return endOf(certificate) - now > whole / 3;
}

bool isGoodCa(X509* ca, EVP_PKEY* key, std::int64_t now) {
  return ca != nullptr && key != nullptr && X509_check_private_key(ca, key) == 1 &&
         lasts(ca, now, kCaSeconds);
}

bool isGoodServer(X509* server, EVP_PKEY* key, X509* ca, const std::vector<std::string>& names,
                  std::int64_t now) {
  if (server == nullptr || key == nullptr || X509_check_private_key(server, key) != 1) return false;
  if (X509_verify(server, X509_get0_pubkey(ca)) != 1) return false;
  for (const std::string& name : names) {
    if (X509_check_host(server, name.c_str(), name.size(), 0, nullptr) != 1) return false;
  }
  return lasts(server, now, kServerSeconds);
}

// The new CA, and the one before where it is still somebody's trust.
std::string bundleOf(X509* ca, X509* before, std::int64_t now) {
  std::string bundle = pemOf(ca);
  if (before != nullptr && endOf(before) > now) bundle += pemOf(before);
  return bundle;
}

}  // namespace

Result<std::optional<CertificateSet>> renewed(const std::optional<CertificateSet>& now,
                                              const std::vector<std::string>& names,
                                              std::int64_t unixSeconds) {
  CertificateSet set = now.value_or(CertificateSet{});
  Certificate ca = readCertificate(set.ca);
  Key caKey = readKey(set.caKey);
  const bool goodCa = isGoodCa(ca.get(), caKey.get(), unixSeconds);
  if (goodCa) {
    const Certificate server = readCertificate(set.cert);
    const Key key = readKey(set.key);
    const bool good = isGoodServer(server.get(), key.get(), ca.get(), names, unixSeconds);
    ERR_clear_error();
    if (good) return std::optional<CertificateSet>();
  } else {
    const Certificate before = std::move(ca);
    ca.reset(X509_new());
    caKey.reset(EVP_EC_gen("P-256"));
    if (ca == nullptr || caKey == nullptr || !makeCa(ca.get(), caKey.get(), unixSeconds)) {
      return broken("CA");
    }
    set.ca = bundleOf(ca.get(), before.get(), unixSeconds);
    set.caKey = pemOf(caKey.get());
  }
  const Certificate server(X509_new());
  const Key key(EVP_EC_gen("P-256"));
  if (server == nullptr || key == nullptr ||
      !makeServer(server.get(), key.get(), ca.get(), caKey.get(), names, unixSeconds)) {
    return broken("certificate");
  }
  set.cert = pemOf(server.get());
  set.key = pemOf(key.get());
  return std::optional(std::move(set));
}

bool isFor(const std::string& pem, const std::string& host) {
  const Certificate certificate = readCertificate(pem);
  return certificate != nullptr &&
         (X509_check_host(certificate.get(), host.c_str(), host.size(), 0, nullptr) == 1 ||
          X509_check_ip_asc(certificate.get(), host.c_str(), 0) == 1);
}

Result<std::int64_t> expiryOf(const std::string& pem) {
  const Certificate certificate = readCertificate(pem);
  if (certificate == nullptr) return fail(ErrorCode::InvalidArgument, "it is no PEM certificate");
  return endOf(certificate.get());
}

}  // namespace qgpu
