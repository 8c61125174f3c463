#include "actors/join/join_tokens.h"

#include <algorithm>
#include <utility>

#include "actors/base/codec.h"

namespace qgpu {
namespace {

// Whatever of it agrees, it takes as long.
bool sameSecret(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const int differs = static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
    different |= static_cast<unsigned>(differs);
  }
  return different == 0;
}

std::string span(std::uint64_t ms) {
  const std::uint64_t minutes = ms / 60'000;
  if (minutes >= 120) return std::to_string(minutes / 60) + " hours";
  return minutes == 1 ? "1 minute" : std::to_string(minutes) + " minutes";
}

Status checkToken(const JoinToken& token, std::uint64_t ttlMs) {
  if (token.id.empty() || token.id.size() > JoinTokens::kIdMax ||
      token.hash.size() != JoinTokens::kHashDigits) {
    return fail(ErrorCode::InvalidArgument, "a token has an id of at most " +
                                                std::to_string(JoinTokens::kIdMax) +
                                                " bytes and a SHA-256 of its secret");
  }
  if (token.node.empty() || token.node.size() > kNodeNameMax) {
    return fail(ErrorCode::InvalidArgument,
                "a node's name has 1 to " + std::to_string(kNodeNameMax) + " characters");
  }
  if (ttlMs < JoinTokens::kTtlMsMin || ttlMs > JoinTokens::kTtlMsMax) {
    return fail(ErrorCode::InvalidArgument, "a token is good for 1m to 24h");
  }
  return ok();
}

}  // namespace

JoinTokens::State JoinTokens::stateOf(const JoinToken& token, std::uint64_t nowMs) {
  if (token.used) return State::USED;
  if (nowMs >= token.untilUnixMs) return State::EXPIRED;
  return token.triesLeft == 0 ? State::SPENT : State::OPEN;
}

const JoinToken* JoinTokens::find(std::string_view id) const {
  const auto found = std::ranges::find(tokens_, id, &JoinToken::id);
  return found == tokens_.end() ? nullptr : &*found;
}

Status JoinTokens::make(const JoinToken& token, std::uint64_t ttlMs, std::uint64_t nowMs) {
  if (Status good = checkToken(token, ttlMs); !good) return good;
  std::erase_if(tokens_, [&](const JoinToken& old) { return nowMs >= old.untilUnixMs + kKeptMs; });
  if (find(token.id) != nullptr) {
    return fail(ErrorCode::Conflict, "there is a token of this id: ask again");
  }
  if (tokens_.size() >= kTokensMax) {
    const auto over = std::ranges::find_if(
        tokens_, [&](const JoinToken& old) { return stateOf(old, nowMs) != State::OPEN; });
    if (over == tokens_.end()) {
      return fail(ErrorCode::Overloaded, std::to_string(kTokensMax) +
                                             " tokens are open already: wait until one is used or "
                                             "over, or revoke one (`qgpuctl token list`)");
    }
    tokens_.erase(over);
  }
  tokens_.push_back(token);
  tokens_.back().untilUnixMs = nowMs + ttlMs;
  tokens_.back().triesLeft = kTries;
  tokens_.back().used = false;
  return ok();
}

Status JoinTokens::revoke(std::string_view id) {
  if (std::erase_if(tokens_, [&](const JoinToken& one) { return one.id == id; }) > 0) return ok();
  return fail(ErrorCode::NotFound, "no token \"" + std::string(id.substr(0, kIdMax)) +
                                       "\": `qgpuctl token list` has them");
}

Status JoinTokens::use(std::string_view id, std::string_view hash, std::string_view node,
                       std::uint64_t nowMs) {
  const auto found = std::ranges::find(tokens_, id, &JoinToken::id);
  const Error unknown = fail(ErrorCode::NotFound,
                             "the scheduler knows no such token: it was mistyped, revoked, or is "
                             "over for long; make another with `qgpuctl token create`");
  if (found == tokens_.end()) return unknown;
  JoinToken& token = *found;
  const State state = stateOf(token, nowMs);
  if (!sameSecret(token.hash, hash)) {
    if (state == State::OPEN) --token.triesLeft;
    return unknown;
  }
  const std::string again = "; make another with `qgpuctl token create " + token.node + "`";
  switch (state) {
    case State::USED:
      return fail(ErrorCode::Conflict, "this token was used already, and is good once" + again);
    case State::EXPIRED:
      return fail(ErrorCode::Denied,
                  "this token's time was over " + span(nowMs - token.untilUnixMs) + " ago" + again);
    case State::SPENT:
      return fail(ErrorCode::Denied,
                  "this token was tried too often with a wrong secret or for another node" + again);
    case State::OPEN:
      break;
  }
  if (token.node != node) {
    --token.triesLeft;
    return fail(ErrorCode::Denied, "this token is for the node \"" + token.node +
                                       "\": join as that by --nodename, or make one for \"" +
                                       std::string(node.substr(0, kNodeNameMax)) + "\"");
  }
  token.used = true;
  return ok();
}

std::vector<JoinToken> readTokens(schema::ClusterRow::Reader row) {
  std::vector<JoinToken> tokens;
  for (const auto one : row.getTokens()) {
    if (tokens.size() >= JoinTokens::kTokensMax) break;
    tokens.push_back({text(one.getId()), text(one.getNode()), text(one.getHash()),
                      one.getUntilUnixMs(), one.getTriesLeft(), one.getUsed()});
  }
  return tokens;
}

void writeTokens(const std::vector<JoinToken>& tokens, schema::ClusterRow::Builder row) {
  auto list = row.initTokens(static_cast<unsigned>(tokens.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const JoinToken& token = tokens[i];
    list[i].setId(token.id);
    list[i].setNode(token.node);
    list[i].setHash(token.hash);
    list[i].setUntilUnixMs(token.untilUnixMs);
    list[i].setTriesLeft(token.triesLeft);
    list[i].setUsed(token.used);
  }
}

}  // namespace qgpu
