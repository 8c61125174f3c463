#pragma once
// The integers that count: nanoseconds, bytes and permille as types of their own, so that a share
// is never added to a time. Arithmetic is exact 64-bit; mulDiv() keeps 128-bit intermediates, so
// decisions need no floating point anywhere.

#include <compare>
#include <cstdint>

namespace qgpu {

// One strong integer type per unit; Tag only tells them apart.
template <typename Tag>
struct Quantity {
  std::int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t v) : value(v) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return Quantity(-value); }
  constexpr Quantity& operator+=(Quantity other) { return value += other.value, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value -= other.value, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity(a.value * n); }
  friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return a * n; }
  friend constexpr Quantity operator/(Quantity a, std::int64_t n) { return Quantity(a.value / n); }
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.value / b.value; }
};

// No conversion to or from another unit, nor from a bare integer: Nanos(5), and `.value` back.
using Nanos = Quantity<struct NanosTag>;        // a duration, or a point on the loop's clock
using Bytes = Quantity<struct BytesTag>;        // memory
using Permille = Quantity<struct PermilleTag>;  // a share of one card: 1000 is the whole card

constexpr Nanos micros(std::int64_t n) {
  return Nanos(n * 1'000);
}
constexpr Nanos millis(std::int64_t n) {
  return Nanos(n * 1'000'000);
}
constexpr Nanos seconds(std::int64_t n) {
  return Nanos(n * 1'000'000'000);
}
constexpr Bytes mebibytes(std::int64_t n) {
  return Bytes(n << 20);
}
constexpr Bytes gibibytes(std::int64_t n) {
  return Bytes(n << 30);
}

// A deadline that never comes. No time is added to it: that would overflow.
inline constexpr Nanos kNever = Nanos(INT64_MAX);
inline constexpr Permille kWholeCard = Permille(1000);

// a * b / c, rounded towards zero, without overflow of the product. c must not be 0.
constexpr std::int64_t mulDiv(std::int64_t a, std::int64_t b, std::int64_t c) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(static_cast<Wide>(a) * b / c);
}

// The part of a time that a share is: scale(seconds(2), Permille(250)) is half a second. Rounded
// towards zero.
constexpr Nanos scale(Nanos duration, Permille share) {
  return Nanos(mulDiv(duration.value, share.value, 1000));
}

}  // namespace qgpu
