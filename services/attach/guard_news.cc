#include "services/attach/guard_news.h"

namespace qgpu {

std::string GuardNews::textOf(const GuardRefusal& refusal, Nanos now) {
  std::erase_if(toldAt_, [now](const auto& told) { return now - told.second >= kTellEach; });
  if (toldAt_.size() == kTasksMost || !toldAt_.try_emplace(refusal.task, now).second) return "";
  constexpr const char* kWays[] = {"open", "be sent", "use", "map"};
  const bool known = refusal.card < cards_.size();
  const std::string what = known ? cards_[refusal.card].id : "what all cards share";
  return "process " + std::to_string(refusal.pid) + " (" + refusal.program + ") was not let to " +
         kWays[static_cast<std::size_t>(refusal.way)] + " " + what +
         (refusal.attached ? ": it is no card of its task" : ": it has not attached");
}

}  // namespace qgpu
