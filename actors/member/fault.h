#pragma once
// A refusal as it travels between node and scheduler: the code of runtime/result.h by name, since
// the other side may know codes that this one does not.

#include <string>
#include <utility>

#include "actors/base/codec.h"
#include "runtime/result.h"

namespace qgpu {

struct Fault {
  std::string code;
  std::string message;

  Fault() = default;
  Fault(ErrorCode of, std::string said) : code(errorName(of)), message(std::move(said)) {}
  explicit Fault(const Error& error) : Fault(error.code, error.message) {}
  // Cut to their limits.
  explicit Fault(schema::Failure::Reader reader)
      : code(text(reader.getCode()).substr(0, 32)),
        message(text(reader.getMessage()).substr(0, 1'024)) {}

  bool is(ErrorCode of) const { return code == errorName(of); }
  void write(schema::Failure::Builder builder) const {
    builder.setCode(code);
    builder.setMessage(message);
  }
};

}  // namespace qgpu
