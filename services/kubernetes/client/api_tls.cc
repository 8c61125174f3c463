#include "services/kubernetes/client/api_tls.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <optional>

#include "services/base/net/pem.h"
#include "services/base/text.h"

namespace qgpu {
namespace {

// kj-tls 0.9.2 compares names with DNS entries only and keeps its SSL_CTX to itself. An explicit
// instantiation may name a private member; nothing else of the library is touched.
SSL_CTX* nativeOf(kj::TlsContext& context);
template <void* kj::TlsContext::*Member>
struct NativeContext {
  friend SSL_CTX* nativeOf(kj::TlsContext& context) {
    return static_cast<SSL_CTX*>(context.*Member);
  }
};
template struct NativeContext<&kj::TlsContext::ctx>;

bool isAddress(const std::string& host) {
  in6_addr buffer{};
  return ::inet_pton(AF_INET, host.c_str(), &buffer) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &buffer) == 1;
}

const std::string& nameWanted(const KubeCredentials& credentials) {
  return credentials.serverName.empty() ? credentials.host : credentials.serverName;
}

// Before the first word of a handshake: what the certificate has to name. KJ has set the host as a
// DNS name by then; where this fails, so does the handshake, since no DNS entry is an address.
void onHandshake(const SSL* connection, int where, int) {
  if (where != SSL_CB_HANDSHAKE_START) return;
  SSL* ssl = const_cast<SSL*>(connection);
  const auto* credentials =
      static_cast<const KubeCredentials*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
  const std::string& name = nameWanted(*credentials);
  X509_VERIFY_PARAM* wanted = ::SSL_get0_param(ssl);
  if (!isAddress(name)) {
    ::X509_VERIFY_PARAM_set1_host(wanted, name.c_str(), name.size());
    ::SSL_set_tlsext_host_name(ssl, name.c_str());
    return;
  }
  if (::X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) != 1) return;
  ::X509_VERIFY_PARAM_set1_host(wanted, nullptr, 0);
  ::SSL_set_tlsext_host_name(ssl, nullptr);  // an address is no server name
}

int acceptAny(X509_STORE_CTX* store, void*) {
  ::X509_STORE_CTX_set_error(store, X509_V_OK);
  return 1;
}

}  // namespace

Result<kj::Own<kj::TlsContext>> openApiTls(const KubeCredentials& credentials) {
  kj::TlsContext::Options options;
  options.minVersion = kj::TlsVersion::TLS_1_2;
  std::vector<kj::TlsCertificate> trusted;
  options.useSystemTrustStore = !credentials.ca.given();
  if (credentials.ca.given()) {
    const auto pem = credentials.ca.read();
    if (!pem) return pem.error();
    auto bundle = parseBundle(credentials.ca.named, *pem);
    if (!bundle) return bundle.error();
    trusted = std::move(*bundle);
    options.trustedCertificates = kj::arrayPtr(trusted.data(), trusted.size());
  }
  std::optional<kj::TlsKeypair> pair;
  if (credentials.certificate.given()) {
    const auto certPem = credentials.certificate.read();
    if (!certPem) return certPem.error();
    const auto keyPem = credentials.key.read();
    if (!keyPem) return keyPem.error();
    auto chain = parseCertificate(credentials.certificate.named, *certPem);
    if (!chain) return chain.error();
    auto secret = parsePrivateKey(credentials.key.named, *keyPem);
    if (!secret) return secret.error();
    if (!belongTogether(*certPem, *keyPem)) {
      return fail(ErrorCode::InvalidArgument,
                  credentials.key.named + "it does not belong to the client certificate");
    }
    pair.emplace(kj::TlsKeypair{std::move(*secret), std::move(*chain)});
    options.defaultKeypair = *pair;
  }
  kj::Own<kj::TlsContext> context;
  const auto broken =
      kj::runCatchingExceptions([&]() { context = kj::heap<kj::TlsContext>(options); });
  KJ_IF_MAYBE (why, broken) {
    return fail(ErrorCode::InvalidArgument, "TLS towards the API server can't be set up: " +
                                                std::string(view(why->getDescription())));
  }
  SSL_CTX* native = nativeOf(*context);
  SSL_CTX_set_app_data(native, const_cast<KubeCredentials*>(&credentials));
  ::SSL_CTX_set_info_callback(native, &onHandshake);
  if (credentials.unverified) ::SSL_CTX_set_cert_verify_callback(native, &acceptAny, nullptr);
  return kj::mv(context);
}

}  // namespace qgpu
