#include "services/attach/guard_news.h"

namespace qgpu {

std::string GuardNews::textOf(const GuardRefusal& refusal, Nanos now) {
  std::erase_if(toldAt_, [now](const auto& told) { return now - told.second >= kTellEach; });
  if (toldAt_.size() == kTasksMost || !toldAt_.try_emplace(refusal.task, now).second) return "";
  const bool known = refusal.card < cards_.size();
  const std::string who = "process " + std::to_string(refusal.pid) + " (" + refusal.program + ")";
  const std::string card = known ? cards_[refusal.card].id : "what all cards share";
  switch (refusal.way) {
    case GuardRefusal::Way::Quota:
      return who + " was refused memory of " + card +
             " at the driver: its task's quota has no room for it, and its program asked past "
             "the library";
    case GuardRefusal::Way::HandOn:
      return who + " was not let to hand memory of " + card +
             " on by a way that is not counted (several objects at once, or a dma-buf)";
    case GuardRefusal::Way::Altered:
      return who + " was ended: it changed a call for memory of " + card +
             " while the driver read it";
    default:
      break;
  }
  constexpr const char* kWays[] = {"open", "be sent", "use", "map"};
  return who + " was not let to " + kWays[static_cast<std::size_t>(refusal.way)] + " " + card +
         (refusal.attached ? ": it is no card of its task" : ": it has not attached");
}

}  // namespace qgpu
