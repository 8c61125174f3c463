#include "services/ctl/node_explain.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "actors/policies.h"
#include "runtime/enum_names.h"
#include "schema/types.capnp.h"
#include "services/api/commands/render.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

std::optional<Value> taskOf(const NodeLook& look, std::uint64_t id) {
  for (const Value task : listOf(look.tasks, "tasks")) {
    if (numberOf(task, "id") == id) return task;
  }
  return std::nullopt;
}

// The first of the task's cards: of several it has each for itself.
std::optional<Value> cardOf(const NodeLook& look, Value task) {
  const std::string ids = textOf(task, "card");
  for (const Value card : listOf(look.cards, "cards")) {
    if (textOf(card, "id") == ids.substr(0, ids.find(','))) return card;
  }
  return std::nullopt;
}

std::string nameOf(Value task) {
  return "task " + std::to_string(numberOf(task, "id")) + " (" + textOf(task, "name") + ", " +
         textOf(task, "class") + ")";
}

std::string askedFor(Value task) {
  const std::uint64_t share = numberOf(task, "share_permille");
  if (isWhole(task)) return std::to_string(numberOf(task, "cards")) + " whole card(s)";
  return humanBytes(numberOf(task, "mem_bytes")) +
         (share == 0 ? " and no share" : " and " + humanPermille(share) + " of a card");
}

std::string howShared(Value card, const std::string& name) {
  return name + " is shared by " + textOf(card, "policy") + " between " +
         std::to_string(numberOf(card, "tasks")) + " task(s), which have " +
         humanBytes(numberOf(card, "mem_bound_bytes")) + " of its " +
         humanBytes(numberOf(card, "mem_bytes")) + " and " +
         humanPermille(numberOf(card, "share_bound_permille")) + " of its time";
}

std::string whatItMayHave(Value task, Value card) {
  const std::string share = humanPermille(numberOf(task, "share_permille"));
  const std::string policy = textOf(card, "policy");
  if (textOf(task, "class") == "online") return "online: it has the card the moment it wants it";
  if (isWhole(task)) return "its cards are its own: nothing holds it";
  const std::string rest = textOf(task, "class") == "offline" ? ", of what online tasks leave" : "";
  const auto known = enumFromName<schema::Policy>(policy);
  if (!known) return "of the card what " + policy + " gives it" + rest;
  std::string promise(rulesOf(static_cast<Policy>(*known)).promise);
  if (const std::size_t at = promise.find('#'); at != promise.npos) promise.replace(at, 1, share);
  return policy + ": " + promise + rest;
}

std::string whatItGot(Value before, Value now, Nanos elapsed) {
  const auto part = [&](const char* key) {
    const std::uint64_t was = numberOf(before, key), is = numberOf(now, key);
    const auto grown = static_cast<std::int64_t>(is - std::min(was, is));
    return humanPermille(
        static_cast<std::uint64_t>(elapsed.value > 0 ? mulDiv(grown, 1000, elapsed.value) : 0));
  };
  return "in the last " + humanTime(static_cast<std::uint64_t>(elapsed.value)) + " it had " +
         part("used_ns") + " of the card, and wanted it without having it for " + part("held_ns");
}

std::string holderOf(const NodeLook& look, Value card) {
  const std::uint64_t id = numberOf(card, "holder");
  const std::optional<Value> holder = taskOf(look, id);
  if (holder) return nameOf(*holder) + " has the card";
  return flagOf(card, "online_active") ? "online tasks have the card" : "nobody has the card yet";
}

std::string whatHoldsIt(const NodeLook& look, Value task, Value card) {
  const std::string state = textOf(task, "state");
  if (flagOf(task, "evicting")) return "it is to end: its processes launch nothing more";
  if (numberOf(task, "processes") == 0) return "no process of it is attached: it wants nothing";
  if (state == "running") return "it has the card now";
  if (state == "suspending") return "its slice is over, and what it launched is ending";
  if (state == "idle" || state == "attached") return "it wants nothing of the card now";
  return "it waits for its turn: " + holderOf(look, card);
}

}  // namespace

Document explainOnNode(std::uint64_t id, const NodeLook& before, const NodeLook& now,
                       Nanos elapsed) {
  Document told;
  const std::optional<Value> task = taskOf(now, id);
  const std::optional<Value> card = task ? cardOf(now, *task) : std::nullopt;
  if (!card) {
    writeError(told, fail(ErrorCode::NotFound,
                          "no task " + std::to_string(id) + " here: `qgpuctl tasks` lists them"));
    return told;
  }
  const std::string node = textOf(*card, "node");
  const std::string ids = textOf(*task, "card");
  const std::string name = CardNames(now.cards).shortOf(node, ids);
  std::vector<std::string> lines;
  if (!isWhole(*task)) lines.push_back(howShared(*card, name));
  lines.push_back(whatItMayHave(*task, *card));
  if (const auto was = taskOf(before, id)) lines.push_back(whatItGot(*was, *task, elapsed));
  lines.push_back(whatHoldsIt(now, *task, *card));
  if (const std::string note = textOf(*task, "note"); !note.empty()) lines.push_back(note);

  told.beginObject().flag("ok", true).count("task", id).field("node", node).field("card", ids);
  told.field("text", nameOf(*task) + " is on " + name + " of " + node + ": it asked for " +
                         askedFor(*task) + ", and that had room");
  told.key("lines").beginArray();
  for (const std::string& line : lines) told.string(line);
  told.endArray().endObject();
  return told;
}

}  // namespace qgpu::ctl
