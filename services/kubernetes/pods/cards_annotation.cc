#include "services/kubernetes/pods/cards_annotation.h"

#include <optional>
#include <set>
#include <simdjson.h>

#include "runtime/enum_names.h"
#include "services/base/json.h"

namespace qgpu {
namespace {

using Element = simdjson::dom::element;

constexpr std::size_t kTextMax = kCardTextMax;
constexpr std::size_t kUuidMax = 64;  // as of any card of a cluster
constexpr std::uint64_t kMemMax = std::uint64_t{1} << 50;

std::string text(Element of, const char* key) {
  std::string_view words;
  if (of[key].get(words) != simdjson::SUCCESS) return "";
  return std::string(words.substr(0, kTextMax));
}
std::uint64_t number(Element of, const char* key) {
  std::uint64_t n = 0;
  return of[key].get(n) == simdjson::SUCCESS ? n : 0;
}
std::uint32_t small(Element of, const char* key) {
  const std::uint64_t n = number(of, key);
  return n > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(n);
}
std::int32_t numaOf(Element of) {
  std::uint64_t n = 0;
  const bool told = of["numa_node"].get(n) == simdjson::SUCCESS && n <= INT32_MAX;
  return told ? static_cast<std::int32_t>(n) : -1;
}
bool flag(Element of, const char* key) {
  bool set = false;
  return of[key].get(set) == simdjson::SUCCESS && set;
}

// The value of this name; `other` for a name of later versions.
template <typename Enum>
Enum named(const std::string& word, Enum other) {
  return enumFromName<Enum>(word).value_or(other);
}

Error bad(const std::string& what) {
  return fail(ErrorCode::InvalidArgument,
              std::string("annotation ") + kCardsAnnotation + ": " + what);
}

AnnotatedCard readCard(Element from) {
  AnnotatedCard card;
  card.id = text(from, "uuid");
  card.index = small(from, "index");
  card.model = text(from, "model");
  card.backend = text(from, "backend");
  const std::uint64_t mem = number(from, "mem_bytes");
  card.mem = Bytes(mem > kMemMax ? 0 : static_cast<std::int64_t>(mem));
  card.nominalGib = small(from, "nominal_gib");
  card.policy = named(text(from, "policy"), schema::Policy::BEST_EFFORT);
  card.suspendWhy = text(from, "suspend_why");
  card.memoryCounted = text(from, "memory_counted");
  card.driver = text(from, "driver");
  card.reportUnixMs = number(from, "report_unix_ms");
  card.place = {small(from, "link_group"), numaOf(from)};
  card.suspend = named(text(from, "suspend"), schema::Suspend::GATE);
  // What is not understood gets nothing new.
  card.health = named(text(from, "health"), schema::CardState::QUARANTINED);
  return card;
}

}  // namespace

std::string writeCardsAnnotation(const CardsAnnotation& annotation) {
  JsonWriter json;
  json.beginObject().count("format", annotation.format).field("version", annotation.version);
  json.flag("mixed", annotation.mixed).count("max_tasks_per_card", annotation.maxTasksPerCard);
  json.field("attach_socket", annotation.attachSocket).key("cards").beginArray();
  for (const AnnotatedCard& card : annotation.cards) {
    json.beginObject().field("uuid", card.id).count("index", card.index);
    json.field("model", card.model).field("backend", card.backend);
    json.count("mem_bytes", static_cast<std::uint64_t>(card.mem.value));
    json.count("nominal_gib", card.nominalGib).field("policy", enumName(card.policy));
    json.field("suspend", enumName(card.suspend)).field("health", enumName(card.health));
    json.optional("suspend_why", card.suspendWhy).optional("memory_counted", card.memoryCounted);
    json.optional("driver", card.driver);
    if (card.reportUnixMs != 0) json.count("report_unix_ms", card.reportUnixMs);
    if (card.place.links != 0) json.count("link_group", card.place.links);
    if (card.place.numa >= 0) json.count("numa_node", static_cast<std::uint64_t>(card.place.numa));
    json.endObject();
  }
  return json.endArray().endObject().take();
}

Result<CardsAnnotation> readCardsAnnotation(std::string_view json) {
  simdjson::dom::parser parser;
  Element root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return bad("it is no JSON object");
  }
  CardsAnnotation out;
  out.format = small(root, "format");
  if (out.format == 0) return bad("it names no format");
  if (out.format > kCardsFormat) {
    return fail(ErrorCode::Unsupported, "annotation " + std::string(kCardsAnnotation) +
                                            " has format " + std::to_string(out.format) +
                                            ": upgrade qgpu-scheduler");
  }
  out.version = text(root, "version");
  out.mixed = flag(root, "mixed");
  out.maxTasksPerCard = small(root, "max_tasks_per_card");
  out.attachSocket = text(root, "attach_socket");
  simdjson::dom::array cards;
  if (root["cards"].get(cards) != simdjson::SUCCESS) return bad("it has no list \"cards\"");
  if (cards.size() > kAnnotatedCardsMax) {
    return bad("it names more than " + std::to_string(kAnnotatedCardsMax) + " cards");
  }
  std::set<std::string> uuids;
  for (const Element one : cards) {
    AnnotatedCard card = readCard(one);
    if (card.id.empty() || card.mem <= Bytes(0)) {
      return bad("a card needs a uuid and mem_bytes: \"" + card.id + "\"");
    }
    if (card.id.size() > kUuidMax) return bad("a uuid of more than 64 bytes");
    if (!uuids.insert(card.id).second) return bad("card \"" + card.id + "\" comes twice");
    out.cards.push_back(std::move(card));
  }
  return out;
}

std::set<std::string> readCordonedCards(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  std::set<std::string> cards;
  if (parser.parse(json.data(), json.size()).get(list) != simdjson::SUCCESS) return cards;
  for (const Element one : list) {
    std::string_view id;
    if (cards.size() >= kAnnotatedCardsMax) return cards;
    if (one.get(id) == simdjson::SUCCESS && id.size() <= kUuidMax) cards.emplace(id);
  }
  return cards;
}

std::string writeCordonedCards(const std::set<std::string>& cards) {
  JsonWriter json;
  json.beginArray();
  for (const std::string& card : cards) json.string(card);
  return json.endArray().take();
}

}  // namespace qgpu
