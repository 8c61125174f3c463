#include "services/base/net/tls.h"

#include "services/base/net/pem.h"

namespace qgpu {
namespace {

Result<std::string> readPem(const char* flag, const std::string& path) {
  if (path.empty()) {
    return fail(ErrorCode::InvalidArgument,
                std::string(flag) +
                    " is missing: --tls-cert, --tls-key and --tls-ca belong "
                    "together");
  }
  return readSmallFile(std::string(flag) + "=" + path + ": ", path);
}

}  // namespace

Result<TlsTexts> readTlsTexts(const TlsFiles& files) {
  auto cert = readPem("--tls-cert", files.cert);
  if (!cert) return cert.error();
  auto key = readPem("--tls-key", files.key);
  if (!key) return key.error();
  auto ca = readPem("--tls-ca", files.ca);
  if (!ca) return ca.error();
  return TlsTexts{std::move(*cert), std::move(*key), std::move(*ca)};
}

Result<kj::Own<kj::TlsContext>> openTls(const TlsFiles& files) {
  const auto texts = readTlsTexts(files);
  if (!texts) return texts.error();
  return openTls(files, *texts);
}

Result<kj::Own<kj::TlsContext>> openTls(const TlsFiles& files, const TlsTexts& texts,
                                        TlsPeers peers) {
  const std::string shown = texts.cert + (peers == TlsPeers::Any ? "\n" + texts.ca : "");
  auto chain = parseCertificate("--tls-cert=" + files.cert + ": ", shown);
  if (!chain) return chain.error();
  auto secret = parsePrivateKey("--tls-key=" + files.key + ": ", texts.key);
  if (!secret) return secret.error();
  const auto trusted = parseBundle("--tls-ca=" + files.ca + ": ", texts.ca);
  if (!trusted) return trusted.error();
  const Error mismatch =
      fail(ErrorCode::InvalidArgument,
           "--tls-key=" + files.key + " does not belong to --tls-cert=" + files.cert);
  if (!belongTogether(texts.cert, texts.key)) return mismatch;

  const kj::TlsKeypair pair{std::move(*secret), std::move(*chain)};
  kj::TlsContext::Options options;
  options.useSystemTrustStore = false;
  options.verifyClients = peers == TlsPeers::Certified;
  options.trustedCertificates = kj::arrayPtr(trusted->data(), trusted->size());
  options.minVersion = kj::TlsVersion::TLS_1_2;
  options.defaultKeypair = pair;
  kj::Own<kj::TlsContext> context;
  const auto broken =
      kj::runCatchingExceptions([&]() { context = kj::heap<kj::TlsContext>(options); });
  if (broken == nullptr) return kj::mv(context);
  return mismatch;
}

std::vector<kj::Own<kj::TlsContext>> closedTls() {
  kj::TlsContext::Options options;
  options.useSystemTrustStore = false;
  std::vector<kj::Own<kj::TlsContext>> contexts;
  contexts.push_back(kj::heap<kj::TlsContext>(options));
  return contexts;
}

}  // namespace qgpu
