#include "services/ctl/drain_plan.h"

#include <algorithm>
#include <vector>

#include "services/api/commands/render.h"
#include "services/base/json.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

using simdjson::dom::element;

constexpr std::size_t kNamed = 8;  // tasks in a sentence

bool isOn(element task, const std::string& card) {
  return ("," + textOf(task, "card") + ",").find("," + card + ",") != std::string::npos;
}

}  // namespace

std::string planNodeDrain(std::string_view word, element tasks, element cards) {
  const std::vector<element> all = listOf(cards, "cards");
  const auto card = std::ranges::find_if(all, [&](element one) { return isCalled(word, one); });
  if (card == all.end()) {
    return renderError(fail(ErrorCode::NotFound, "no card '" + std::string(word) +
                                                     "' here: `qgpuctl cards` lists them"));
  }
  const std::string id = textOf(*card, "id");
  JsonWriter json;
  json.beginObject().flag("ok", true).field("card", id).key("ends").beginArray();
  for (const element task : listOf(tasks, "tasks")) {
    if (!isOn(task, id)) continue;
    json.beginObject().count("id", numberOf(task, "id")).field("name", textOf(task, "name"));
    json.endObject();
  }
  json.endArray().endObject();
  return json.take();
}

std::size_t concernedBy(element plan) {
  return listOf(plan, "ends").size() + listOf(plan, "landed").size() + listOf(plan, "stay").size();
}

std::string sayNodeDrain(element plan) {
  const std::vector<element> tasks = listOf(plan, "ends");
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
