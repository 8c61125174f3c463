#include "services/base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize-text.h>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <kj/exception.h>
#include <sys/un.h>

#include "runtime/check.h"
#include "runtime/config.h"
#include "services/base/json.h"
#include "services/base/toml.h"
#include "services/base/wrong_use.h"

namespace qgpu {
namespace {

constexpr std::size_t kConfigBytesMax = 64 * 1024;
constexpr std::size_t kConfigNestingMax = 8;  // brackets; a right file has one pair

Result<std::string> readFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text(kConfigBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (!in.is_open() || in.bad()) {
    return fail(ErrorCode::NotFound, "can't read it: " + std::string(std::strerror(errno)));
  }
  if (text.size() > kConfigBytesMax) {
    return fail(ErrorCode::InvalidArgument, "it has more than 65536 bytes");
  }
  return text;
}

// The first of argv that is a flag in form and none of `app`; empty: there is none.
std::string strangeFlag(const CLI::App& app, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.size() < 3 || !word.starts_with("--")) continue;
    const std::size_t end = word.find('=');
    const CLI::Option* option = app.get_option_no_throw(word.substr(0, end));
    if (option == nullptr) return word.substr(0, end);
    if (end == std::string::npos && option->get_items_expected_max() > 0) ++i;  // its value
  }
  return "";
}

std::string firstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Most brackets that are open at once, outside texts and comments.
std::size_t nestingOf(std::string_view text) {
  std::size_t open = 0;
  std::size_t most = 0;
  char until = 0;  // the end of the text or comment that we are in
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (until != 0) {
      if (c == '\\' && until != '\n') ++i;
      if (c == until) until = 0;
    } else if (c == '"') {
      until = c;
    } else if (c == '#') {
      until = '\n';
    } else if (c == '(' || c == '[' || c == '{') {
      most = std::max(most, ++open);
    } else if ((c == ')' || c == ']' || c == '}') && open > 0) {
      --open;
    }
  }
  return most;
}

// The older form begins with a bracket; no TOML does.
bool isOlder(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] != '#') return line[first] == '(';
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return false;
}

// What a file can't say: it is read at each start, and these are done once.
bool isOfCommandLine(std::string_view name) {
  constexpr std::string_view kOnce[] = {"config", "print-config", "restore",
                                        "replay", "until",        "explain"};
  return std::find(std::begin(kOnce), std::end(kOnce), name) != std::end(kOnce);
}

// What stands for a value in examples.
std::string shownValue(const FlagRow& row) {
  return row.preset != nullptr ? row.preset : row.value;
}

// "maxTasks" as a flag is called: "max-tasks".
std::string flagName(std::string_view field) {
  std::string name;
  for (const char c : field) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isupper(byte) != 0) name += '-';
    name += static_cast<char>(std::tolower(byte));
  }
  return name;
}

}  // namespace

std::size_t Flags::indexOf(std::string_view name) const {
  const auto named = [name](const FlagRow& words) { return name == words.name; };
  const auto found = std::find_if(table_.begin(), table_.end(), named);
  QGPU_CHECK(found != table_.end(), "every name asked for stands in the table of flags");
  return static_cast<std::size_t>(found - table_.begin());
}

ExitNow Flags::refuse(std::string line) const {
  const auto drivesTerminal = [](unsigned char c) { return c < ' ' || c == 0x7F; };
  std::replace_if(line.begin(), line.end(), drivesTerminal, '?');
  line = shortNumbers(line);
  return ExitNow{static_cast<int>(ExitCode::Usage), std::string(program_) + ": " + line + "\n"};
}

void Flags::setDefault(std::string_view name, std::string text) {
  Given& given = values_[indexOf(name)];
  if (!given.origin.empty()) return;
  given = {std::move(text), "--" + std::string(name) + " by default", true};
}

std::optional<ExitNow> Flags::each(const ReadOne& readOne) const {
  for (std::size_t i = 0; i < table_.size(); ++i) {
    if (values_[i].origin.empty()) continue;
    if (Status status = readOne(table_[i].name, values_[i]); !status) {
      return refuse(values_[i].origin + ": " + status.error().message);
    }
  }
  return std::nullopt;
}

std::optional<ExitNow> Flags::read(int argc, const char* const* argv, capnp::StructSchema config) {
  if (auto exit = readFlags(argc, argv)) return exit;
  const std::string path = at("config").text;
  const bool hasFile = !at("config").origin.empty();
  if (Status status = hasFile ? readConfig(path, config) : ok(); !status) {
    return refuse("--config=" + path + ": " + status.error().message);
  }
  for (const FlagRow& words : table_) {
    if (words.preset != nullptr) setDefault(words.name, words.preset);
  }
  return std::nullopt;
}

std::optional<ExitNow> Flags::readFlags(int argc, const char* const* argv) {
  CLI::App app(std::string(program_) + ": " + purpose_, program_);
  app.set_version_flag("--version", std::string(program_) + " " + QGPU_VERSION);
  app.set_help_flag("-h,--help", "this text");
  app.footer(footer_);
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const std::string dashed = std::string("--") + table_[i].name;
    std::string help = table_[i].help;
    const std::string otherwise = table_[i].otherwise();
    if (!otherwise.empty()) help += " (" + otherwise + ")";
    if (table_[i].value == nullptr) {
      app.add_flag_callback(
          dashed, [this, i] { values_[i].text = "true"; }, help);
    } else {
      app.add_option(dashed, values_[i].text, help)
          ->type_name(table_[i].value)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  if (const std::string strange = strangeFlag(app, argc, argv); !strange.empty()) {
    std::vector<std::string> known;
    for (const FlagRow& row : table_) known.push_back(std::string("--") + row.name);
    const std::string meant = didYouMean(strange, known);
    return refuse("there is no flag " + strange + (meant.empty() ? ";" : meant) + " see " +
                  program_ + " --help");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return ExitNow{0, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return ExitNow{0, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return refuse(std::string(error.what()) + "; see " + program_ + " --help");
  }
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const std::string dashed = std::string("--") + table_[i].name;
    if (app.count(dashed) > 0) values_[i].origin = dashed;
  }
  return std::nullopt;
}

// Fills in what no flag gave.
Status Flags::readConfig(const std::string& path, capnp::StructSchema schema) {
  const auto text = readFile(path);
  if (!text) return text.error();
  return isOlder(*text) ? readOlder(path, *text, schema) : readToml(path, *text);
}

Result<std::size_t> Flags::rowOf(std::string_view key) const {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const std::string_view name = table_[i].name;
    if (isOfCommandLine(name) && name == key) {
      return fail(ErrorCode::InvalidArgument, "there is no key " + std::string(key) +
                                                  ": it is a flag alone, --" + std::string(key));
    }
    if (isOfCommandLine(name)) continue;
    if (name == key) return i;
    known.emplace_back(name);
  }
  return fail(ErrorCode::InvalidArgument, "there is no key " + std::string(key) +
                                              didYouMean(key, known) + "; " + program_ +
                                              " --print-config shows them all");
}

Status Flags::readToml(const std::string& path, std::string_view text) {
  using Kind = TomlEntry::Kind;
  const auto entries = parseToml(text);
  if (!entries) {
    return fail(ErrorCode::InvalidArgument,
                entries.error().message + "; a line is a key and its value, as in " + example_);
  }
  for (const TomlEntry& entry : *entries) {
    const std::string line = "line " + std::to_string(entry.line) + ": ";
    const Result<std::size_t> row = rowOf(entry.key);
    if (!row) return fail(ErrorCode::InvalidArgument, line + row.error().message);
    const bool takesNone = table_[*row].value == nullptr;
    const bool fits = takesNone ? entry.kind == Kind::Flag
                                : entry.kind == Kind::Text || entry.kind == Kind::Number ||
                                      entry.kind == Kind::Texts;
    if (!fits) {
      return fail(ErrorCode::InvalidArgument,
                  line + entry.key + ": expected " +
                      (takesNone ? "true or false"
                                 : "a text in quotes, as in " + entry.key + " = \"" +
                                       shownValue(table_[*row]) + "\""));
    }
    if (takesNone && entry.value == "false") continue;
    take(path + ": " + line, *row, entry.value);
  }
  return ok();
}

Status Flags::readOlder(const std::string& path, const std::string& text,
                        capnp::StructSchema schema) {
  // The reader of Cap'n Proto text calls itself for each bracket, as deep as the stack is.
  if (nestingOf(text) > kConfigNestingMax) {
    return fail(ErrorCode::InvalidArgument,
                "it nests brackets more than " + std::to_string(kConfigNestingMax) + " deep");
  }
  capnp::MallocMessageBuilder message;
  auto config = message.initRoot<capnp::DynamicStruct>(schema);
  const auto failure = kj::runCatchingExceptions(
      [&] { capnp::TextCodec().decode(kj::StringPtr(text.c_str(), text.size()), config); });
  KJ_IF_MAYBE (exception, failure) {
    return fail(ErrorCode::InvalidArgument,
                "it begins as the older form, Cap'n Proto text, and is none: " +
                    firstLine(exception->getDescription().cStr()) +
                    "; write a key and its value a line, as in " + example_);
  }
  const auto filled = config.asReader();
  for (const auto field : schema.getFields()) {
    const std::string name = flagName(field.getProto().getName().cStr());
    if (field.getType().isBool()) {
      if (filled.get(field).as<bool>()) take(path + ": ", indexOf(name), "true");
    } else if (filled.has(field)) {
      take(path + ": ", indexOf(name), filled.get(field).as<capnp::Text>().cStr());
    }
  }
  return ok();
}

void Flags::take(const std::string& place, std::size_t row, std::string text) {
  Given& given = values_[row];
  if (given.origin.empty()) given = {std::move(text), place + table_[row].name};
}

std::optional<ExitNow> Flags::printed() const {
  if (at("print-config").origin.empty()) return std::nullopt;
  std::string out =
      std::string("# The configuration of ") + program_ + ", as " + program_ +
      " --config=FILE reads it.\n"
      "# Lines that begin with # are what holds without them. Flags win over the file.\n";
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const FlagRow& row = table_[i];
    if (isOfCommandLine(row.name)) continue;
    const Given& given = values_[i];
    const bool chosen = !given.origin.empty() && !given.byDefault;
    out += std::string("\n# ") + row.help;
    if (row.absent != nullptr) out += std::string(" (default: ") + row.absent + ")";
    out += std::string("\n") + (chosen ? "" : "#") + row.name + " = ";
    if (row.value == nullptr) {
      out += chosen ? "true" : "false";
    } else {
      out += JsonWriter().string(given.origin.empty() ? shownValue(row) : given.text).take();
    }
    out += '\n';
  }
  return ExitNow{0, std::move(out)};
}

// --- values -----------------------------------------------------------------------------------

Error badValue(const Given& given, const std::string& accepted) {
  return fail(ErrorCode::InvalidArgument, "'" + given.text + "' is not valid; use " + accepted);
}

// The longest socket name below the run dir must fit into a socket address.
Status readRunDir(const Given& given, std::string& to) {
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - sizeof("/scheduler.sock");
  if (given.text.empty() || given.text.size() > kLongest) {
    return badValue(given, "a folder whose name has 1 to " + std::to_string(kLongest) + " bytes");
  }
  to = given.text;
  return ok();
}

Status readPath(const Given& given, std::string& to) {
  if (given.text.empty()) return badValue(given, "a file name");
  to = given.text;
  return ok();
}

Status readAddress(const Given& given, std::string& to) {
  const std::size_t colon = given.text.rfind(':');
  const bool port =
      colon != std::string::npos && colon > 0 &&
      parseInteger(std::string_view(given.text).substr(colon + 1), 0, 65535, "port").ok();
  if (!port) return badValue(given, "HOST:PORT, as in 127.0.0.1:12347; port 0 takes a free one");
  to = given.text;
  return ok();
}

}  // namespace qgpu
