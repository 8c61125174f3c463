#include "services/admin/spec.h"

#include <simdjson.h>

#include <array>
#include <optional>

#include "actors/model.h"
#include "actors/placement/what_if.h"
#include "services/admin/command_line.h"
#include "services/admin/words.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr std::uint64_t kShareStep = 10;          // permille in a percent

Error wrongField(std::string_view key, std::string_view expected) {
  return wrong(std::string(key) + ": expected " + std::string(expected));
}

Result<std::string> textField(std::string_view key, element value) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS || text.size() > kWordMax ||
      text.find('\0') != std::string_view::npos) {
    return wrongField(key, "a text of at most " + std::to_string(kWordMax) + " bytes");
  }
  return std::string(text);
}

Result<std::uint64_t> numberField(std::string_view key, element value, std::uint64_t most) {
  std::uint64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS || number > most) {
    return wrongField(key, "a whole number from 0 to " + std::to_string(most));
  }
  return number;
}

// Copies a field's value, or passes its error on.
template <typename T, typename To>
Status take(Result<T> field, To& to) {
  if (!field) return field.error();
  to = std::move(*field);
  return ok();
}

enum class Field : std::uint8_t { Taken, Unknown };

// What a SPEC says of the task itself; absent numbers have defaults that depend on others.
struct RawSpec {
  RunSpec spec;
  std::optional<std::uint64_t> memoryGib;
  std::optional<std::uint64_t> corePercent;
  std::optional<std::uint64_t> cards;

  Result<Field> read(std::string_view key, element value);
  Result<RunSpec> finish();

 private:
  Status readClass(element value);
  Status applyShare();
};

Status RawSpec::readClass(element value) {
  Result<std::string> text = textField("class", value);
  if (!text) return text.error();
  const auto parsed = classFromName(*text);
  if (!parsed) return wrongField("class", "online, offline or ordinary");
  spec.taskClass = *parsed;
  return ok();
}

Result<Field> RawSpec::read(std::string_view key, element value) {
  Status status = ok();
  if (key == "name") {
    status = take(textField(key, value), spec.name);
  } else if (key == "card") {
    status = take(textField(key, value), spec.card);
  } else if (key == "request_id") {
    status = take(textField(key, value), spec.requestId);
  } else if (key == "class") {
    status = readClass(value);
  } else if (key == "memory_gib") {
    status = take(numberField(key, value, kMemoryGibMax), memoryGib);
  } else if (key == "core_percent") {
    status = take(numberField(key, value, std::uint64_t{kTaskCardsMax} * 100), corePercent);
  } else if (key == "cards") {
    status = take(numberField(key, value, kTaskCardsMax), cards);
  } else {
    return Field::Unknown;
  }
  if (!status) return status.error();
  return Field::Taken;
}

// core_percent above 100 stands for whole cards, as on Kubernetes: N*100 is N cards.
Status RawSpec::applyShare() {
  constexpr std::uint64_t kDefaultPercent = 10;
  const bool whole = cards.value_or(1) > 1;
  std::uint64_t percent = corePercent.value_or(whole ? 100 : kDefaultPercent);
  if (spec.taskClass == schema::TaskClass::ONLINE && !corePercent) percent = whole ? 100 : 0;
  std::uint64_t count = cards.value_or(1);
  if (count == 0) return wrongField("cards", "at least 1");
  if (percent > 100) {
    if (percent % 100 != 0 || (cards && *cards != percent / 100)) {
      return wrongField("core_percent", "1 to 100, or N*100 for N whole cards");
    }
    count = percent / 100;
    percent = 100;
  }
  spec.cards = static_cast<std::uint32_t>(count);
  spec.sharePermille = static_cast<std::uint32_t>(percent * kShareStep);
  return ok();
}

Result<RunSpec> RawSpec::finish() {
  if (Status status = applyShare(); !status) return status.error();
  const std::uint64_t gib = memoryGib.value_or(1);
  if (gib == 0) return wrongField("memory_gib", "at least 1");
  spec.memBytes = gib << 30U;
  return std::move(spec);
}

Result<Field> readOwner(std::string_view key, element value, RunSpec& spec) {
  if (key != "owner") return Field::Unknown;
  Result<std::string> text = textField(key, value);
  if (!text) return text.error();
  if (*text != "none" && *text != "peer") return wrongField(key, "\"peer\" or \"none\"");
  spec.owned = *text == "peer";
  return Field::Taken;
}

Status readModels(element value, std::vector<std::string>& to) {
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS || list.size() > kModelsMax) {
    return wrongField("models", "an array of at most " + std::to_string(kModelsMax) + " texts");
  }
  for (const element model : list) {
    Result<std::string> text = textField("models", model);
    if (!text) return text.error();
    to.push_back(std::move(*text));
  }
  return ok();
}

Result<schema::Score> readScore(std::string_view key, element value) {
  Result<std::string> text = textField(key, value);
  if (!text) return text.error();
  const auto score = scoreFromName(*text);
  if (!score) return wrongField(key, "binpack, spread, fgd, random or best-fit");
  return *score;
}

// What a SPEC says of the cluster.
Result<Field> readWhere(std::string_view key, element value, SubmitSpec& spec) {
  Status status = ok();
  if (key == "node") {
    status = take(textField(key, value), spec.node);
  } else if (key == "application") {
    status = take(textField(key, value), spec.application);
  } else if (key == "models") {
    status = readModels(value, spec.models);
  } else if (key == "cpu_milli") {
    status = take(numberField(key, value, kCpuMilliMax), spec.cpuMilli);
  } else if (key == "host_memory_gib") {
    status = take(numberField(key, value, kMemoryGibMax), spec.hostMemBytes);
    spec.hostMemBytes <<= 30U;
  } else if (key == "node_score") {
    status = take(readScore(key, value), spec.nodeScore);
  } else if (key == "card_score") {
    status = take(readScore(key, value), spec.cardScore);
  } else if (key == "preempt") {
    if (value.get(spec.preempt) != simdjson::SUCCESS) status = wrongField(key, "true or false");
  } else {
    return Field::Unknown;
  }
  if (!status) return status.error();
  return Field::Taken;
}

// The fields of one object, each given to the first of `readers` that knows it.
template <typename... Readers>
Status readFields(simdjson::dom::object object, std::string_view known, Readers... readers) {
  for (const auto field : object) {
    Result<Field> taken = Field::Unknown;
    const auto offer = [&](auto& reader) {
      if (taken && *taken == Field::Unknown) taken = reader(field.key, field.value);
    };
    (offer(readers), ...);
    if (!taken) return taken.error();
    if (*taken == Field::Unknown) {
      return wrong(quoted(field.key) + " is no field of a SPEC: " + std::string(known));
    }
  }
  return ok();
}

Result<SubmitSpec> readSubmit(simdjson::dom::object object) {
  RawSpec raw;
  SubmitSpec spec;
  const auto ofTask = [&](std::string_view key, element value) { return raw.read(key, value); };
  const auto where = [&](std::string_view key, element value) {
    return readWhere(key, value, spec);
  };
  Status read = readFields(object,
                           "name, class, memory_gib, core_percent, cards, card, request_id, node, "
                           "models, cpu_milli, host_memory_gib, application, node_score, "
                           "card_score, preempt",
                           ofTask, where);
  if (!read) return read.error();
  Result<RunSpec> task = raw.finish();
  if (!task) return task.error();
  spec.task = std::move(*task);
  spec.task.owned = false;
  return spec;
}

// `parser` keeps what the object stands in.
Result<simdjson::dom::object> parseObject(simdjson::dom::parser& parser, std::string_view json) {
  const simdjson::padded_string padded(json);
  element root;
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    return wrong(std::string("SPEC is no JSON: ") + simdjson::error_message(error));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return wrong("SPEC is one JSON object, such as {\"name\":\"a\",\"memory_gib\":1}");
  }
  return object;
}

}  // namespace

Result<RunSpec> parseRunSpec(std::string_view json) {
  simdjson::dom::parser parser;
  const auto object = parseObject(parser, json);
  if (!object) return object.error();
  RawSpec raw;
  const auto ofTask = [&](std::string_view key, element value) { return raw.read(key, value); };
  const auto owner = [&](std::string_view key, element value) {
    return readOwner(key, value, raw.spec);
  };
  Status read = readFields(
      *object, "name, class, memory_gib, core_percent, cards, card, request_id, owner", ofTask,
      owner);
  if (!read) return read.error();
  return raw.finish();
}

Result<SubmitSpec> parseSubmitSpec(std::string_view json) {
  simdjson::dom::parser parser;
  const auto object = parseObject(parser, json);
  if (!object) return object.error();
  return readSubmit(*object);
}

Result<PlaceOrDrain> parsePlaceOrDrain(std::string_view json) {
  simdjson::dom::parser parser;
  const auto object = parseObject(parser, json);
  if (!object) return object.error();
  PlaceOrDrain question;
  simdjson::dom::object place;
  std::string_view target;
  std::uint64_t count = 1;
  const bool places = (*object)["place"].get(place) == simdjson::SUCCESS;
  const bool drains = (*object)["drain"].get(target) == simdjson::SUCCESS;
  const bool counts = (*object)["count"].get(count) == simdjson::SUCCESS;
  const std::size_t known = std::size_t{places} + std::size_t{drains} + std::size_t{counts};
  if (places == drains || (drains && counts) || known != object->size() || count == 0 ||
      count > WhatIf::kCountMax) {
    return wrong("SPEC is {\"place\":SPEC,\"count\":N}, N from 1 to " +
                 std::to_string(WhatIf::kCountMax) + ", or {\"drain\":\"NODE[/CARD]\"}");
  }
  if (drains) {
    if (Status parsed = parseTarget(target, question.node, question.card); !parsed) {
      return parsed.error();
    }
    return question;
  }
  Result<SubmitSpec> spec = readSubmit(place);
  if (!spec) return spec.error();
  question.place = std::move(*spec);
  question.count = static_cast<std::uint32_t>(count);
  return question;
}

// A node's name holds no slash, a card's id may.
Status parseTarget(std::string_view text, std::string& node, std::string& card) {
  const std::size_t slash = text.find('/');
  node = std::string(text.substr(0, slash));
  card = slash == std::string_view::npos ? "" : std::string(text.substr(slash + 1));
  const bool good = !node.empty() && node.size() <= kWordMax && card.size() <= kWordMax &&
                    (slash == std::string_view::npos || !card.empty()) &&
                    text.find('\0') == std::string_view::npos;
  if (good) return ok();
  return wrong(quoted(text) + " names no node: NODE, or NODE/CARD for one of its cards");
}

void fillTask(schema::TaskSpec::Builder out, const RunSpec& spec, std::uint32_t uid) {
  out.setName(ptr(spec.name));
  out.setClass(spec.taskClass);
  out.setMemBytes(spec.memBytes);
  out.setSharePermille(spec.sharePermille);
  out.setCards(spec.cards);
  out.setCard(ptr(spec.card));
  out.setRequestId(ptr(spec.requestId));
  out.setOwnerUid(uid);
}

void fillSubmit(schema::ClusterSpec::Builder out, const SubmitSpec& spec, std::uint32_t uid) {
  fillTask(out.initTask(), spec.task, uid);
  out.setNode(ptr(spec.node));
  auto models = out.initModels(static_cast<capnp::uint>(spec.models.size()));
  for (capnp::uint i = 0; i < models.size(); ++i) models.set(i, ptr(spec.models[i]));
  out.setCpuMilli(spec.cpuMilli);
  out.setHostMemBytes(spec.hostMemBytes);
  out.setApplication(ptr(spec.application));
  out.setNodeScore(spec.nodeScore);
  out.setCardScore(spec.cardScore);
  out.setPreempt(spec.preempt);
}

}  // namespace qgpu
