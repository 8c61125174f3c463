#pragma once
// What each policy means, a row each. The arbiter, the ledger, placement and what people are told
// read the row and name no policy, so that one more is a value of Policy (actors/model.h), its name
// in schema/types.capnp, and a row here; only what no row can say yet is work in the arbiter.

#include <cstddef>
#include <string_view>

#include "actors/model.h"

namespace qgpu {

struct PolicyRules {
  bool weighs = false;  // tasks get time in proportion to their shares; else each gets the same
  bool caps = false;    // none gets more than its share, so each needs one; what is left stays idle
  bool ownersFirst = false;  // who has no share lives on what those with one leave
  std::string_view promise;  // what a task gets of a card that others want; '#': its share
};

inline constexpr PolicyRules kPolicyRules[] = {
    {.promise = "as much as each other task that wants the card"},
    {.weighs = true, .caps = true, .promise = "at most # of the card"},
    {.weighs = true, .ownersFirst = true, .promise = "at least # of the card while it wants it"},
};

constexpr const PolicyRules& rulesOf(Policy policy) {
  return kPolicyRules[static_cast<std::size_t>(policy)];
}

}  // namespace qgpu
