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
    case GuardRefusal::Way::Closed:
      return who + " was refused a call for memory of " + card +
             " that nobody counts: it exports several objects or a dma-buf, asks the display half, "
             "leaves a name to the driver, or comes by a ring or from a program of 32 bits";
    case GuardRefusal::Way::Altered:
      return who + " was ended, and its task: it changed a call for memory of " + card +
             " while the driver read it";
    default:
      break;
  }
  constexpr const char* kWays[] = {"open", "be sent", "use", "map"};
  return who + " was not let to " + kWays[static_cast<std::size_t>(refusal.way)] + " " + card +
         (refusal.attached ? ": it is no card of its task" : ": it has not attached");
}

}  // namespace qgpu
