#include "services/admin/words.h"

#include <array>
#include <charconv>
#include <cstdint>

namespace qgpu {
namespace {

constexpr std::array<std::string_view, 3> kClasses = {"online", "offline", "ordinary"};
constexpr std::array<std::string_view, 3> kPolicies = {"best-effort", "fixed-share",
                                                       "burst-share"};
constexpr std::array<std::string_view, 3> kTenancies = {"free", "ordinary", "hybrid"};
constexpr std::array<std::string_view, 3> kSuspends = {"gate", "freeze", "rm"};
constexpr std::array<std::string_view, 10> kTaskStates = {
    "pending", "bound",      "attached",  "idle",   "ready",
    "running", "suspending", "suspended", "exited", "lost"};
constexpr std::array<std::string_view, 5> kCardStates = {"ready", "cordoned", "draining",
                                                         "quarantined", "starting"};

constexpr std::array<std::string_view, 6> kScores = {"default", "binpack", "spread",
                                                     "fgd",     "random",  "best-fit"};
constexpr std::array<std::string_view, 6> kPlaceStates = {"waiting", "assumed", "bound",
                                                          "ending",  "ended",   "lost"};
constexpr std::array<std::string_view, 3> kDecided = {"placed", "waits", "refused"};
constexpr std::array<std::string_view, 4> kNodeStates = {"joining", "alive", "suspect", "lost"};

template <std::size_t N, typename Enum>
std::string_view nameOf(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : std::string_view("unknown");
}

template <typename Enum, std::size_t N>
std::optional<Enum> valueOf(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view className(schema::TaskClass value) { return nameOf(kClasses, value); }
std::string_view policyName(schema::Policy value) { return nameOf(kPolicies, value); }
std::string_view tenancyName(schema::Tenancy value) { return nameOf(kTenancies, value); }
std::string_view suspendName(schema::Suspend value) { return nameOf(kSuspends, value); }
std::string_view taskStateName(schema::TaskState value) { return nameOf(kTaskStates, value); }
std::string_view cardStateName(schema::CardState value) { return nameOf(kCardStates, value); }
std::string_view scoreName(schema::Score value) { return nameOf(kScores, value); }
std::string_view placeStateName(schema::PlaceState value) { return nameOf(kPlaceStates, value); }
std::string_view nodeStateName(schema::ClusterNode::State value) {
  return nameOf(kNodeStates, value);
}
std::string_view decidedName(schema::ClusterInfo::Result value) {
  return nameOf(kDecided, value);
}

std::optional<schema::Score> scoreFromName(std::string_view name) {
  const auto score = valueOf<schema::Score>(kScores, name);
  return score == schema::Score::CLASS_DEFAULT ? std::nullopt : score;
}

std::optional<schema::TaskClass> classFromName(std::string_view name) {
  return valueOf<schema::TaskClass>(kClasses, name);
}

ErrorCode errorFromName(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (name == errorName(code)) return code;
  }
  return ErrorCode::Internal;
}

std::optional<std::uint64_t> parseUint(std::string_view text) {
  std::uint64_t n = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, n);
  if (error != std::errc() || stopped != end || text.empty()) return std::nullopt;
  return n;
}

}  // namespace qgpu
