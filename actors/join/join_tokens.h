#pragma once
// The tokens by which machines join a cluster: each lets one machine have one certificate, as the
// node that the token was made for, within its time. Pure: the time comes from the caller, and of
// a secret nothing is known but its SHA-256.
//
// Who shows a wrong secret learns nothing, not even whether there is such a token, and has few
// tries; who shows the right one is told what is wrong with it. The list is part of the cluster's
// own row, so a restart changes nothing about it (D2).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

struct JoinToken {
  std::string id;
  std::string node;
  std::string hash;  // hexadecimal
  std::uint64_t untilUnixMs = 0;
  std::uint32_t triesLeft = 0;
  bool used = false;
};

class JoinTokens {
 public:
  static constexpr std::size_t kTokensMax = 64;  // each is stored with every change
  static constexpr std::uint32_t kTries = 5;     // with a wrong secret, or for another node
  static constexpr std::size_t kIdMax = 16;
  static constexpr std::size_t kHashDigits = 64;
  static constexpr std::uint64_t kTtlMsMin = 60'000;
  static constexpr std::uint64_t kTtlMsMax = 24ull * 3'600'000;
  static constexpr std::uint64_t kKeptMs = 24ull * 3'600'000;  // listed for so long when it is over

  using State = schema::TokenInfo::State;

  // InvalidArgument: a field is out of its limits. Conflict: the id is taken. Overloaded: too many
  // live, and what can be done. Tokens that are over for long go first.
  Status make(const JoinToken& token, std::uint64_t ttlMs, std::uint64_t nowMs);
  // NotFound: there is none.
  Status revoke(std::string_view id);
  // Uses it up. NotFound for whoever does not know its secret; Conflict: it was used; Denied: its
  // time is over, it is for another node, or others tried it too often.
  Status use(std::string_view id, std::string_view hash, std::string_view node,
             std::uint64_t nowMs);

  // Oldest first.
  const std::vector<JoinToken>& all() const { return tokens_; }
  static State stateOf(const JoinToken& token, std::uint64_t nowMs);
  const JoinToken* find(std::string_view id) const;

  void load(std::vector<JoinToken> tokens) { tokens_ = std::move(tokens); }

 private:
  std::vector<JoinToken> tokens_;
};

std::vector<JoinToken> readTokens(schema::ClusterRow::Reader row);
void writeTokens(const std::vector<JoinToken>& tokens, schema::ClusterRow::Builder row);

}  // namespace qgpu
