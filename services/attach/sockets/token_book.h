#pragma once
// Whose token is whose, for the listener: the card loop writes it, the listener's thread asks. A
// token is there before anybody is told of its task, and until its processes are gone.
//
// The card loop takes the lock when a task comes or goes; it lends priority (HAZARDS 24).

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/pi_mutex.h"
#include "services/wire/gate_abi.h"

namespace qgpu {

// AttachServer adds and removes, AttachListener and UnheldWatch look up. Its methods are for any
// thread.
class TokenBook {
 public:
  struct Found {
    std::uint64_t task = 0;  // 0: no task has it
    bool mayCome = false;    // then: the node has not told of all its tasks yet
  };

  void add(std::uint64_t task, const std::string& token);  // of QGPU_TOKEN_LEN characters
  void remove(std::uint64_t task);
  // The node has told of all tasks that it had when the manager started, or its time is over.
  void complete();

  // `token` has QGPU_TOKEN_LEN bytes. In the same time whatever the difference to a token is.
  Found find(const char* token) const;
  // Whether two tokens of QGPU_TOKEN_LEN bytes are equal, in the same time wherever they differ.
  static bool same(const char* left, const char* right);

 private:
  struct Entry {
    std::uint64_t task = 0;
    std::array<char, QGPU_TOKEN_LEN> token{};
  };

  mutable PiMutex mutex_;
  std::vector<Entry> entries_;
  bool complete_ = false;
};

}  // namespace qgpu
