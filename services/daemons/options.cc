#include "services/daemons/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <capnp/message.h>
#include <capnp/serialize-text.h>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <kj/exception.h>
#include <string_view>
#include <sys/un.h>

#include "schema/config.capnp.h"

namespace qgpu {
namespace {

constexpr std::size_t kConfigBytesMax = 64 * 1024;
constexpr std::size_t kConfigNestingMax = 8;  // brackets; a right file has one pair
constexpr std::int64_t kTasksPerCardMax = 4096;
constexpr Nanos kOnlineIdleMax = seconds(3600);
constexpr Nanos kSliceMin = micros(100);
constexpr Nanos kSliceMax = seconds(10);
constexpr std::size_t kNodenameMax = 253;

struct FlagWords {
  const char* name;   // without dashes
  const char* value;  // as help shows it
  const char* help;
};

// In the order of help; every flag but the last takes a value.
constexpr std::array kFlags = {
    FlagWords{"nodename", "NAME", "name of this node (default: the host name)"},
    FlagWords{"dbfile", "PATH", "SQLite file of this node's state"},
    FlagWords{"scheduler", "ADDR[,ADDR]", "where to report; not supported by this version"},
    FlagWords{"policy", "NAME", "best-effort (be), fixed-share (fs) or burst-share (bs)"},
    FlagWords{"cards", "KIND", "auto, nvidia, opencl, or sim:NxM (N imaginary cards of M GiB)"},
    FlagWords{"max-tasks-per-card", "N", "auto (nominal GiB / 4) or a number"},
    FlagWords{"online-idle", "TIME", "pause after which an online task is idle (100ms)"},
    FlagWords{"slice", "RANGE", "bounds of a slice (2ms..30ms)"},
    FlagWords{"run-dir", "DIR", "folder of the sockets"},
    FlagWords{"http", "HOST:PORT", "/metrics and /healthz (127.0.0.1:12347)"},
    FlagWords{"rpc", "HOST:PORT", "Cap'n Proto RPC over TCP beside the socket in the run dir"},
    FlagWords{"config", "FILE", "Cap'n Proto text with the same values; flags win"},
    FlagWords{"log-level", "LEVEL", "trace, debug, info, warn, error or off (info)"},
    FlagWords{"suspend", "HOW", "how a hold is made real: auto, gate or freeze"},
    FlagWords{"realtime", "WHEN", "real-time priority of the card loop: auto or off"},
    FlagWords{"mixed", nullptr, "allow online and offline tasks on this node"},
};

// A value as it was written, and where: "--policy" or "FILE: policy". Empty origin: not given.
struct Given {
  std::string text;
  std::string origin;
};

using Values = std::array<Given, kFlags.size()>;

Given& at(Values& values, std::string_view name) {
  const auto* flag = std::find_if(kFlags.begin(), kFlags.end(),
                                  [name](const FlagWords& words) { return name == words.name; });
  QGPU_CHECK(flag != kFlags.end(), "every name asked for stands in kFlags");
  return values[static_cast<std::size_t>(flag - kFlags.begin())];
}

// One line, whatever bytes a value has that is shown in it.
ExitNow refuse(std::string line) {
  const auto drivesTerminal = [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; };
  std::replace_if(line.begin(), line.end(), drivesTerminal, '?');
  return ExitNow{static_cast<int>(ExitCode::Usage), "qgpu-manager: " + line + "\n"};
}

Error badValue(const Given& given, const std::string& accepted) {
  return fail(ErrorCode::InvalidArgument, "'" + given.text + "' is not valid; use " + accepted);
}

// --- flags ---

std::variant<Values, ExitNow> readFlags(int argc, const char* const* argv) {
  CLI::App app("qgpu-manager: finds the cards of this node, admits tasks and divides time.",
               "qgpu-manager");
  app.set_version_flag("--version", "qgpu-manager " QGPU_VERSION);
  app.set_help_flag("-h,--help", "this text");
  Values values;
  for (std::size_t i = 0; i < kFlags.size(); ++i) {
    const std::string dashed = std::string("--") + kFlags[i].name;
    if (kFlags[i].value == nullptr) {
      app.add_flag_callback(
          dashed, [&values, i] { values[i].text = "true"; }, kFlags[i].help);
    } else {
      app.add_option(dashed, values[i].text, kFlags[i].help)
          ->type_name(kFlags[i].value)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return ExitNow{0, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return ExitNow{0, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return refuse(std::string(error.what()) + "; see qgpu-manager --help");
  }
  for (std::size_t i = 0; i < kFlags.size(); ++i) {
    const std::string dashed = std::string("--") + kFlags[i].name;
    if (app.count(dashed) > 0) values[i].origin = dashed;
  }
  return values;
}

// --- the config file ---

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

// Fills in what no flag gave.
Status readConfig(const std::string& path, Values& values) {
  const auto text = readFile(path);
  if (!text) return text.error();
  // The reader of Cap'n Proto text calls itself for each bracket, as deep as the stack is.
  if (nestingOf(*text) > kConfigNestingMax) {
    return fail(ErrorCode::InvalidArgument, "it nests brackets more than " +
                                                std::to_string(kConfigNestingMax) + " deep");
  }
  capnp::MallocMessageBuilder message;
  auto config = message.initRoot<schema::ManagerConfig>();
  const auto failure = kj::runCatchingExceptions(
      [&] { capnp::TextCodec().decode(kj::StringPtr(text->c_str(), text->size()), config); });
  KJ_IF_MAYBE (exception, failure) {
    return fail(ErrorCode::InvalidArgument,
                "it is not Cap'n Proto text of ManagerConfig, as in (policy = \"fs\"): " +
                    firstLine(exception->getDescription().cStr()));
  }
  const auto take = [&](const char* name, bool has, capnp::Text::Reader value) {
    Given& given = at(values, name);
    if (has && given.origin.empty()) given = {value.cStr(), path + ": " + name};
  };
  const auto c = config.asReader();
  take("nodename", c.hasNodename(), c.getNodename());
  take("dbfile", c.hasDbfile(), c.getDbfile());
  take("scheduler", c.hasScheduler(), c.getScheduler());
  take("policy", c.hasPolicy(), c.getPolicy());
  take("cards", c.hasCards(), c.getCards());
  take("max-tasks-per-card", c.hasMaxTasksPerCard(), c.getMaxTasksPerCard());
  take("online-idle", c.hasOnlineIdle(), c.getOnlineIdle());
  take("slice", c.hasSlice(), c.getSlice());
  take("run-dir", c.hasRunDir(), c.getRunDir());
  take("http", c.hasHttp(), c.getHttp());
  take("rpc", c.hasRpc(), c.getRpc());
  take("log-level", c.hasLogLevel(), c.getLogLevel());
  take("suspend", c.hasSuspend(), c.getSuspend());
  take("realtime", c.hasRealtime(), c.getRealtime());
  take("mixed", c.getMixed(), "true");
  return ok();
}

// --- values ---

// Copies a parsed value, or passes its error on.
template <typename T, typename To>
Status store(Result<T> parsed, To& to) {
  if (!parsed) return parsed.error();
  to = static_cast<To>(*parsed);
  return ok();
}

Status readNodename(const Given& given, std::string& to) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  const std::string& name = given.text;
  if (name.empty() || name.size() > kNodenameMax || !std::all_of(name.begin(), name.end(), fits)) {
    return badValue(given, "1 to 253 letters, digits, '-', '_' and '.', as in --nodename=node-1");
  }
  to = name;
  return ok();
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

Status readCards(const Given& given, CardsOptions& to) {
  if (given.text.rfind("sim:", 0) == 0) {
    to.backend = CardBackend::Sim;
    return store(parseSimCards(given.text), to.sim);
  }
  if (given.text == "auto")
    to.backend = CardBackend::Auto;
  else if (given.text == "nvidia")
    to.backend = CardBackend::Nvidia;
  else if (given.text == "opencl")
    to.backend = CardBackend::Opencl;
  else
    return badValue(given, "auto, nvidia, opencl or sim:NxM, as in sim:8x32");
  return ok();
}

Status readMaxTasks(const Given& given, std::uint32_t& to) {
  if (given.text == "auto") return ok();
  if (store(parseInteger(given.text, 1, kTasksPerCardMax, "count"), to)) return ok();
  return badValue(given, "auto or a number from 1 to " + std::to_string(kTasksPerCardMax));
}

Status readOnlineIdle(const Given& given, Nanos& to) {
  const auto parsed = parseDuration(given.text);
  if (!parsed) return parsed.error();
  if (*parsed > kOnlineIdleMax) return badValue(given, "a duration of at most 1h, as in 100ms");
  to = *parsed;
  return ok();
}

Status readSlice(const Given& given, DurationRange& to) {
  const auto parsed = parseRange(given.text);
  if (!parsed) return parsed.error();
  if (parsed->low < kSliceMin || parsed->high > kSliceMax) {
    return badValue(given, "bounds from 100us to 10s, as in 2ms..30ms");
  }
  to = *parsed;
  return ok();
}

Status readSuspend(const Given& given, SuspendChoice& to) {
  if (given.text == "auto")
    to = SuspendChoice::Auto;
  else if (given.text == "gate")
    to = SuspendChoice::Gate;
  else if (given.text == "freeze")
    to = SuspendChoice::Freeze;
  else
    return badValue(given, "auto, gate or freeze");
  return ok();
}

Status readRealtime(const Given& given, RealtimeChoice& to) {
  if (given.text == "auto")
    to = RealtimeChoice::Auto;
  else if (given.text == "off")
    to = RealtimeChoice::Off;
  else
    return badValue(given, "auto or off");
  return ok();
}

Status readScheduler(const Given& given) {
  return fail(ErrorCode::Unsupported, "'" + given.text +
                                          "': this version can't report to a scheduler; leave it "
                                          "out, and the node stands alone");
}

Status readOne(std::string_view name, const Given& given, ManagerOptions& to) {
  if (name == "nodename") return readNodename(given, to.nodename);
  if (name == "dbfile") return readPath(given, to.dbfile);
  if (name == "scheduler") return readScheduler(given);
  if (name == "policy") return store(parsePolicy(given.text), to.policy);
  if (name == "cards") return readCards(given, to.cards);
  if (name == "max-tasks-per-card") return readMaxTasks(given, to.maxTasksPerCard);
  if (name == "online-idle") return readOnlineIdle(given, to.onlineIdle);
  if (name == "slice") return readSlice(given, to.slice);
  if (name == "run-dir") return readRunDir(given, to.runDir);
  if (name == "http") return readAddress(given, to.http);
  if (name == "rpc") return readAddress(given, to.rpc);
  if (name == "log-level") return store(parseLogLevel(given.text), to.logLevel);
  if (name == "suspend") return readSuspend(given, to.cards.suspend);
  if (name == "realtime") return readRealtime(given, to.realtime);
  to.mixed = to.mixed || name == "mixed";
  return ok();
}

// Values whose defaults depend on where the program runs.
void addDefaults(const Surroundings& around, Values& values) {
  const auto set = [&](const char* name, std::string text) {
    Given& given = at(values, name);
    if (given.origin.empty()) given = {std::move(text), std::string("--") + name + " by default"};
  };
  set("nodename", around.hostname);
  set("dbfile", defaultManagerDbfile(around));
  set("run-dir", defaultRunDir(around));
  set("http", "127.0.0.1:12347");
}

}  // namespace

std::variant<ManagerOptions, ExitNow> parseManagerOptions(int argc, const char* const* argv,
                                                          const Surroundings& around) {
  auto flags = readFlags(argc, argv);
  if (auto* exit = std::get_if<ExitNow>(&flags)) return std::move(*exit);
  Values& values = std::get<Values>(flags);
  if (const Given& config = at(values, "config"); !config.origin.empty()) {
    const std::string path = config.text;
    if (Status read = readConfig(path, values); !read) {
      return refuse("--config=" + path + ": " + read.error().message);
    }
  }
  addDefaults(around, values);
  ManagerOptions options;
  for (std::size_t i = 0; i < kFlags.size(); ++i) {
    if (values[i].origin.empty()) continue;
    if (Status read = readOne(kFlags[i].name, values[i], options); !read) {
      return refuse(values[i].origin + ": " + read.error().message);
    }
  }
  return options;
}

}  // namespace qgpu
