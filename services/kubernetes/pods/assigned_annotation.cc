#include "services/kubernetes/pods/assigned_annotation.h"

#include <simdjson.h>

namespace qgpu {
namespace {

Error wrong(const std::string& what) {
  return fail(ErrorCode::InvalidArgument, "annotation qgpu.io/assigned: " + what);
}

}  // namespace

Result<AssignedCards> readAssignedAnnotation(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) {
    return wrong("it is no JSON object");
  }
  AssignedCards assigned;
  for (const auto field : root) {
    const std::string container(field.key);
    simdjson::dom::array cards;
    if (field.value.get(cards) != simdjson::SUCCESS) return wrong(container + " has no list");
    std::vector<std::string>& to = assigned[container];
    for (const simdjson::dom::element card : cards) {
      std::string_view id;
      if (card.get(id) != simdjson::SUCCESS || id.empty()) {
        return wrong(container + " has a card that is no text");
      }
      to.emplace_back(id);
    }
    if (to.size() > kAssignedCardsMax || assigned.size() > kAssignedContainersMax) {
      return wrong("it is too long");
    }
  }
  return assigned;
}

}  // namespace qgpu
