#include "services/base/net/x509.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include "services/base/net/openssl_freed.h"

namespace qgpu {
namespace {

using Certificate = std::unique_ptr<X509, OpensslFreed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, OpensslFreed<EVP_PKEY_free>>;
using Buffer = std::unique_ptr<BIO, OpensslFreed<BIO_vfree>>;
using Request = std::unique_ptr<X509_REQ, OpensslFreed<X509_REQ_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, OpensslFreed<X509_EXTENSION_free>>;

constexpr int kSerialBytes = 16;
constexpr std::size_t kDnsMax = 253;

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

Result<std::int64_t> timeIn(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) {
    return fail(ErrorCode::InvalidArgument, "it is no PEM certificate");
  }
  return static_cast<std::int64_t>(::timegm(&parts));
}

bool extend(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension made(X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()));
  return made != nullptr && X509_add_ext(certificate, made.get(), -1) == 1;
}

bool addTo(X509_NAME* subject, const char* field, const std::string& text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.c_str());
  return text.empty() ||
         X509_NAME_add_entry_by_txt(subject, field, MBSTRING_UTF8, bytes, -1, -1, 0) == 1;
}
bool addToSubject(X509* certificate, const char* field, const std::string& text) {
  return addTo(X509_get_subject_name(certificate), field, text);
}

// What each certificate has of its own: a number, and a time.
bool date(X509* certificate, std::int64_t from, std::int64_t until) {
  unsigned char serial[kSerialBytes];
  if (RAND_bytes(serial, sizeof serial) != 1) return false;
  serial[0] &= 0x7f;  // positive
  const std::unique_ptr<BIGNUM, OpensslFreed<BN_free>> number(
      BN_bin2bn(serial, sizeof serial, nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr &&
         ASN1_TIME_set(X509_getm_notBefore(certificate), static_cast<time_t>(from)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), static_cast<time_t>(until)) != nullptr;
}

const char* extendedUse(CertificateAsk::Use use) {
  switch (use) {
    case CertificateAsk::Use::Server:
      return "serverAuth";
    case CertificateAsk::Use::Client:
      return "clientAuth";
    case CertificateAsk::Use::Peer:
    case CertificateAsk::Use::Ca:
      break;
  }
  return "serverAuth,clientAuth";
}

bool extendCa(X509* ca) {
  return extend(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         extend(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
         extend(ca, ca, NID_subject_key_identifier, "hash");
}

bool extendLeaf(X509* leaf, X509* ca, const CertificateAsk& ask) {
  std::string entries;
  const auto add = [&entries](const char* kind, const std::vector<std::string>& names) {
    for (const std::string& name : names) entries += (entries.empty() ? "" : ",") + (kind + name);
  };
  add("DNS:", ask.names);
  add("IP:", ask.addresses);
  // A CA that another tool made may have no key identifier.
  const bool named = X509_get0_subject_key_id(ca) != nullptr;
  return extend(leaf, ca, NID_basic_constraints, "critical,CA:FALSE") &&
         extend(leaf, ca, NID_key_usage, "critical,digitalSignature") &&
         extend(leaf, ca, NID_ext_key_usage, extendedUse(ask.use)) &&
         (entries.empty() || extend(leaf, ca, NID_subject_alt_name, entries)) &&
         (!named || extend(leaf, ca, NID_authority_key_identifier, "keyid"));
}

bool isLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool isMadeOf(std::string_view text, std::string_view more) {
  return std::ranges::all_of(
      text, [&](char c) { return isLetterOrDigit(c) || more.find(c) != std::string_view::npos; });
}

std::string hexOf(const unsigned char* bytes, std::size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 15U];
  }
  return text;
}

bool isP256(const EVP_PKEY* key) {
  char group[32];
  std::size_t size = 0;
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, group, sizeof group, &size) == 1 &&
         std::string_view(group, size) == "prime256v1";
}

// Empty where there is none, or bytes in it that no name has.
std::string commonNameOf(const X509_NAME* subject) {
  char text[kCommonNameMax + 1];
  const int size = X509_NAME_get_text_by_NID(subject, NID_commonName, text, sizeof text);
  const std::string name(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  return checkCertificateName(name) ? name : "";
}

// For the public half of `own`, signed by `ca`, or by itself.
Result<std::string> certify(const CertificateAsk& ask, EVP_PKEY* own, const KeyPair* ca) {
  const Certificate made(X509_new());
  const Certificate above = ca == nullptr ? nullptr : readCertificate(ca->cert);
  const Key aboveKey = ca == nullptr ? nullptr : readKey(ca->key);
  X509* issuer = ca == nullptr ? made.get() : above.get();
  EVP_PKEY* signer = ca == nullptr ? own : aboveKey.get();
  const bool whole =
      made != nullptr && own != nullptr && issuer != nullptr && signer != nullptr &&
      X509_set_version(made.get(), X509_VERSION_3) == 1 && date(made.get(), ask.from, ask.until) &&
      X509_set_pubkey(made.get(), own) == 1 && addToSubject(made.get(), "OU", ask.unit) &&
      addToSubject(made.get(), "CN", ask.name) &&
      X509_set_issuer_name(made.get(), X509_get_subject_name(issuer)) == 1 &&
      (ask.use == CertificateAsk::Use::Ca ? extendCa(made.get())
                                          : extendLeaf(made.get(), issuer, ask)) &&
      X509_sign(made.get(), signer, EVP_sha256()) != 0;
  if (!whole) return broken("certificate");
  return pemOf(made.get());
}

}  // namespace

Result<std::string> newPrivateKey() {
  const Key key(EVP_EC_gen("P-256"));
  const Buffer buffer(BIO_new(BIO_s_mem()));
  if (key == nullptr || PEM_write_bio_PKCS8PrivateKey(buffer.get(), key.get(), nullptr, nullptr, 0,
                                                      nullptr, nullptr) != 1) {
    return broken("key");
  }
  return textOf(buffer.get());
}

Result<std::string> newCertificate(const CertificateAsk& ask, const std::string& key,
                                   const KeyPair* ca) {
  const Key own = readKey(key);
  return certify(ask, own.get(), ca);
}

Result<std::string> newCertificateFor(const CertificateAsk& ask, const std::string& publicKey,
                                      const KeyPair& ca) {
  const Key own(PEM_read_bio_PUBKEY(reading(publicKey).get(), nullptr, nullptr, nullptr));
  return certify(ask, own.get(), &ca);
}

Result<std::string> newRequest(const std::string& name, const std::string& key) {
  const Request made(X509_REQ_new());
  const Key own = readKey(key);
  const Buffer buffer(BIO_new(BIO_s_mem()));
  const bool whole = made != nullptr && own != nullptr && buffer != nullptr &&
                     X509_REQ_set_version(made.get(), X509_REQ_VERSION_1) == 1 &&
                     addTo(X509_REQ_get_subject_name(made.get()), "CN", name) &&
                     X509_REQ_set_pubkey(made.get(), own.get()) == 1 &&
                     X509_REQ_sign(made.get(), own.get(), EVP_sha256()) != 0 &&
                     PEM_write_bio_X509_REQ(buffer.get(), made.get()) == 1;
  if (!whole) return broken("certificate request");
  return textOf(buffer.get());
}

Result<CertificateRequest> readRequest(const std::string& pem) {
  const Request request(PEM_read_bio_X509_REQ(reading(pem).get(), nullptr, nullptr, nullptr));
  EVP_PKEY* key = request == nullptr ? nullptr : X509_REQ_get0_pubkey(request.get());
  const Buffer buffer(BIO_new(BIO_s_mem()));
  const bool proven = key != nullptr && isP256(key) && X509_REQ_verify(request.get(), key) == 1 &&
                      PEM_write_bio_PUBKEY(buffer.get(), key) == 1;
  ERR_clear_error();
  if (!proven) {
    return fail(ErrorCode::InvalidArgument,
                "it is no certificate request that its own key, EC P-256, signed");
  }
  return CertificateRequest{commonNameOf(X509_REQ_get_subject_name(request.get())),
                            textOf(buffer.get())};
}

Status checkCertificateName(const std::string& name) {
  if (name.size() > kCommonNameMax) {
    return fail(ErrorCode::InvalidArgument, "\"" + name.substr(0, kDnsMax) + "\" is longer than " +
                                                std::to_string(kCommonNameMax) + " bytes");
  }
  if (!name.empty() && isLetterOrDigit(name.front()) && isMadeOf(name, ".-_@:")) return ok();
  return fail(ErrorCode::InvalidArgument,
              "\"" + name +
                  "\" is no name for a certificate: write letters, digits, "
                  "'.', '-', '_', '@' or ':', beginning with a letter or a digit");
}

bool isDnsName(std::string_view text) {
  return !text.empty() && text.size() <= kDnsMax && isMadeOf(text, ".-_") &&
         isLetterOrDigit(text.front()) && text.find("..") == std::string_view::npos;
}

std::string fingerprintOf(const std::string& pem) {
  const Certificate certificate = readCertificate(pem);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (certificate == nullptr || X509_digest(certificate.get(), EVP_sha256(), digest, &size) != 1) {
    return "";
  }
  return hexOf(digest, size);
}

std::string sha256Hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return hexOf(digest, sizeof digest);
}

std::string randomHex(std::size_t bytes) {
  std::vector<unsigned char> random(bytes);
  if (RAND_bytes(random.data(), static_cast<int>(bytes)) != 1) return "";
  return hexOf(random.data(), bytes);
}

Result<std::string> renewedCertificate(const std::string& cert, const KeyPair& ca,
                                       std::int64_t from, std::int64_t until) {
  const Certificate before = readCertificate(cert);
  const Certificate next(before == nullptr ? nullptr : X509_dup(before.get()));
  const Key signer = readKey(ca.key);
  const bool whole = next != nullptr && signer != nullptr && date(next.get(), from, until) &&
                     X509_sign(next.get(), signer.get(), EVP_sha256()) != 0;
  if (!whole) return broken("certificate");
  return pemOf(next.get());
}

bool signedBy(const std::string& cert, const std::string& ca) {
  const Certificate below = readCertificate(cert);
  const Certificate above = readCertificate(ca);
  const bool yes = below != nullptr && above != nullptr &&
                   X509_verify(below.get(), X509_get0_pubkey(above.get())) == 1;
  ERR_clear_error();
  return yes;
}

std::string firstCertificate(const std::string& pem) {
  const Certificate first = readCertificate(pem);
  return first == nullptr ? "" : pemOf(first.get());
}

bool isFor(const std::string& pem, const std::string& host) {
  const Certificate certificate = readCertificate(pem);
  return certificate != nullptr &&
         (X509_check_host(certificate.get(), host.c_str(), host.size(), 0, nullptr) == 1 ||
          X509_check_ip_asc(certificate.get(), host.c_str(), 0) == 1);
}

Result<std::int64_t> expiryOf(const std::string& pem) {
  const Certificate certificate = readCertificate(pem);
  return timeIn(certificate == nullptr ? nullptr : X509_get0_notAfter(certificate.get()));
}

Result<std::int64_t> beginningOf(const std::string& pem) {
  const Certificate certificate = readCertificate(pem);
  return timeIn(certificate == nullptr ? nullptr : X509_get0_notBefore(certificate.get()));
}

}  // namespace qgpu
