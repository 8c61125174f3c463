#include "services/api/commands/spec.h"

#include <algorithm>
#include <array>
#include <simdjson.h>

#include "actors/model.h"
#include "actors/placement/what_if.h"
#include "runtime/config.h"
#include "runtime/enum_names.h"
#include "services/api/commands/command_line.h"
#include "services/api/commands/schema_names.h"
#include "services/base/json.h"

namespace qgpu {
namespace {

using simdjson::dom::element;
using Form = SpecField::Form;

constexpr std::uint64_t kPercentMax = std::uint64_t{kTaskCardsMax} * 100;
constexpr std::int64_t kShareStep = 10;  // permille in a percent

std::vector<std::string> classes() {
  return enumNames<schema::TaskClass>();
}
// The class default is what is not said.
std::vector<std::string> scores() {
  std::vector<std::string> names = enumNames<schema::Score>();
  std::erase(names, enumName(schema::Score::CLASS_DEFAULT));
  return names;
}
std::vector<std::string> owners() {
  return {"peer", "none"};
}

TaskClass classOf(const SaidValue& value) {
  return readClass(classFromName(value.text).value_or(schema::TaskClass::ORDINARY));
}

Score scoreOf(const SaidValue& value) {
  return readScore(scoreFromName(value.text).value_or(schema::Score::CLASS_DEFAULT));
}

using Fill = void (*)(AskedTask& asked, SaidValue&& value);
using Only = std::optional<Side>;

// The forms of a row, each with its bounds.
constexpr SpecField text(std::string_view key, std::string_view option, std::string_view type,
                         std::string_view meaning, Fill fill, Only only = {}) {
  return {
      .key = key, .option = option, .type = type, .meaning = meaning, .fill = fill, .only = only};
}
constexpr SpecField choice(std::string_view key, std::string_view option, std::string_view meaning,
                           std::vector<std::string> (*choices)(), Fill fill, Only only = {}) {
  SpecField field = text(key, option, "TEXT", meaning, fill, only);
  field.form = Form::Choice;
  field.choices = choices;
  return field;
}
struct Range {
  std::uint64_t least;
  std::uint64_t most;
  std::string_view unit;
};
constexpr SpecField number(std::string_view key, std::string_view option, std::string_view type,
                           std::string_view meaning, Range range, Fill fill, Only only = {}) {
  SpecField field = text(key, option, type, meaning, fill, only);
  field.form = Form::Number;
  field.least = range.least;
  field.most = range.most;
  field.unit = range.unit;
  return field;
}
constexpr SpecField other(Form form, SpecField field, std::uint64_t most = 0) {
  field.form = form;
  field.most = most;
  return field;
}

constexpr std::uint64_t kMibInGib = 1024;
constexpr SpecField size(std::string_view key, std::string_view inGib, std::string_view option,
                         std::string_view meaning, std::uint64_t least, Fill fill, Only only = {}) {
  SpecField field = text(key, option, "SIZE", meaning, fill, only);
  field.form = Form::Size;
  field.least = least;
  field.most = static_cast<std::uint64_t>(kMemoryGibMax) * kMibInGib;
  field.inGib = inGib;
  return field;
}

Bytes bytesOf(const SaidValue& value) {
  return mebibytes(static_cast<std::int64_t>(value.number));
}

constexpr SpecField kFields[] = {
    text("name", "--name", "NAME", "of the task (default: of CMD, else \"task\")",
         [](AskedTask& a, SaidValue&& v) { a.spec.task.name = std::move(v.text); }),
    choice("class", "--class", "online, offline or ordinary (default)", classes,
           [](AskedTask& a, SaidValue&& v) { a.spec.task.taskClass = classOf(v); }),
    size("memory", "memory_gib", "--memory",
         "card memory: 1.5GiB, 512MiB, or a number of GiB (default 1)", 1,
         [](AskedTask& a, SaidValue&& v) { a.spec.task.mem = bytesOf(v); }),
    size("pageable", "pageable_gib", "--pageable",
         "of that, what an offline task lends to others of its card while it is held", 0,
         [](AskedTask& a, SaidValue&& v) { a.spec.task.pageable = bytesOf(v); }),
    number("core_percent", "--core", "PERCENT", "percent of a card (default 10; online: none)",
           {0, kPercentMax, "percent"},
           [](AskedTask& a, SaidValue&& v) { a.corePercent = v.number; }),
    number("cards", "--cards", "N", "more than one: whole cards of its own",
           {1, kTaskCardsMax, "cards"}, [](AskedTask& a, SaidValue&& v) { a.cards = v.number; }),
    text("card", "--card", "ID", "a certain card; of a cluster, of the node that --node names",
         [](AskedTask& a, SaidValue&& v) { a.spec.task.card = std::move(v.text); }),
    text(
        "node", "--node", "NAME", "a certain node (default: the scheduler chooses)",
        [](AskedTask& a, SaidValue&& v) { a.spec.node = std::move(v.text); }, Side::Cluster),
    other(
        Form::Texts,
        text(
            "models", "--model", "MODEL", "only cards of this model; may be repeated",
            [](AskedTask& a, SaidValue&& v) { a.spec.models = std::move(v.texts); }, Side::Cluster),
        kModelsMax),
    number(
        "cpu_milli", "--cpu-milli", "MILLI", "thousandths of a CPU of the node, counted",
        {0, kCpuMilliMax, "thousandths of a CPU"},
        [](AskedTask& a, SaidValue&& v) { a.spec.cpuMilli = static_cast<std::int64_t>(v.number); },
        Side::Cluster),
    size(
        "host_memory", "host_memory_gib", "--host-memory", "the node's memory, counted", 0,
        [](AskedTask& a, SaidValue&& v) { a.spec.hostMem = bytesOf(v); }, Side::Cluster),
    text(
        "application", "--application", "NAME", "replicas of one are kept apart",
        [](AskedTask& a, SaidValue&& v) { a.spec.application = std::move(v.text); }, Side::Cluster),
    text(
        "group", "--group", "NAME", "starts together with others of its owner's group, or not yet",
        [](AskedTask& a, SaidValue&& v) { a.spec.group = std::move(v.text); }, Side::Cluster),
    number(
        "group_size", "--group-size", "N", "how many tasks of the group start together",
        {1, kGroupSizeMax, "tasks"},
        [](AskedTask& a, SaidValue&& v) {
          a.spec.groupSize = static_cast<std::uint32_t>(v.number);
        },
        Side::Cluster),
    choice(
        "node_score", "--node-score", "how its node is chosen", scores,
        [](AskedTask& a, SaidValue&& v) { a.spec.nodeScore = scoreOf(v); }, Side::Cluster),
    choice(
        "card_score", "--card-score", "how its card is chosen", scores,
        [](AskedTask& a, SaidValue&& v) { a.spec.cardScore = scoreOf(v); }, Side::Cluster),
    other(Form::Flag,
          text(
              "preempt", "--preempt", {},
              "may evict offline tasks where it fits nowhere (for whoever may change things)",
              [](AskedTask& a, SaidValue&& v) { a.spec.preempt = v.flag; }, Side::Cluster)),
    text("request_id", "--request-id", "ID", "asked again, the same task is answered",
         [](AskedTask& a, SaidValue&& v) { a.spec.task.requestId = std::move(v.text); }),
    choice(
        "owner", {}, "peer (default): the task ends with the process that asks; none: by hand",
        owners, [](AskedTask& a, SaidValue&& v) { a.owned = v.text == "peer"; }, Side::Node),
};

// "a, b or c"
std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::string expected(const SpecField& field) {
  switch (field.form) {
    case Form::Text:
      return "a text of at most " + std::to_string(kWordMax) + " bytes";
    case Form::Choice:
      return listed(field.choices());
    case Form::Number:
      return "a whole number of " + std::string(field.unit) + " from " +
             std::to_string(field.least) + " to " + std::to_string(field.most);
    case Form::Size:
      return "a size such as \"1.5GiB\" or \"512MiB\", or a number of GiB, from " +
             std::to_string(field.least) + " MiB to " + std::to_string(kMemoryGibMax) + " GiB";
    case Form::Flag:
      return "true or false";
    case Form::Texts:
      return "an array of at most " + std::to_string(field.most) + " texts";
  }
  return {};
}

bool readText(element from, std::string& to) {
  std::string_view text;
  if (from.get(text) != simdjson::SUCCESS || text.size() > kWordMax) return false;
  to = std::string(text);
  return text.find('\0') == std::string_view::npos;
}

bool readTexts(element from, std::size_t most, std::vector<std::string>& to) {
  simdjson::dom::array list;
  if (from.get(list) != simdjson::SUCCESS || list.size() > most) return false;
  return std::all_of(list.begin(), list.end(),
                     [&](element one) { return readText(one, to.emplace_back()); });
}

// A text, or a number of GiB.
bool readSize(const SpecField& field, element from, std::uint64_t& to) {
  std::string text;
  double gib = 0;
  if (from.is_number() && from.get(gib) == simdjson::SUCCESS && gib >= 0 && gib <= kMemoryGibMax) {
    text = std::to_string(gib);
  } else if (!readText(from, text)) {
    return false;
  }
  const Result<std::uint64_t> size = readSize(field, text);
  if (size) to = *size;
  return size.ok();
}

bool readValue(const SpecField& field, element from, SaidValue& to) {
  switch (field.form) {
    case Form::Text:
      return readText(from, to.text);
    case Form::Choice:
      return readText(from, to.text) && std::ranges::count(field.choices(), to.text) != 0;
    case Form::Number:
      return from.get(to.number) == simdjson::SUCCESS && to.number >= field.least &&
             to.number <= field.most;
    case Form::Size:
      return readSize(field, from, to.number);
    case Form::Flag:
      return from.get(to.flag) == simdjson::SUCCESS;
    case Form::Texts:
      return readTexts(from, field.most, to.texts);
  }
  return false;
}

bool isKnown(const SpecField& field, Side side) {
  return !field.only || *field.only == side;
}

Error unknownField(std::string_view key, Side side) {
  std::string known;
  for (const SpecField& field : kFields) {
    if (isKnown(field, side)) known += (known.empty() ? "" : ", ") + std::string(field.key);
  }
  return wrong(quoted(key) + " is no field of a SPEC: " + known);
}

Result<SaidSpec> readObject(simdjson::dom::object object, Side side) {
  SaidSpec said;
  for (const auto& member : object) {
    const std::string_view key = member.key;
    const element value = member.value;
    const auto field = std::find_if(std::begin(kFields), std::end(kFields), [&](const auto& f) {
      return (f.key == key || (!f.inGib.empty() && f.inGib == key)) && isKnown(f, side);
    });
    if (field == std::end(kFields)) return unknownField(key, side);
    const bool again = std::any_of(said.begin(), said.end(),
                                   [&](const auto& one) { return one.first == &*field; });
    if (again) return wrong(std::string(key) + ": stands here twice");
    said.emplace_back(&*field, SaidValue{});
    if (!readValue(*field, value, said.back().second)) {
      return wrong(std::string(key) + ": expected " + expected(*field));
    }
  }
  return said;
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
    return wrong("SPEC is one JSON object, such as {\"name\":\"a\",\"memory\":\"1.5GiB\"}");
  }
  return object;
}

// core_percent above 100 stands for whole cards, as on Kubernetes: N*100 is N cards.
Status fillShare(AskedTask& asked) {
  constexpr std::uint64_t kDefaultPercent = 10;
  TaskSpec& task = asked.spec.task;
  std::uint64_t count = asked.cards.value_or(1);
  const bool whole = count > 1;
  const bool online = task.taskClass == TaskClass::Online;
  std::uint64_t percent = asked.corePercent.value_or(whole ? 100 : online ? 0 : kDefaultPercent);
  if (percent > 100) {
    if (percent % 100 != 0 || (asked.cards && *asked.cards != percent / 100)) {
      return wrong("core_percent: expected 1 to 100, or N*100 for N whole cards");
    }
    count = percent / 100;
    percent = 100;
  }
  task.cards = static_cast<std::uint32_t>(count);
  task.share = Permille(static_cast<std::int64_t>(percent) * kShareStep);
  return ok();
}

void writeValue(JsonWriter& json, const SpecField& field, const SaidValue& value) {
  const bool inGib = field.form == Form::Size && value.number % kMibInGib == 0;
  json.key(inGib ? field.inGib : field.key);
  switch (field.form) {
    case Form::Text:
    case Form::Choice:
      json.string(value.text);
      return;
    case Form::Number:
      json.number(value.number);
      return;
    case Form::Size:
      if (inGib) return static_cast<void>(json.number(value.number / kMibInGib));
      json.string(std::to_string(value.number) + "MiB");
      return;
    case Form::Flag:
      json.boolean(value.flag);
      return;
    case Form::Texts:
      json.beginArray();
      for (const std::string& text : value.texts) json.string(text);
      json.endArray();
      return;
  }
}

void writeSaid(JsonWriter& json, const SaidSpec& said) {
  json.beginObject();
  for (const auto& [field, value] : said) writeValue(json, *field, value);
  json.endObject();
}

}  // namespace

std::span<const SpecField> specFields() {
  return kFields;
}

Result<std::uint64_t> readSize(const SpecField& field, std::string_view text) {
  const Result<Bytes> size = parseMemory(text);
  if (!size) return size.error();
  const auto mib = static_cast<std::uint64_t>(*size / mebibytes(1));
  if (mib >= field.least && mib <= field.most) return mib;
  return wrong(quoted(text) + " is less than " + std::to_string(field.least) + "MiB");
}

Result<SaidSpec> readSpec(std::string_view json, Side side) {
  simdjson::dom::parser parser;
  const auto object = parseObject(parser, json);
  if (!object) return object.error();
  return readObject(*object, side);
}

std::string specJson(const SaidSpec& said) {
  JsonWriter json;
  writeSaid(json, said);
  return json.take();
}

Result<AskedTask> fillSpec(SaidSpec said) {
  AskedTask asked;
  asked.spec.task.mem = gibibytes(1);
  for (auto& [field, value] : said) field->fill(asked, std::move(value));
  if (Status status = fillShare(asked); !status) return status.error();
  return asked;
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
  Result<SaidSpec> said = readObject(place, Side::Cluster);
  if (!said) return said.error();
  Result<AskedTask> asked = fillSpec(std::move(*said));
  if (!asked) return asked.error();
  question.place = std::move(asked->spec);
  question.count = static_cast<std::uint32_t>(count);
  return question;
}

std::string placeJson(const SaidSpec& said, std::uint32_t count) {
  JsonWriter json;
  json.beginObject().key("place");
  writeSaid(json, said);
  json.count("count", count).endObject();
  return json.take();
}

std::string drainJson(std::string_view target) {
  JsonWriter json;
  json.beginObject().field("drain", target).endObject();
  return json.take();
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

}  // namespace qgpu
