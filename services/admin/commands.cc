#include "services/admin/commands.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/config.h"
#include "services/admin/json.h"
#include "services/admin/words.h"

namespace qgpu {
namespace {

using simdjson::dom::element;

constexpr std::string_view kBlank = " \t\r";
constexpr std::uint64_t kMemoryGibMax = 1 << 20;  // 1 PiB: far above any card, far below overflow
constexpr std::uint64_t kCardsMax = 1024;
constexpr std::uint64_t kShareStep = 10;          // permille in a percent

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out;
  appendJsonString(out, text.substr(0, kShown));
  return out;
}

Error wrong(std::string message) { return fail(ErrorCode::InvalidArgument, std::move(message)); }

std::vector<std::string_view> splitWords(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t start = text.find_first_not_of(kBlank);
    if (start == std::string_view::npos) return words;
    text.remove_prefix(start);
    const std::size_t end = std::min(text.find_first_of(kBlank), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::string_view trim(std::string_view text) {
  const std::size_t start = text.find_first_not_of(kBlank);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlank) - start + 1);
}

Result<std::uint64_t> taskNumber(std::string_view word) {
  const auto number = parseUint(word);
  if (number && *number != 0) return *number;
  return wrong(quoted(word) + " is no task id: `tasks` lists them");
}

Result<std::string> cardWord(std::string_view word) {
  if (word.size() <= kWordMax) return std::string(word);
  return wrong("a card's id has at most " + std::to_string(kWordMax) + " characters");
}

// Arguments of the commands that take plain words; their number is right already.
Status parseArguments(Command& command, const std::vector<std::string_view>& words) {
  switch (command.verb) {
    case Verb::Events:
    case Verb::Watch: {
      if (words.size() < 2) return ok();
      const auto since = parseUint(words[1]);
      if (!since) return wrong(quoted(words[1]) + " is no sequence number of an event");
      command.number = *since;
      return ok();
    }
    case Verb::Policy: {
      const auto policy = parsePolicy(words[2]);
      if (!policy) {
        return wrong(quoted(words[2]) +
                     " is no policy: best-effort, fixed-share or burst-share (be, fs, bs)");
      }
      command.policy = *policy;
      [[fallthrough]];
    }
    case Verb::Cordon:
    case Verb::Uncordon:
    case Verb::Drain: {
      Result<std::string> card = cardWord(words[1]);
      if (!card) return card.error();
      command.card = std::move(*card);
      return ok();
    }
    case Verb::Evict:
    case Verb::End: {
      Result<std::uint64_t> task = taskNumber(words[1]);
      if (!task) return task.error();
      command.number = *task;
      return ok();
    }
    case Verb::LogLevel:
      command.level = std::string(words[1].substr(0, kWordMax));
      return ok();
    default: return ok();
  }
}

struct Arity {
  std::size_t least;
  std::size_t most;
};

// How many words a usage line stands for: [X] may be missing.
Arity arityOf(std::string_view usage) {
  Arity arity{0, 0};
  for (const std::string_view word : splitWords(usage)) {
    ++arity.most;
    if (word.front() != '[') ++arity.least;
  }
  return arity;
}

// --- SPEC -------------------------------------------------------------------------------------

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

struct RawSpec {
  RunSpec spec;
  std::optional<std::uint64_t> memoryGib;
  std::optional<std::uint64_t> corePercent;
  std::optional<std::uint64_t> cards;
};

Status readText(RawSpec& raw, std::string_view key, element value) {
  Result<std::string> text = textField(key, value);
  if (!text) return text.error();
  if (key == "name") {
    raw.spec.name = std::move(*text);
  } else if (key == "card") {
    raw.spec.card = std::move(*text);
  } else if (key == "request_id") {
    raw.spec.requestId = std::move(*text);
  } else if (key == "class") {
    const auto parsed = classFromName(*text);
    if (!parsed) return wrongField(key, "online, offline or ordinary");
    raw.spec.taskClass = *parsed;
  } else {
    if (*text != "none" && *text != "peer") return wrongField(key, "\"peer\" or \"none\"");
    raw.spec.owned = *text == "peer";
  }
  return ok();
}

Status readField(RawSpec& raw, std::string_view key, element value) {
  constexpr std::array<std::string_view, 5> kTexts = {"name", "card", "request_id", "class",
                                                      "owner"};
  if (std::find(kTexts.begin(), kTexts.end(), key) != kTexts.end()) {
    return readText(raw, key, value);
  }
  struct Number {
    std::string_view key;
    std::uint64_t most;
    std::optional<std::uint64_t>& into;
  };
  const std::array<Number, 3> numbers = {Number{"memory_gib", kMemoryGibMax, raw.memoryGib},
                                         Number{"core_percent", kCardsMax * 100, raw.corePercent},
                                         Number{"cards", kCardsMax, raw.cards}};
  for (const Number& number : numbers) {
    if (number.key != key) continue;
    Result<std::uint64_t> got = numberField(key, value, number.most);
    if (!got) return got.error();
    number.into = *got;
    return ok();
  }
  return wrong(quoted(key) + " is no field of a SPEC: name, class, memory_gib, core_percent, "
                             "cards, card, request_id, owner");
}

// core_percent above 100 stands for whole cards, as on Kubernetes: N*100 is N cards.
Status applyShare(RawSpec& raw) {
  RunSpec& spec = raw.spec;
  constexpr std::uint64_t kDefaultPercent = 10;
  const bool whole = raw.cards.value_or(1) > 1;
  std::uint64_t percent = raw.corePercent.value_or(whole ? 100 : kDefaultPercent);
  if (spec.taskClass == schema::TaskClass::ONLINE && !raw.corePercent) percent = whole ? 100 : 0;
  std::uint64_t cards = raw.cards.value_or(1);
  if (cards == 0) return wrongField("cards", "at least 1");
  if (percent > 100) {
    if (percent % 100 != 0 || (raw.cards && *raw.cards != percent / 100)) {
      return wrongField("core_percent", "1 to 100, or N*100 for N whole cards");
    }
    cards = percent / 100;
    percent = 100;
  }
  spec.cards = static_cast<std::uint32_t>(cards);
  spec.sharePermille = static_cast<std::uint32_t>(percent * kShareStep);
  return ok();
}

}  // namespace

std::span<const CommandInfo> commandInfos() {
  static constexpr CommandInfo kInfos[] = {
      {Verb::Help, "help", "help", "this list", false},
      {Verb::Info, "status", "status", "the node in one object", false},
      {Verb::Cards, "cards", "cards", "every card", false},
      {Verb::Tasks, "tasks", "tasks", "every task", false},
      {Verb::Events, "events", "events [SINCE]", "what happened after event SINCE", false},
      {Verb::Watch, "watch", "watch [SINCE]", "events as they happen, a line each", false},
      {Verb::Policy, "policy", "policy CARD NAME",
       "best-effort, fixed-share or burst-share for a card or all", true},
      {Verb::Cordon, "cordon", "cordon CARD", "no new tasks on a card", true},
      {Verb::Uncordon, "uncordon", "uncordon CARD", "new tasks again", true},
      {Verb::Drain, "drain", "drain CARD", "cordon, and end the tasks that are there", true},
      {Verb::Evict, "evict", "evict TASK", "end a task, whoever owns it", true},
      {Verb::Snapshot, "snapshot", "snapshot", "write a snapshot of the store now", true},
      {Verb::LogLevel, "loglevel", "loglevel LEVEL", "trace, debug, info, warn, error or off",
       true},
      {Verb::Run, "run", "run SPEC", "bind a task to a card; SPEC is one JSON object", false},
      {Verb::End, "end", "end TASK", "end a task of your own", false},
  };
  return kInfos;
}

Result<RunSpec> parseRunSpec(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string padded(json);
  element root;
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    return wrong(std::string("SPEC is no JSON: ") + simdjson::error_message(error));
  }
  if (root.get(object) != simdjson::SUCCESS) {
    return wrong("SPEC is one JSON object, such as {\"name\":\"a\",\"memory_gib\":1}");
  }
  RawSpec raw;
  for (const auto field : object) {
    if (Status status = readField(raw, field.key, field.value); !status) return status.error();
  }
  if (Status status = applyShare(raw); !status) return status.error();
  const std::uint64_t gib = raw.memoryGib.value_or(1);
  if (gib == 0) return wrongField("memory_gib", "at least 1");
  raw.spec.memBytes = gib << 30U;
  return std::move(raw.spec);
}

Result<Command> parseCommand(std::string_view line) {
  const std::string_view text = trim(line);
  if (text.empty()) return wrong("an empty line; `help` lists the commands");
  const auto control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  };
  if (std::any_of(text.begin(), text.end(), control) || !isUtf8(text)) {
    return wrong("the line holds bytes that are no text; `help` lists the commands");
  }
  const std::string_view verb = text.substr(0, text.find_first_of(kBlank));
  const auto infos = commandInfos();
  const auto info = std::find_if(infos.begin(), infos.end(),
                                 [&](const CommandInfo& i) { return i.name == verb; });
  if (info == infos.end()) {
    return wrong("unknown command " + quoted(verb) + "; `help` lists the commands");
  }
  Command command;
  command.verb = info->verb;
  command.changes = info->changes;
  if (command.verb == Verb::Run) {
    if (verb.size() == text.size()) return wrong("usage: " + std::string(info->usage));
    Result<RunSpec> spec = parseRunSpec(trim(text.substr(verb.size())));
    if (!spec) return spec.error();
    command.spec = std::move(*spec);
    return command;
  }
  const std::vector<std::string_view> words = splitWords(text);
  const Arity arity = arityOf(info->usage);
  if (words.size() < arity.least || words.size() > arity.most) {
    return wrong("usage: " + std::string(info->usage));
  }
  if (Status status = parseArguments(command, words); !status) return status.error();
  return command;
}

}  // namespace qgpu
