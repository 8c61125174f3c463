#pragma once
// How a machine joins: the token as a person carries it, and what is asked and answered at the
// address of a scheduler's --join, JSON over TLS. Both sides read them here, with limits,
// and copy what they keep (C7). Pure: no socket, no clock.
//
// A token is ID.SECRET.CA: what it is called, what is known to nobody but who was given it, and the
// SHA-256 of the CA's certificate, by which the machine knows the scheduler before it says
// anything.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kTokenIdDigits = 8;  // hexadecimal, all three
inline constexpr std::size_t kTokenSecretDigits = 32;
inline constexpr std::size_t kTokenCaDigits = 64;
inline constexpr std::size_t kJoinBodyMax = 16 * 1024;  // bytes of what is asked
inline constexpr std::size_t kJoinAnswerMax = 1 << 20;  // and of what is answered
inline constexpr std::int64_t kJoinClockMax = 1800;     // seconds that clocks may differ
inline constexpr const char* kJoinPath = "/join";

struct TokenWords {
  std::string id;
  std::string secret;
  std::string ca;
};
Result<TokenWords> readToken(std::string_view text);
std::string tokenText(const TokenWords& token);

// What a machine asks.
struct JoinAsk {
  std::string id;
  std::string secret;
  std::string node;
  std::string request;    // PEM
  std::int64_t unix = 0;  // seconds, by its own clock
};
Result<JoinAsk> readJoinAsk(const std::string& json);
std::string joinAskText(const JoinAsk& ask);

// What it gets.
struct JoinAnswer {
  std::string certificate;  // PEM, both
  std::string ca;
  std::uint64_t rpcPort = 0;
};
// Also the error that the scheduler answered.
Result<JoinAnswer> readJoinAnswer(const std::string& json);
std::string joinAnswerText(const JoinAnswer& answer);

}  // namespace qgpu
