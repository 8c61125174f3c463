#pragma once
// Certificates that are made here: PEM in, PEM out. Keys are EC P-256, signatures SHA-256, serial
// numbers 127 random bits; TLS servers of Go take all three. Where files are kept, and with which
// rights, is not this file's business. Times are Unix seconds and come from the caller.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::int64_t kDaySeconds = 86'400;
inline constexpr std::int64_t kEarlySeconds = 3600;  // valid from then on: clocks differ

// PEM texts.
struct KeyPair {
  std::string cert;
  std::string key;
};

// What a new certificate says. Names are in the text of an extension: who calls has checked that
// they hold no comma and no line end.
struct CertificateAsk {
  enum class Use { Ca, Server, Client, Peer };  // a Peer is both server and client
  Use use = Use::Peer;
  std::string name;                      // common name, at most kCommonNameMax bytes
  std::string unit{};                    // OU; empty: none
  std::vector<std::string> names{};      // DNS entries
  std::vector<std::string> addresses{};  // IP entries
  std::int64_t from = 0;
  std::int64_t until = 0;
};
inline constexpr std::size_t kCommonNameMax = 64;  // RFC 5280

// Internal: the library gave none.
Result<std::string> newPrivateKey();

// A certificate for the public half of `key`, signed by `ca`. A CA is signed by itself. Internal:
// the library gave none.
Result<std::string> newCertificate(const CertificateAsk& ask, const std::string& key,
                                   const KeyPair* ca);

// What somebody asks to have signed, and whose key it is: PEM.
struct CertificateRequest {
  std::string name;       // common name; empty where it has none, or one that is no text
  std::string publicKey;  // EC P-256
};

// A request for `name`, which its key signs. Internal: the library gave none.
Result<std::string> newRequest(const std::string& name, const std::string& key);

// InvalidArgument: it is none, is not signed by its own key, or has a key of another kind.
Result<CertificateRequest> readRequest(const std::string& pem);

// As newCertificate(), for a public key that somebody else has the private half of.
Result<std::string> newCertificateFor(const CertificateAsk& ask, const std::string& publicKey,
                                      const KeyPair& ca);

// InvalidArgument: a name that no certificate should have: it is too long, or becomes no file's.
Status checkCertificateName(const std::string& name);
// Whether a name may stand as a DNS entry.
bool isDnsName(std::string_view text);

// Lower-case hexadecimal: SHA-256 of the first certificate as it is encoded, empty where it is
// none; of any bytes; and so many random bytes, empty where the kernel gives none.
std::string fingerprintOf(const std::string& pem);
std::string sha256Hex(std::string_view bytes);
std::string randomHex(std::size_t bytes);

// The first certificate of `cert` as it is, for the same key, names and units, for another time:
// signed anew by `ca`, or by itself where that is its own key pair.
Result<std::string> renewedCertificate(const std::string& cert, const KeyPair& ca,
                                       std::int64_t from, std::int64_t until);

// Of the first certificate in each text; false where one is none.
bool signedBy(const std::string& cert, const std::string& ca);

// The first certificate of a text alone; empty where it is none.
std::string firstCertificate(const std::string& pem);

// Whether a client that reaches a server by this DNS name or IP address takes the first certificate
// of a PEM text.
bool isFor(const std::string& pem, const std::string& host);

// When the first certificate of a PEM text ends, or began to hold; InvalidArgument where it is
// none.
Result<std::int64_t> expiryOf(const std::string& pem);
Result<std::int64_t> beginningOf(const std::string& pem);

}  // namespace qgpu
