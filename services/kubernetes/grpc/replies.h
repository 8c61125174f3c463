#pragma once
// Answers to gRPC's calls from a loop.

#include <grpcpp/grpcpp.h>
#include <utility>

#include "runtime/result.h"

namespace qgpu {

inline constexpr const char* kServerEnding = "the device plugin is ending; ask its successor";

inline grpc::StatusCode grpcCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::NotFound:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::NoRoom:
    case ErrorCode::Overloaded:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::Unavailable:
      return grpc::StatusCode::UNAVAILABLE;
    default:
      return grpc::StatusCode::FAILED_PRECONDITION;
  }
}

inline grpc::Status grpcStatusOf(const Error& error) {
  return {grpcCodeOf(error.code), error.message};
}

// Answers one call exactly once, also where the work on it is dropped.
class GrpcReply {
 public:
  explicit GrpcReply(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}
  GrpcReply(GrpcReply&& other) noexcept : reactor_(std::exchange(other.reactor_, nullptr)) {}
  GrpcReply& operator=(GrpcReply&&) = delete;
  ~GrpcReply() { finish({grpc::StatusCode::UNAVAILABLE, kServerEnding}); }
  void finish(const grpc::Status& status) {
    if (auto* reactor = std::exchange(reactor_, nullptr)) reactor->Finish(status);
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
};

}  // namespace qgpu
