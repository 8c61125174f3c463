#include "services/ctl/answers/names.h"

#include <algorithm>
#include <vector>

#include "actors/ledger/card_name.h"
#include "services/base/wrong_use.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

constexpr std::size_t kListed = 8;  // tasks of one name that an error lists

std::uint32_t indexOf(Value card) {
  return static_cast<std::uint32_t>(numberOf(card, "index"));
}

}  // namespace

bool isCalled(std::string_view word, Value card) {
  return isCardCalled(word, textOf(card, "id"), indexOf(card));
}

Result<std::uint64_t> taskNamed(std::string_view name, Value tasks) {
  std::vector<std::uint64_t> found;
  for (const Value task : listOf(tasks, "tasks")) {
    if (textOf(task, "name") == name) found.push_back(numberOf(task, "id"));
  }
  if (found.size() == 1) return found.front();
  const std::string called = "called \"" + std::string(name) + "\"";
  if (found.empty()) {
    std::vector<std::string> known;
    for (const Value task : listOf(tasks, "tasks")) known.push_back(textOf(task, "name"));
    const std::string meant = didYouMean(name, known);
    return fail(ErrorCode::NotFound, "no task is " + called + (meant.empty() ? ":" : meant) +
                                         " `qgpuctl tasks` lists them");
  }
  std::string numbers;
  for (std::size_t i = 0; i < std::min(found.size(), kListed); ++i) {
    numbers += (i == 0 ? "" : ", ") + std::to_string(found[i]);
  }
  if (found.size() > kListed) numbers += ", ...";
  return fail(ErrorCode::Conflict, std::to_string(found.size()) + " tasks are " + called +
                                       ": say which by its number, of " + numbers);
}

CardNames::CardNames(Value cards) {
  for (const Value card : listOf(cards, "cards")) {
    const std::string id = textOf(card, "id");
    const std::string name = shortCardName(id, indexOf(card));
    short_.emplace(textOf(card, "node") + "/" + id, name);
    // Without its node a name stands where all cards that are called so have the same short one.
    const auto [known, isNew] = short_.emplace("/" + id, name);
    if (!isNew && known->second != name) known->second = id;
  }
}

std::string CardNames::shortOf(std::string_view node, std::string_view ids) const {
  std::string out;
  for (std::size_t from = 0; from < ids.size();) {
    const std::size_t comma = std::min(ids.find(',', from), ids.size());
    const std::string id(ids.substr(from, comma - from));
    const std::size_t slash = node.empty() ? id.find('/') : std::string::npos;
    const bool whole = slash != std::string::npos;  // NODE/ID
    const auto found = short_.find(whole ? id : std::string(node) + "/" + id);
    const std::string name = found == short_.end() ? id
                             : whole               ? id.substr(0, slash + 1) + found->second
                                                   : found->second;
    out += (out.empty() ? "" : ",") + name;
    from = comma + 1;
  }
  return out;
}

}  // namespace qgpu::ctl
