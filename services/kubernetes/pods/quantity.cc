#include "services/kubernetes/pods/quantity.h"

#include <array>
#include <optional>

namespace qgpu {
namespace {

constexpr std::size_t kQuantityMax = 64;
constexpr int kPlacesMax = 40;  // far beyond what 63 bits hold

Error refused(std::string_view text, const char* why) {
  return fail(ErrorCode::InvalidArgument,
              "'" + std::string(text.substr(0, kQuantityMax)) + "' " + why);
}

// What a suffix multiplies by: 10^tens * 2^twos.
struct Scale {
  int tens = 0;
  int twos = 0;
};

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<Scale> exponentOf(std::string_view digits) {
  bool minus = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    minus = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty()) return std::nullopt;
  int value = 0;
  for (const char c : digits) {
    if (!isDigit(c)) return std::nullopt;
    if (value < 1000) value = value * 10 + (c - '0');
  }
  return Scale{minus ? -value : value, 0};
}

std::optional<Scale> scaleOf(std::string_view suffix) {
  struct Named {
    std::string_view name;
    Scale scale;
  };
  constexpr std::array<Named, 16> kNamed = {{{"", {0, 0}},
                                             {"n", {-9, 0}},
                                             {"u", {-6, 0}},
                                             {"m", {-3, 0}},
                                             {"k", {3, 0}},
                                             {"M", {6, 0}},
                                             {"G", {9, 0}},
                                             {"T", {12, 0}},
                                             {"P", {15, 0}},
                                             {"E", {18, 0}},
                                             {"Ki", {0, 10}},
                                             {"Mi", {0, 20}},
                                             {"Gi", {0, 30}},
                                             {"Ti", {0, 40}},
                                             {"Pi", {0, 50}},
                                             {"Ei", {0, 60}}}};
  for (const Named& named : kNamed) {
    if (suffix == named.name) return named.scale;
  }
  if (suffix[0] == 'e' || suffix[0] == 'E') return exponentOf(suffix.substr(1));
  return std::nullopt;
}

// Multiplies `times` times; false where it goes beyond.
bool multiply(std::int64_t& value, std::int64_t by, int times) {
  for (int i = 0; i < times && value != 0; ++i) {
    if (__builtin_mul_overflow(value, by, &value)) return false;
  }
  return true;
}

}  // namespace

Result<std::int64_t> wholeQuantity(std::string_view text) {
  constexpr const char* kNone = "is no quantity: write a whole number like 5";
  constexpr const char* kBeyond = "is more than any node can have";
  constexpr const char* kBroken = "is not a whole number: decimals are not allowed";
  if (text.size() > kQuantityMax) return refused(text, kNone);
  std::string_view rest = text;
  const bool minus = !rest.empty() && rest[0] == '-';
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) rest.remove_prefix(1);
  std::string digits;
  std::size_t at = 0;
  int places = 0;  // behind the point
  bool point = false;
  for (; at < rest.size() && (isDigit(rest[at]) || (rest[at] == '.' && !point)); ++at) {
    if (rest[at] == '.')
      point = true;
    else
      digits += rest[at], places += point ? 1 : 0;
  }
  if (digits.empty()) return refused(text, kNone);
  const std::optional<Scale> scale = scaleOf(rest.substr(at));
  if (!scale) return refused(text, kNone);
  // Zeros at the end of the digits count as tens, so that "5000m" is 5.
  int tens = scale->tens - places;
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back(), ++tens;
  std::int64_t value = 0;
  for (const char c : digits) {
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, c - '0', &value)) {
      return refused(text, kBeyond);
    }
  }
  if (value == 0) return std::int64_t{0};
  if (minus) return refused(text, "is below zero");
  if (tens > kPlacesMax) return refused(text, kBeyond);
  if (!multiply(value, 2, scale->twos)) return refused(text, kBeyond);
  for (; tens < 0; ++tens) {
    if (value % 10 != 0) return refused(text, kBroken);
    value /= 10;
  }
  if (!multiply(value, 10, tens)) return refused(text, kBeyond);
  return value;
}

}  // namespace qgpu
