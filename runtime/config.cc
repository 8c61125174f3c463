#include "runtime/config.h"

#include <charconv>
#include <span>
#include <string>

#include "runtime/enum_names.h"

namespace qgpu {
namespace {

struct UnitName {
  std::string_view name;
  std::int64_t size;  // in the smallest unit
};

constexpr std::size_t kNumberMax = 64;  // letters of one

constexpr UnitName kTimeUnits[] = {{"ns", 1},
                                   {"us", 1'000},
                                   {"ms", 1'000'000},
                                   {"s", 1'000'000'000},
                                   {"m", 60'000'000'000},
                                   {"h", 3'600'000'000'000}};
constexpr std::int64_t kMiB = 1LL << 20;
constexpr UnitName kMemoryUnits[] = {{"", 1LL << 30},    {"mib", kMiB},    {"m", kMiB},
                                     {"gib", 1LL << 30}, {"g", 1LL << 30}, {"tib", 1LL << 40},
                                     {"t", 1LL << 40}};

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t digitsAt(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size() && isDigit(text[n])) ++n;
  return n;
}

bool toInteger(std::string_view digits, std::int64_t& value) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size();
}

// Of a fraction that is no whole number of the smallest unit.
enum class Inexact : std::uint8_t { NoValue, Up };

// "1.5s" -> 1.5 * 10^9. False for what does not parse or exceeds `max`.
bool parseQuantity(std::string_view text, std::span<const UnitName> units, Inexact inexact,
                   std::int64_t max, std::int64_t& value) {
  const std::string_view whole = text.substr(0, digitsAt(text));
  std::string_view rest = text.substr(whole.size());
  std::string_view fraction;
  if (rest.starts_with('.')) {
    fraction = rest.substr(1, digitsAt(rest.substr(1)));
    rest.remove_prefix(1 + fraction.size());
    if (fraction.empty() || fraction.size() > 9) return false;
  }
  std::int64_t count = 0;
  if (whole.empty() || !toInteger(whole, count)) return false;
  for (const UnitName& unit : units) {
    if (rest != unit.name) continue;
    if (count > max / unit.size) return false;
    std::int64_t parts = 0;
    std::int64_t scale = 1;
    for (const char digit : fraction) {
      parts = parts * 10 + (digit - '0');
      scale *= 10;
    }
    std::int64_t below = mulDiv(parts, unit.size, scale);
    if (mulDiv(below, scale, unit.size) != parts) {
      if (inexact == Inexact::NoValue) return false;
      ++below;
    }
    value = count * unit.size + below;
    return value <= max;
  }
  return false;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;  // of a value that may be anything
  std::string shown = "'";
  for (const char c : text.substr(0, kShown)) shown += c >= ' ' && c != 0x7f ? c : '?';
  return shown + (text.size() > kShown ? "...'" : "'");
}

Error refuse(std::string_view what, std::string_view text, std::string_view accepted) {
  return fail(ErrorCode::InvalidArgument, std::string(what) + " " + quoted(text) +
                                              " is not valid; use " + std::string(accepted));
}

// "best-effort" as "be".
std::string initials(std::string_view name) {
  std::string letters;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '-') letters += name[i];
  }
  return letters;
}

}  // namespace

Result<Nanos> parseDuration(std::string_view text) {
  std::int64_t value = 0;
  if (parseQuantity(text, kTimeUnits, Inexact::NoValue, kDurationMax.value, value))
    return Nanos(value);
  return refuse("duration", text, "a number and ns, us, ms, s, m or h, at most 24h, as in 100ms");
}

std::string durationText(Nanos duration) {
  const UnitName* unit = std::begin(kTimeUnits);
  for (const UnitName& one : kTimeUnits) {
    if (duration.value != 0 && duration.value % one.size == 0) unit = &one;
  }
  return std::to_string(duration.value / unit->size) + std::string(unit->name);
}

Result<DurationRange> parseRange(std::string_view text) {
  constexpr std::string_view kForm = "two durations, the smaller first, as in 2ms..30ms";
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return refuse("range", text, kForm);
  const auto low = parseDuration(text.substr(0, dots));
  const auto high = parseDuration(text.substr(dots + 2));
  if (!low || !high || *low < Nanos(1) || *high < *low) return refuse("range", text, kForm);
  return DurationRange{*low, *high};
}

std::string rangeText(DurationRange range) {
  return durationText(range.low) + ".." + durationText(range.high);
}

Result<Bytes> parseMemory(std::string_view text) {
  std::string small(text.substr(0, kNumberMax));
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::int64_t value = 0;
  if (text.size() <= kNumberMax &&
      parseQuantity(small, kMemoryUnits, Inexact::Up, kBytesMax.value, value)) {
    return Bytes((value + kMiB - 1) / kMiB * kMiB);
  }
  return fail(ErrorCode::InvalidArgument,
              quoted(text) + " is not a size: write 1.5GiB, 512MiB or 2");
}

Result<std::int64_t> parseInteger(std::string_view text, std::int64_t low, std::int64_t high,
                                  std::string_view what) {
  std::int64_t value = 0;
  if (toInteger(text, value) && value >= low && value <= high) return value;
  return refuse(what, text,
                "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
}

std::string policyForms() {
  const std::vector<std::string>& names = enumNames<schema::Policy>();
  std::string forms;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    forms += before + names[i] + " (" + initials(names[i]) + ")";
  }
  return forms;
}

std::vector<std::string> policyWords() {
  std::vector<std::string> words = enumNames<schema::Policy>();
  for (const std::string& name : enumNames<schema::Policy>()) words.push_back(initials(name));
  return words;
}

Result<schema::Policy> parsePolicy(std::string_view text) {
  for (const std::string& name : enumNames<schema::Policy>()) {
    if (text == name || text == initials(name)) return *enumFromName<schema::Policy>(name);
  }
  return refuse("policy", text, policyForms());
}

Result<SimCards> parseSimCards(std::string_view text) {
  constexpr std::string_view kForm =
      "sim:NxM, N cards (1 to 1024) of M GiB (1 to 4096), as in sim:8x32";
  constexpr std::string_view kPrefix = "sim:";
  const std::size_t x = text.find('x');
  if (!text.starts_with(kPrefix) || x == std::string_view::npos) {
    return refuse("cards", text, kForm);
  }
  std::int64_t count = 0;
  std::int64_t gib = 0;
  const bool numbers = toInteger(text.substr(kPrefix.size(), x - kPrefix.size()), count) &&
                       toInteger(text.substr(x + 1), gib);
  if (!numbers || count < 1 || count > kSimCardsMax || gib < 1 || gib > kSimGibMax) {
    return refuse("cards", text, kForm);
  }
  return SimCards{static_cast<std::uint32_t>(count), gibibytes(gib)};
}

}  // namespace qgpu
