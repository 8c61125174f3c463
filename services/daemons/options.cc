#include "services/daemons/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "schema/config.capnp.h"
#include "services/base/net/dial.h"
#include "services/kubernetes/device_plugin/plugin_flags.h"

namespace qgpu {
namespace {

constexpr std::int64_t kTasksPerCardMax = 4096;
constexpr std::int64_t kOvercommitMax = 4;
constexpr Nanos kOnlineIdleMax = seconds(3600);
constexpr DurationRange kSlices{micros(100), seconds(10)};  // what --slice may be
constexpr std::size_t kNodenameMax = 253;

// The names of policies stand in the schema, the defaults of arbitration in ArbiterConfig.
const std::string& policyHelp() {
  static const std::string kText =
      "how cards are shared: " + policyForms() + "; on Kubernetes the node's label wins";
  return kText;
}
const std::string& onlineIdlePreset() {
  static const std::string kText = durationText(ArbiterConfig{}.onlineIdle);
  return kText;
}
const std::string& slicePreset() {
  static const std::string kText = rangeText({ArbiterConfig{}.sliceMin, ArbiterConfig{}.sliceMax});
  return kText;
}

constexpr const char* kOvercommitHelp =
    "part of a card's memory that offline tasks may have beyond it, since theirs can leave it: 0.5 "
    "is half as much again";
constexpr const char* kGuardHelp =
    "keep tasks' processes from cards until they attach, in the kernel: on, off, or auto: where "
    "the kernel can";

constexpr const char* kReportSignersHelp =
    "a card's report (qgpuctl prove) counts only where one of these signed it: allowed signers, as "
    "ssh-keygen reads them";

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

Status readCards(const Given& given, CardsOptions& to) {
  if (given.text.rfind("sim:", 0) == 0) {
    to.backend = "sim";
    return readInto(parseSimCards(given.text), to.sim);
  }
  if (given.text == "sim" || !isCardBackend(given.text)) {
    return badValue(given, "auto, nvidia, amd, opencl or sim:NxM, as in sim:8x32");
  }
  to.backend = given.text;
  return ok();
}

Status readMaxTasks(const Given& given, std::uint32_t& to) {
  if (given.text == "auto") return ok();
  if (readInto(parseInteger(given.text, 1, kTasksPerCardMax, "count"), to)) return ok();
  return badValue(given, "auto or a number from 1 to " + std::to_string(kTasksPerCardMax));
}

// "0.5" as 500 permille: digits, and at most three behind a point.
Status readOvercommit(const Given& given, Permille& to) {
  const std::string_view text = given.text;
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  const std::string_view behind = point == text.size() ? "" : text.substr(point + 1);
  const bool pointless = point != text.size() && behind.empty();
  digits += std::string(behind) + std::string(3 - std::min<std::size_t>(behind.size(), 3), '0');
  std::int64_t value = 0;
  const bool read = point != 0 && !pointless && behind.size() <= 3 &&
                    readInto(parseInteger(digits, 0, kOvercommitMax * 1000, "part"), value);
  if (!read) {
    return badValue(given, "a part of a card's memory from 0 to " + std::to_string(kOvercommitMax) +
                               ", as in 0.5");
  }
  to = Permille(value);
  return ok();
}

Status readOnlineIdle(const Given& given, Nanos& to) {
  const auto parsed = parseDuration(given.text);
  if (!parsed) return parsed.error();
  if (*parsed > kOnlineIdleMax) {
    return badValue(given, "a duration of at most " + durationText(kOnlineIdleMax) + ", as in " +
                               onlineIdlePreset());
  }
  to = *parsed;
  return ok();
}

Status readSlice(const Given& given, DurationRange& to) {
  const auto parsed = parseRange(given.text);
  if (!parsed) return parsed.error();
  if (parsed->low < kSlices.low || parsed->high > kSlices.high) {
    return badValue(given, "bounds from " + durationText(kSlices.low) + " to " +
                               durationText(kSlices.high) + ", as in " + slicePreset());
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
  else if (given.text == "rm")
    to = SuspendChoice::Rm;
  else
    return badValue(given, "auto, gate, freeze or rm");
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

Status readOnOff(const Given& given, bool& to) {
  if (given.text != "on" && given.text != "off") return badValue(given, "on or off");
  to = given.text == "on";
  return ok();
}

// Kept as it was written: the device plugin reads it again.
Status readCdi(const Given& given, std::string& to) {
  if (const auto folder = parseCdi(given.text); !folder) return folder.error();
  to = given.text;
  return ok();
}

template <typename Choice>
Status readAutoOnOff(const Given& given, Choice& to) {
  if (given.text == "auto")
    to = Choice::Auto;
  else if (given.text == "on")
    to = Choice::On;
  else if (given.text == "off")
    to = Choice::Off;
  else
    return badValue(given, "auto, on or off");
  return ok();
}

// Words of a scheduler bind and end tasks, so a stranger must not be able to speak them.
Status checkWayToScheduler(const ManagerOptions& options) {
  if (options.insecure || !options.tls.none()) return ok();
  for (const std::string& address : options.schedulers) {
    if (dialStaysHere(address)) continue;
    return fail(ErrorCode::InvalidArgument,
                address +
                    " is another machine: give --tls-cert, --tls-key and --tls-ca, or "
                    "--insecure where the network is trusted");
  }
  return ok();
}

Status readOne(std::string_view name, const Given& given, ManagerOptions& to) {
  if (name == "nodename") return readNodename(given, to.nodename);
  if (name == "dbfile") return readPath(given, to.dbfile);
  if (name == "restore") return readPath(given, to.restore);
  if (name == "scheduler") return readInto(parseDialList(given.text), to.schedulers);
  if (name == "tls-cert") return readPath(given, to.tls.cert);
  if (name == "tls-key") return readPath(given, to.tls.key);
  if (name == "tls-ca") return readPath(given, to.tls.ca);
  if (name == "policy") return readInto(parsePolicy(given.text), to.policy);
  if (name == "cards") return readCards(given, to.cards);
  if (name == "max-tasks-per-card") return readMaxTasks(given, to.maxTasksPerCard);
  if (name == "overcommit") return readOvercommit(given, to.overcommit);
  if (name == "online-idle") return readOnlineIdle(given, to.onlineIdle);
  if (name == "slice") return readSlice(given, to.slice);
  if (name == "run-dir") return readRunDir(given, to.runDir);
  if (name == "http") return readAddress(given, to.http);
  if (name == "rpc") return readAddress(given, to.rpc);
  if (name == "metrics") return readAddress(given, to.metrics);
  if (name == "web") return readAddress(given, to.web.address);
  if (name == "web-token") return readPath(given, to.web.tokenFile);
  if (name == "log-level") return readInto(parseLogLevel(given.text), to.logLevel);
  if (name == "log-format") return readInto(parseLogFormat(given.text), to.logFormat);
  if (name == "suspend") return readSuspend(given, to.cards.suspend);
  if (name == "realtime") return readRealtime(given, to.realtime);
  if (name == "timeslices") return readOnOff(given, to.timeslices);
  if (name == "report-signers") return readPath(given, to.reportSigners);
  if (name == "guard") return readAutoOnOff(given, to.guard);
  if (name == "guard-nodes") return readInto(parseCardNodes(given.text), to.guardNodes);
  if (name == "kubelet") return readAutoOnOff(given, to.kubelet);
  if (name == "kubelet-dir") return readPath(given, to.kubeletDir);
  if (name == "cdi") return readCdi(given, to.cdi);
  if (name == "kubelet-config") return readPath(given, to.kubeletConfig);
  if (name == "resource-prefix") return readInto(parseResourcePrefix(given.text), to.pods.prefix);
  if (name == "memory-unit") return readInto(parseMemoryUnit(given.text), to.pods.unit);
  to.metricsTls = to.metricsTls || name == "metrics-tls";
  to.labelNode = to.labelNode || name == "label-node";
  to.mixed = to.mixed || name == "mixed";
  to.strict = to.strict || name == "strict";
  to.insecure = to.insecure || name == "insecure";
  to.web.tls = to.web.tls || name == "web-tls";
  return ok();
}

}  // namespace

std::span<const FlagRow> managerFlags() {
  static const std::array kFlags = {
      FlagRow{"nodename", "NAME", "name of this node", nullptr, "the host name"},
      FlagRow{"dbfile", "PATH", "SQLite file of this node's state", nullptr,
              "/var/lib/qgpu/meta.db as root, else qgpu/meta.db below $XDG_STATE_HOME"},
      FlagRow{"scheduler", "ADDR[,ADDR]", "where to report: HOST:PORT, unix:PATH or srv:NAME",
              nullptr, "nowhere"},
      FlagRow{"policy", "NAME", policyHelp().c_str(), "best-effort"},
      FlagRow{"cards", "KIND",
              "which cards: auto (NVIDIA's where there are any, else OpenCL "
              "devices), nvidia, amd, opencl, or sim:NxM, N imaginary cards of M GiB",
              "auto"},
      FlagRow{"max-tasks-per-card", "N",
              "a number, or auto: nominal GiB / 4 of the card, at least 4 but on Kubernetes",
              "auto"},
      FlagRow{"overcommit", "F", kOvercommitHelp, "0"},
      FlagRow{"online-idle", "TIME", "pause after which an online task is idle",
              onlineIdlePreset().c_str()},
      FlagRow{"slice", "RANGE", "bounds of a slice", slicePreset().c_str()},
      FlagRow{"run-dir", "DIR", "folder of the sockets", nullptr,
              "/run/qgpu as root, else $XDG_RUNTIME_DIR/qgpu"},
      FlagRow{"http", "HOST:PORT", "/metrics and /healthz", "127.0.0.1:12347"},
      FlagRow{"rpc", "HOST:PORT", "Cap'n Proto RPC over TCP beside the socket in the run dir",
              nullptr, "none"},
      FlagRow{"metrics", "HOST:PORT", "/metrics alone, for Prometheus on any machine", nullptr,
              "none"},
      FlagRow{"metrics-tls", nullptr, "TLS for --metrics, for who shows a certificate of --tls-ca"},
      FlagRow{"web", "HOST:PORT", "the web page; beyond loopback with one of the next two", nullptr,
              "none"},
      FlagRow{"web-token", "FILE", "whose first line --web asks for"},
      FlagRow{"web-tls", nullptr, "certificates for --web on both sides, the three --tls files"},
      FlagRow{"restore", "FILE", "put a snapshot into the store, which must be empty, and end",
              nullptr, "none"},
      FlagRow{"config", "FILE", "TOML with the same names and values; flags win"},
      FlagRow{"print-config", nullptr,
              "print the configuration that holds, as such a file, and end"},
      FlagRow{"log-level", "LEVEL", "trace, debug, info, warn, error or off", "info"},
      FlagRow{"log-format", "FORMAT", "text, or json: an object a line", "text"},
      FlagRow{"suspend", "HOW", "how a hold is made real: auto, gate, freeze or rm", "auto"},
      FlagRow{"realtime", "WHEN", "real-time priority of the card loop: auto or off", "auto"},
      FlagRow{"timeslices", "WHEN", "short for offline work on NVIDIA cards: on or off", "on"},
      FlagRow{"tls-cert", "FILE", "certificate to show to the scheduler, PEM, with its chain"},
      FlagRow{"tls-key", "FILE", "its key, PEM, not encrypted"},
      FlagRow{"tls-ca", "FILE", "who signs certificates of this cluster, PEM"},
      FlagRow{"kubelet", "WHEN",
              "serve the kubelet of this node: on, off, or auto: where there is one and a cluster",
              "auto"},
      FlagRow{"kubelet-dir", "DIR", "kubelet's folder", kKubeletDir},
      FlagRow{"cdi", "WHERE", "name a CDI device to kubelet 1.29 or later: off, on or a folder",
              "off"},
      FlagRow{"label-node", nullptr,
              "give this node the label qgpu-device-enable=enable where it has cards, and none"},
      FlagRow{"kubelet-config", "FILE", "config file of the device plugin, for its own flags"},
      FlagRow{"resource-prefix", "NAME", "before '/' in names of Kubernetes resources",
              kResourcePrefix},
      FlagRow{"memory-unit", "UNIT", "of the resource qgpu-memory: GiB or MiB", "GiB"},
      FlagRow{"mixed", nullptr,
              "allow online and offline tasks on this node; on Kubernetes the node's label wins"},
      FlagRow{"strict", nullptr, "end processes of tasks that use a card past libqgpu.so"},
      FlagRow{"report-signers", "FILE", kReportSignersHelp, nullptr, "anybody's counts"},
      FlagRow{"guard", "WHEN", kGuardHelp, "off"},
      FlagRow{"guard-nodes", "CARD:PATH,...",
              "further device nodes that lead to cards, for --guard: a card by its index"},
      FlagRow{"insecure", nullptr, "a scheduler on another machine without certificates"},
  };
  return kFlags;
}

std::variant<ManagerOptions, ExitNow> parseManagerOptions(int argc, const char* const* argv,
                                                          const Platform& around) {
  Flags flags("qgpu-manager", "finds the cards of this node, admits tasks and divides time.",
              "policy = \"fs\"", managerFlags());
  const auto schema = capnp::Schema::from<schema::ManagerConfig>();
  if (auto exit = flags.read(argc, argv, schema)) return std::move(*exit);
  flags.setDefault("nodename", around.hostname);
  flags.setDefault("dbfile", defaultDbfile(around, "meta.db"));
  flags.setDefault("run-dir", defaultRunDir(around));
  ManagerOptions options;
  const auto readOption = [&](std::string_view name, const Given& given) {
    return readOne(name, given, options);
  };
  if (auto exit = flags.each(readOption)) return std::move(*exit);
  if (const Status way = checkWayToScheduler(options); !way) {
    return flags.refuse(flags.at("scheduler").origin + ": " + way.error().message);
  }
  if (options.metricsTls && options.tls.none()) {
    return flags.refuse("--metrics-tls needs --tls-cert, --tls-key and --tls-ca");
  }
  if (options.web.tls && options.tls.cert.empty()) {
    return flags.refuse("--web-tls needs --tls-cert, --tls-key and --tls-ca");
  }
  if (auto exit = flags.printed()) return std::move(*exit);
  return options;
}

}  // namespace qgpu
