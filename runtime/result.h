#pragma once
// Expected failures. Result<T> holds a T or an Error; an Error has a stable code that programs
// match and a message for a person that names the value and the fix.

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

constexpr const char* errorName(ErrorCode code) {
  constexpr const char* kNames[] = {
      "invalid-argument", "not-found", "already-exists", "denied",      "no-room",
      "infeasible",       "cordoned",  "conflict",       "overloaded",  "unavailable",
      "corrupt",          "unsupported", "stands-by",      "internal",
  };
  return kNames[static_cast<int>(code)];
}

struct Error {
  ErrorCode code = ErrorCode::Internal;
  std::string message;
};

struct Unit {};

template <typename T = Unit>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

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

  const Error& error() const {
    QGPU_CHECK(!ok(), "error() of a successful Result");
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<Unit>;
inline Status ok() { return Status(Unit{}); }
inline Error fail(ErrorCode code, std::string message) { return Error{code, std::move(message)}; }

}  // namespace qgpu
