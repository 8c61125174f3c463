// qgpu-kubelet-plugin: kubelet's device plugin and driver of claims of this node. qgpu-manager
// starts and watches it.

#include <array>
#include <cstdio>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <variant>

#include "runtime/config.h"
#include "runtime/kj/bridge.h"
#include "schema/config.capnp.h"
#include "services/base/flags.h"
#include "services/base/host.h"
#include "services/base/platform.h"
#include "services/daemons/log_format.h"
#include "services/kubernetes/claim_plugin/claim_plugin.h"
#include "services/kubernetes/device_plugin/cdi_spec.h"
#include "services/kubernetes/device_plugin/plugin.h"
#include "services/kubernetes/device_plugin/plugin_flags.h"

namespace qgpu {
namespace {

constexpr std::array kFlags = {
    FlagRow{"manager", "PATH", "RPC socket of this node's manager", nullptr, "RUN_DIR/manager.rpc"},
    FlagRow{"nodename", "NAME", "of the node, as the API server knows it", nullptr, "host name"},
    FlagRow{"kubelet-dir", "DIR", "kubelet's folder", kKubeletDir},
    FlagRow{"run-dir", "DIR", "folder of the manager's sockets, the same for the host"},
    FlagRow{"files-dir", "DIR", "folder of libraries that containers map", nullptr,
            "RUN_DIR/kubelet-files"},
    FlagRow{"host-prefix", "DIR", "where the host's root lies for this process", nullptr, "none"},
    FlagRow{"resource-prefix", "NAME", "before '/' in names of resources", kResourcePrefix},
    FlagRow{"memory-unit", "UNIT", "of qgpu-memory: GiB or MiB", "GiB"},
    FlagRow{"library", "FILE", "libqgpu.so for containers", nullptr, "none"},
    FlagRow{"cdi", "WHERE",
            "name a CDI device to kubelet 1.29 or later: off, on or a folder; claims always do",
            "off"},
    FlagRow{"reconcile", "TIME", "between looks at what kubelet lists", "2s"},
    FlagRow{"gone-after", "TIME", "a container that is not listed for so long is over", "6s"},
    FlagRow{"settle", "TIME", "after a start of kubelet in which nothing is over", "30s"},
    FlagRow{"parent", "PID", "process with which this one ends", nullptr, "none"},
    FlagRow{"config", "FILE", "TOML with the same names and values; flags win"},
    FlagRow{"print-config", nullptr, "print the configuration that holds, as such a file, and end"},
    FlagRow{"log-level", "LEVEL", "trace, debug, info, warn, error or off", "info"},
    FlagRow{"log-format", "FORMAT", "text, or json: an object a line", "text"},
};

struct Options {
  PluginConfig plugin;
  std::string node;
  pid_t parent = 0;
  LogLevel logLevel = LogLevel::Info;
  LogFormat logFormat = LogFormat::Text;
};

Status readParent(const Given& given, pid_t& to) {
  if (readInto(parseInteger(given.text, 1, INT32_MAX, "pid"), to)) return ok();
  return badValue(given, "the number of a process");
}

Status readOne(std::string_view name, const Given& given, Options& to) {
  PluginConfig& plugin = to.plugin;
  if (name == "manager") return readPath(given, plugin.manager);
  if (name == "nodename") to.node = given.text;
  if (name == "kubelet-dir") return readPath(given, plugin.kubeletDir);
  if (name == "run-dir") return readRunDir(given, plugin.files.runDir);
  if (name == "files-dir") return readPath(given, plugin.files.filesDir);
  if (name == "host-prefix") return readPath(given, plugin.files.hostPrefix);
  if (name == "resource-prefix")
    return readInto(parseResourcePrefix(given.text), plugin.resourcePrefix);
  if (name == "memory-unit") return readInto(parseMemoryUnit(given.text), plugin.memoryUnit);
  if (name == "library") return readPath(given, plugin.files.library);
  if (name == "cdi") return readInto(parseCdi(given.text), plugin.files.cdiDir);
  if (name == "reconcile") return readInto(parseDuration(given.text), plugin.reconcile);
  if (name == "gone-after") return readInto(parseDuration(given.text), plugin.times.goneAfter);
  if (name == "settle") return readInto(parseDuration(given.text), plugin.times.settle);
  if (name == "parent") return readParent(given, to.parent);
  if (name == "log-level") return readInto(parseLogLevel(given.text), to.logLevel);
  if (name == "log-format") return readInto(parseLogFormat(given.text), to.logFormat);
  return ok();
}

std::variant<Options, ExitNow> parse(int argc, const char* const* argv) {
  Flags flags("qgpu-kubelet-plugin", "tells kubelet of this node's cards.", "memory-unit = \"GiB\"",
              kFlags);
  const auto schema = capnp::Schema::from<schema::KubeletPluginConfig>();
  if (auto exit = flags.read(argc, argv, schema)) return std::move(*exit);
  flags.setDefault("run-dir", defaultRunDir(Platform::ofThisProcess()));
  flags.setDefault("nodename", Platform::ofThisProcess().hostname);
  flags.setDefault("manager", flags.at("run-dir").text + "/manager.rpc");
  flags.setDefault("files-dir", flags.at("run-dir").text + "/kubelet-files");
  Options options;
  const auto readOption = [&](std::string_view name, const Given& given) {
    return readOne(name, given, options);
  };
  if (auto exit = flags.each(readOption)) return std::move(*exit);
  if (auto exit = flags.printed()) return std::move(*exit);
  return options;
}

// Ends with its manager, however that ends. False: it is gone already.
bool stayWith(pid_t parent) {
  if (parent == 0) return true;
  return ::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && ::getppid() == parent;
}

// Containers of claims are told by CDI alone.
ClaimPluginConfig claimsOf(const Options& options) {
  const PluginConfig& plugin = options.plugin;
  const std::string& cdi = plugin.files.cdiDir;
  return {plugin.manager, plugin.kubeletDir, options.node, cdi.empty() ? kCdiFolder : cdi,
          plugin.files};
}

int main(int argc, const char* const* argv) {
  const auto parsed = parse(argc, argv);
  if (const auto* now = std::get_if<ExitNow>(&parsed)) {
    std::fputs(now->text.c_str(), now->code == 0 ? stdout : stderr);
    return now->code;
  }
  const auto& options = std::get<Options>(parsed);
  blockEndSignals();
  if (!stayWith(options.parent)) return static_cast<int>(ExitCode::Ok);
  Log log(options.logLevel, logShape(options.logFormat));
  Loop loop;
  KjBridge kj(loop);
  Plugin plugin(loop, kj.io().getNetwork(), kj.timer(), log, options.plugin);
  ClaimPlugin claims(loop, kj.io().getNetwork(), kj.timer(), log, claimsOf(options));
  plugin.start();
  claims.start();
  serveUntilEnded(loop, log, [&] { plugin.stop([&] { claims.stop([&loop] { loop.stop(); }); }); });
  return static_cast<int>(ExitCode::Ok);
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  return qgpu::main(argc, argv);
}
