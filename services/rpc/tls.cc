#include "services/rpc/tls.h"

#include <fcntl.h>
#include <kj/io.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "services/admin/words.h"

namespace qgpu {
namespace {

constexpr std::size_t kPemMax = 1 << 20;   // bytes of a file
constexpr const char* kBegin = "-----BEGIN CERTIFICATE-----";

Result<std::string> readPem(const char* flag, const std::string& path) {
  const std::string named = std::string(flag) + "=" + path + ": ";
  if (path.empty()) {
    return fail(ErrorCode::InvalidArgument,
                std::string(flag) + " is missing: --tls-cert, --tls-key and --tls-ca belong "
                                    "together");
  }
  const kj::AutoCloseFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return fail(ErrorCode::InvalidArgument, named + std::strerror(errno));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail(ErrorCode::InvalidArgument, named + "it is no file");
  }
  std::string text(kPemMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0) return fail(ErrorCode::InvalidArgument, named + std::strerror(errno));
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size > kPemMax) return fail(ErrorCode::InvalidArgument, named + "it is longer than 1 MiB");
  text.resize(size);
  return text;
}

// What KJ makes of a PEM text, or the error that names the file.
template <typename T>
Result<T> parse(const char* flag, const std::string& path, const char* kind,
                const std::string& pem) {
  std::optional<T> parsed;
  const auto broken = kj::runCatchingExceptions([&]() { parsed.emplace(ptr(pem)); });
  if (broken == nullptr && parsed) return std::move(*parsed);
  return fail(ErrorCode::InvalidArgument,
              std::string(flag) + "=" + path + ": it is no " + kind + " in PEM form");
}

// KJ takes any key; a wrong one would fail each handshake later.
bool belongTogether(const std::string& cert, const std::string& key) {
  const auto bio = [](const std::string& pem) {
    return ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  };
  BIO* certBio = bio(cert);
  BIO* keyBio = bio(key);
  X509* x509 = ::PEM_read_bio_X509(certBio, nullptr, nullptr, nullptr);
  EVP_PKEY* secret = ::PEM_read_bio_PrivateKey(keyBio, nullptr, nullptr, nullptr);
  const bool match =
      x509 != nullptr && secret != nullptr && ::X509_check_private_key(x509, secret) == 1;
  ::EVP_PKEY_free(secret);
  ::X509_free(x509);
  ::BIO_free(keyBio);
  ::BIO_free(certBio);
  ::ERR_clear_error();
  return match;
}

// A bundle's certificates, one by one: KJ trusts the first of each only.
Result<std::vector<kj::TlsCertificate>> parseBundle(const std::string& path,
                                                    const std::string& pem) {
  std::vector<kj::TlsCertificate> out;
  std::size_t at = pem.find(kBegin);
  do {
    const std::size_t next = at == std::string::npos ? at : pem.find(kBegin, at + 1);
    auto one = parse<kj::TlsCertificate>("--tls-ca", path, "certificate",
                                         at == std::string::npos ? "" : pem.substr(at, next - at));
    if (!one) return one.error();
    out.push_back(std::move(*one));
    at = next;
  } while (at != std::string::npos);
  return out;
}

}  // namespace

Result<kj::Own<kj::TlsContext>> openTls(const TlsFiles& files) {
  const auto cert = readPem("--tls-cert", files.cert);
  if (!cert) return cert.error();
  const auto key = readPem("--tls-key", files.key);
  if (!key) return key.error();
  const auto ca = readPem("--tls-ca", files.ca);
  if (!ca) return ca.error();

  auto chain = parse<kj::TlsCertificate>("--tls-cert", files.cert, "certificate", *cert);
  if (!chain) return chain.error();
  auto secret = parse<kj::TlsPrivateKey>("--tls-key", files.key, "private key", *key);
  if (!secret) return secret.error();
  const auto trusted = parseBundle(files.ca, *ca);
  if (!trusted) return trusted.error();
  const Error mismatch =
      fail(ErrorCode::InvalidArgument,
           "--tls-key=" + files.key + " does not belong to --tls-cert=" + files.cert);
  if (!belongTogether(*cert, *key)) return mismatch;

  const kj::TlsKeypair pair{std::move(*secret), std::move(*chain)};
  kj::TlsContext::Options options;
  options.useSystemTrustStore = false;
  options.verifyClients = true;
  options.trustedCertificates = kj::arrayPtr(trusted->data(), trusted->size());
  options.minVersion = kj::TlsVersion::TLS_1_2;
  options.defaultKeypair = pair;
  kj::Own<kj::TlsContext> context;
  const auto broken =
      kj::runCatchingExceptions([&]() { context = kj::heap<kj::TlsContext>(options); });
  if (broken == nullptr) return kj::mv(context);
  return mismatch;
}

}  // namespace qgpu
