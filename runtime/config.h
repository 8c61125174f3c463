#pragma once
// Text to values: durations, ranges, sizes of memory, policies and the simulated cards of flags,
// config files and commands. It exists so that every way in accepts the same forms and refuses with
// the same words. Each error is InvalidArgument and names the value and the forms that are
// accepted.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "schema/types.capnp.h"

namespace qgpu {

// "100ms", "2us", "1.5s", "250ns", "1m", "2h": not negative, at most kDurationMax.
Result<Nanos> parseDuration(std::string_view text);
inline constexpr Nanos kDurationMax = seconds(24 * 3600);
// As parseDuration() reads it, in the largest unit of which it is a whole number: "100ms".
std::string durationText(Nanos duration);

// "2ms..30ms": low at least 1 ns, low <= high.
struct DurationRange {
  Nanos low;
  Nanos high;
  bool operator==(const DurationRange&) const = default;
};
Result<DurationRange> parseRange(std::string_view text);
std::string rangeText(DurationRange range);

// Memory that a task asks for: "1.5GiB", "512MiB", "1TiB", "2G", "700m"; without a unit it is GiB.
// A part of a MiB is rounded up. At most kBytesMax.
Result<Bytes> parseMemory(std::string_view text);
inline constexpr Bytes kBytesMax = gibibytes(1 << 20);

// A whole number between low and high; `what` names it in the error.
Result<std::int64_t> parseInteger(std::string_view text, std::int64_t low, std::int64_t high,
                                  std::string_view what);

// Names of schema::Policy and their initials: "be" or "best-effort".
Result<schema::Policy> parsePolicy(std::string_view text);
// All that parsePolicy() takes.
std::vector<std::string> policyWords();
// The same for people: "best-effort (be), fixed-share (fs) or ...".
std::string policyForms();

// "sim:8x32": eight cards of 32 GiB each.
struct SimCards {
  std::uint32_t count = 0;
  Bytes memory;
  bool operator==(const SimCards&) const = default;
};
Result<SimCards> parseSimCards(std::string_view text);
inline constexpr std::uint32_t kSimCardsMax = 1024;
inline constexpr std::int64_t kSimGibMax = 4096;

}  // namespace qgpu
