#include "services/base/net/pem.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <kj/io.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "services/base/text.h"

namespace qgpu {
namespace {

constexpr std::size_t kFileMax = 1 << 20;  // bytes of a file
constexpr const char* kBegin = "-----BEGIN CERTIFICATE-----";

// What KJ makes of a PEM text, or the error that names its place.
template <typename T>
Result<T> parse(const std::string& named, const char* kind, const std::string& pem) {
  std::optional<T> parsed;
  const auto broken = kj::runCatchingExceptions([&]() { parsed.emplace(ptr(pem)); });
  if (broken == nullptr && parsed) return std::move(*parsed);
  return fail(ErrorCode::InvalidArgument, named + "it is no " + kind + " in PEM form");
}

}  // namespace

Result<std::string> readSmallFile(const std::string& named, const std::string& path) {
  const kj::AutoCloseFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return fail(ErrorCode::InvalidArgument, named + std::strerror(errno));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail(ErrorCode::InvalidArgument, named + "it is no file");
  }
  std::string text(kFileMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0) return fail(ErrorCode::InvalidArgument, named + std::strerror(errno));
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size > kFileMax) return fail(ErrorCode::InvalidArgument, named + "it is longer than 1 MiB");
  text.resize(size);
  return text;
}

Result<kj::TlsPrivateKey> parsePrivateKey(const std::string& named, const std::string& pem) {
  return parse<kj::TlsPrivateKey>(named, "private key", pem);
}

Result<kj::TlsCertificate> parseCertificate(const std::string& named, const std::string& pem) {
  return parse<kj::TlsCertificate>(named, "certificate", pem);
}

Result<std::vector<kj::TlsCertificate>> parseBundle(const std::string& named,
                                                    const std::string& pem) {
  std::vector<kj::TlsCertificate> out;
  std::size_t at = pem.find(kBegin);
  do {
    const std::size_t next = at == std::string::npos ? at : pem.find(kBegin, at + 1);
    auto one = parseCertificate(named, at == std::string::npos ? "" : pem.substr(at, next - at));
    if (!one) return one.error();
    out.push_back(std::move(*one));
    at = next;
  } while (at != std::string::npos);
  return out;
}

bool belongTogether(const std::string& cert, const std::string& key) {
  const auto bio = [](const std::string& pem) {
    return ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  };
  BIO* certBio = bio(cert);
  BIO* keyBio = bio(key);
  // Without a callback that says no, OpenSSL would ask a terminal for a passphrase.
  const auto none = [](char*, int, int, void*) { return -1; };
  X509* x509 = ::PEM_read_bio_X509(certBio, nullptr, nullptr, nullptr);
  EVP_PKEY* secret = ::PEM_read_bio_PrivateKey(keyBio, nullptr, none, nullptr);
  const bool match =
      x509 != nullptr && secret != nullptr && ::X509_check_private_key(x509, secret) == 1;
  ::EVP_PKEY_free(secret);
  ::X509_free(x509);
  ::BIO_free(keyBio);
  ::BIO_free(certBio);
  ::ERR_clear_error();
  return match;
}

}  // namespace qgpu
