#pragma once
// Expected failures: what input, disk, network or a full queue may cause. A function that may fail
// returns Result<T>, which holds a T or an Error; an Error has a stable code that programs match
// and a message for a person that names the value and the fix. Bugs are QGPU_CHECKs (check.h), and
// exceptions of KJ are turned into errors where they come in (STYLE 2 and 3).
//
//   Result<int> parsed = parsePort(text);
//   if (!parsed) return parsed.error();
//   use(*parsed);

#include <string>
#include <utility>
#include <variant>

#include "runtime/check.h"

namespace qgpu {

// Stable reasons. Their text form (errorName) appears in the admin socket's "code", in RPC errors
// and in metrics; add freely, never rename.
enum class ErrorCode : int {
  InvalidArgument,  // the request itself is wrong; trying again can't help
  NotFound,         // no such task, card or token
  AlreadyExists,    // the name or id is taken
  Denied,           // the caller's credentials do not allow it
  NoRoom,           // memory, share or task count of every card is used up now
  Infeasible,       // would not fit an empty node
  Cordoned,         // the card takes no new tasks
  Conflict,         // tenancy kind, epoch or state forbids it
  Overloaded,       // a bounded queue is full: try again later
  Unavailable,      // storage or a peer is out of order: try again later
  Corrupt,          // stored or received bytes fail their checks
  Unsupported,      // a newer format, or a feature that this machine lacks
  StandsBy,         // another scheduler acts: ask that one
  Internal,         // a bug, or an answer that makes no sense
};

// The text form: "invalid-argument". It lives as long as the program.
constexpr const char* errorName(ErrorCode code) {
  constexpr const char* kNames[] = {
      "invalid-argument", "not-found",   "already-exists", "denied",     "no-room",
      "infeasible",       "cordoned",    "conflict",       "overloaded", "unavailable",
      "corrupt",          "unsupported", "stands-by",      "internal",
  };
  return kNames[static_cast<int>(code)];
}

// Why something failed. The message is a sentence without a full stop, for whoever asked.
struct Error {
  ErrorCode code = ErrorCode::Internal;
  std::string message;
};

// The value of a function that has none: see Status.
struct Unit {};

// A value or the error in its place. The caller looks which one it is before it takes it: taking
// the other one is a bug, and a check that fails. T needs no default constructor.
template <typename T = Unit>
class [[nodiscard]] Result {
 public:
  // Both are implicit, so that a function returns a value or `fail(...)` as it is.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  // Whether it holds a value.
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value; `std::move(result).value()` and `std::move(*result)` move it out.
  T& value() & {
    QGPU_CHECK(ok(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    QGPU_CHECK(ok(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The error; an Error converts to a Result of any T, so it is passed on by returning it.
  const Error& error() const {
    QGPU_CHECK(!ok(), "error() of a successful Result");
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

// Of functions that only succeed or fail.
using Status = Result<Unit>;
inline Status ok() {
  return Status(Unit{});
}
inline Error fail(ErrorCode code, std::string message) {
  return Error{code, std::move(message)};
}

}  // namespace qgpu
