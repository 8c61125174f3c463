#pragma once
// What the self-test of suspend=rm found of each NVIDIA card, as a text: kept in the run dir, so
// that a manager that comes back while tenants live starts no probe beside them. An answer holds
// for a card and the version of its driver. What another version of qgpu found is not believed, as
// it may test otherwise, nor is a file that somebody else could have written.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/cards/suspend/channel_suspender.h"

namespace qgpu {

struct SuspendAnswer {
  std::string card;                              // its UUID
  std::string driver;                            // its version; empty: it holds for none
  std::optional<suspend::SuspendMethod> method;  // that works
  std::string why;                               // none does

  bool operator==(const SuspendAnswer&) const = default;
};

inline constexpr const char* kSuspendAnswersFile = "suspends";  // in the run dir

std::string writeSuspendAnswers(const std::vector<SuspendAnswer>& answers,
                                const std::string& version);
// Corrupt: it is no such text. Unsupported: another version of qgpu wrote it.
Result<std::vector<SuspendAnswer>> parseSuspendAnswers(std::string_view text,
                                                       const std::string& version);

// A file of answers, these or others'. NotFound: there is none. Denied: others could have written
// it.
Result<std::string> readKept(const std::string& path);

}  // namespace qgpu
