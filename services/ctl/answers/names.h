#pragma once
// Names beside numbers: which task or card a person means, by what a daemon lists, and what a card
// is called where there is little room.

#include <cstdint>
#include <map>
#include <string>

#include "runtime/result.h"
#include "services/ctl/answers/client.h"

namespace qgpu::ctl {

// True where `word` is the id, the index or the short name of this card of a list.
bool isCalled(std::string_view word, Value card);

// The number of the one task that is called so; `tasks` is a daemon's list of them. NotFound,
// Conflict: none is, or several, which the error lists.
Result<std::uint64_t> taskNamed(std::string_view name, Value tasks);

// Short names of the cards of a daemon's list.
class CardNames {
 public:
  CardNames() = default;  // every card is its id
  explicit CardNames(Value cards);

  // Of one id, or of several with commas between; without a node also of NODE/ID. What is not known
  // stays as it is.
  std::string shortOf(std::string_view node, std::string_view ids) const;

 private:
  std::map<std::string, std::string, std::less<>> short_;  // by NODE/ID
};

}  // namespace qgpu::ctl
