#include "services/ctl/drain_plan.h"

#include <algorithm>
#include <vector>

#include "services/api/commands/render.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

constexpr std::size_t kNamed = 8;  // tasks in a sentence

bool isOn(Value task, const std::string& card) {
  return ("," + textOf(task, "card") + ",").find("," + card + ",") != std::string::npos;
}

}  // namespace

Document planNodeDrain(std::string_view word, Value tasks, Value cards) {
  Document plan;
  const std::vector<Value> all = listOf(cards, "cards");
  const auto card = std::ranges::find_if(all, [&](Value one) { return isCalled(word, one); });
  if (card == all.end()) {
    writeError(plan, fail(ErrorCode::NotFound,
                          "no card '" + std::string(word) + "' here: `qgpuctl cards` lists them"));
    return plan;
  }
  const std::string id = textOf(*card, "id");
  plan.beginObject().flag("ok", true).field("card", id).key("ends").beginArray();
  for (const Value task : listOf(tasks, "tasks")) {
    if (!isOn(task, id)) continue;
    plan.beginObject().count("id", numberOf(task, "id")).field("name", textOf(task, "name"));
    plan.endObject();
  }
  plan.endArray().endObject();
  return plan;
}

std::size_t concernedBy(Value plan) {
  return listOf(plan, "ends").size() + listOf(plan, "landed").size() + listOf(plan, "stay").size();
}

std::string sayNodeDrain(Value plan) {
  const std::vector<Value> tasks = listOf(plan, "ends");
  if (tasks.empty()) return "ends no task";
  std::string out =
      "ends " + std::to_string(tasks.size()) + (tasks.size() == 1 ? " task: " : " tasks: ");
  for (std::size_t i = 0; i < std::min(tasks.size(), kNamed); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(numberOf(tasks[i], "id")) + " (" +
           printable(textOf(tasks[i], "name")) + ")";
  }
  return out + (tasks.size() > kNamed ? ", ..." : "");
}

}  // namespace qgpu::ctl
