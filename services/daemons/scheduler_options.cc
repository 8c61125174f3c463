#include "services/daemons/scheduler_options.h"

#include <array>
#include <limits>

#include "runtime/config.h"
#include "schema/config.capnp.h"
#include "services/base/net/pem.h"
#include "services/base/wall_time.h"
#include "services/kubernetes/device_plugin/plugin_flags.h"

namespace qgpu {
namespace {

constexpr Nanos kLeaseMin = seconds(1);
constexpr Nanos kLeaseMax = seconds(3600);
constexpr std::int64_t kReportDaysMax = 3'650;
constexpr std::int64_t kRecordMibMax = 1 << 20;

// In the order of help.
constexpr std::array kFlags = {
    FlagRow{"priority", "NAME", "where ordinary tasks go: binpack, spread or fgd", "binpack"},
    FlagRow{"http", "HOST:PORT", "extender, /metrics, /healthz", nullptr,
            "127.0.0.1:$PORT, else :12345"},
    FlagRow{"rpc", "HOST:PORT", "Cap'n Proto RPC for managers and clients", "127.0.0.1:12346"},
    FlagRow{"dbfile", "PATH", "SQLite file of this cluster's state", nullptr,
            "/var/lib/qgpu/scheduler.db as root, else qgpu/scheduler.db below $XDG_STATE_HOME"},
    FlagRow{"store", "WHERE", "etcd:URL[,URL...][/PREFIX]: state that several schedulers share",
            nullptr, "the file of --dbfile"},
    FlagRow{"store-ca", "FILE", "who signs etcd's certificate, PEM, where its URLs are https"},
    FlagRow{"store-cert", "FILE", "certificate shown to etcd, PEM; with --store-key"},
    FlagRow{"store-key", "FILE", "its key, PEM"},
    FlagRow{"store-user", "NAME", "who signs in at etcd; with --store-password", nullptr, "nobody"},
    FlagRow{"store-password", "FILE", "whose first line is the password of --store-user"},
    FlagRow{"advertise", "HOST:PORT", "where others reach --rpc of this one of several schedulers",
            nullptr, "--rpc, with this machine's name for an address of all"},
    FlagRow{"run-dir", "DIR", "folder of the sockets scheduler.sock and scheduler.rpc", nullptr,
            "/run/qgpu as root, else $XDG_RUNTIME_DIR/qgpu"},
    FlagRow{"lease", "TIME", "a node silent for so long gets nothing new; lost after 4/3 of it",
            "15s"},
    FlagRow{"tls-cert", "FILE", "certificate of this daemon, PEM; with --tls-key and --tls-ca"},
    FlagRow{"tls-key", "FILE", "its key, PEM"},
    FlagRow{"tls-ca", "FILE", "who signs certificates of this cluster, PEM"},
    FlagRow{"http-tls", nullptr, "TLS for --http too, with the same three files"},
    FlagRow{"metrics", "HOST:PORT", "/metrics alone, for Prometheus on any machine", nullptr,
            "none"},
    FlagRow{"metrics-tls", nullptr, "TLS for --metrics, for who shows a certificate of --tls-ca"},
    FlagRow{"web", "HOST:PORT", "the web page; beyond loopback with one of the next two", nullptr,
            "none"},
    FlagRow{"web-token", "FILE", "whose first line --web asks for"},
    FlagRow{"web-tls", nullptr, "certificates for --web on both sides, the three --tls files"},
    FlagRow{"join", "HOST:PORT",
            "where machines join by a token (qgpuctl token create); needs the three --tls files",
            nullptr, "none"},
    FlagRow{"join-ca-key", "FILE", "key of the CA in --tls-ca, PEM, which signs for --join"},
    FlagRow{"extender", "HOST:PORT", "the extender for other machines, by certificates", nullptr,
            "none"},
    FlagRow{"extender-certs", "DIR", "folder of tls.crt, tls.key and ca.crt of --extender",
            "/etc/qgpu/extender"},
    FlagRow{"insecure", nullptr, "without TLS, beyond loopback too: anybody joins as any node"},
    FlagRow{"resource-prefix", "NAME", "before '/' in names of Kubernetes resources",
            kResourcePrefix},
    FlagRow{"memory-unit", "UNIT", "of the resource qgpu-memory: GiB or MiB", "GiB"},
    FlagRow{"webhook", "HOST:PORT", "admission webhook for Kubernetes over TLS", nullptr, "none"},
    FlagRow{"kubernetes", "WHEN",
            "follow an API server: on, off, or auto: where KUBECONFIG or a service account is",
            "auto"},
    FlagRow{"leader-elect", "WHEN", "on Kubernetes, act only while holding a Lease: on or off",
            "on"},
    FlagRow{"require-report", "DAYS",
            "cards take nothing new without a report (qgpuctl prove) that is no older and holds",
            nullptr, "none is wanted"},
    FlagRow{"rebuild-from-nodes", nullptr,
            "into an empty store take what nodes hold, before anything is placed"},
    FlagRow{"restore", "FILE", "put a snapshot into the store, which must be empty, and end",
            nullptr, "none"},
    FlagRow{"record", "DIR", "record there what it is told and what it does, for --replay", nullptr,
            "none"},
    FlagRow{"record-mib", "MIB", "bound of all recordings there: the oldest files go", "1024"},
    FlagRow{"replay", "PATH",
            "decide once more as a recording says, or all of a folder; compare, and end", nullptr,
            "none"},
    FlagRow{"until", "TIME", "with --replay: up to then, as in 2026-01-31T12:00:00Z", nullptr,
            "the end"},
    FlagRow{"explain", "TASK", "with --replay: why this task was where it was then", nullptr,
            "none"},
    FlagRow{"config", "FILE", "TOML with the same names and values; flags win"},
    FlagRow{"print-config", nullptr, "print the configuration that holds, as such a file, and end"},
    FlagRow{"log-level", "LEVEL", "trace, debug, info, warn, error or off", "info"},
    FlagRow{"log-format", "FORMAT", "text, or json: an object a line", "text"},
};

constexpr const char* kFooter = R"(
One scheduler places the tasks of many managers. On one machine:
  qgpu-scheduler &
  qgpu-manager --scheduler unix:/run/qgpu/scheduler.rpc &
  qgpuctl nodes
  qgpuctl submit --memory 2 --core 20

For other machines, with certificates of both sides:
  qgpu-scheduler --rpc=0.0.0.0:12346 --tls-cert=cert.pem --tls-key=key.pem --tls-ca=ca.pem
  qgpu-manager --scheduler=HOST:12346 --tls-cert=... --tls-key=... --tls-ca=ca.pem
Units of a certificate's subject say what its owner may: OU=qgpu-node joins as the node of its CN or
DNS entries, OU=qgpu-reader reads, OU=qgpu-admin changes anything; without one it joins and reads.
Files that change are read again within 10 s. Over TCP without TLS one may read.

Several schedulers that share an etcd: one acts, the others stand by and pass questions on to it.
  qgpu-scheduler --store=etcd:http://a:2379,http://b:2379,http://c:2379 --rpc=0.0.0.0:12346 ...
  qgpu-manager --scheduler=s1:12346,s2:12346,s3:12346 ...
  qgpuctl --server s1:12346,s2:12346,s3:12346 nodes

Root has its sockets in /run/qgpu and its state in /var/lib/qgpu; others have them in
$XDG_RUNTIME_DIR/qgpu and below $XDG_STATE_HOME. Killed or stopped, it goes on from its state, and
the programs on the nodes never notice. SIGTERM ends it cleanly.)";

Status readPriority(const Given& given, schema::Score& to) {
  if (given.text == "binpack")
    to = schema::Score::BINPACK;
  else if (given.text == "spread")
    to = schema::Score::SPREAD;
  else if (given.text == "fgd")
    to = schema::Score::FGD;
  else
    return badValue(given, "binpack, spread or fgd");
  return ok();
}

Status readLease(const Given& given, Nanos& to) {
  const auto parsed = parseDuration(given.text);
  if (!parsed) return parsed.error();
  if (*parsed < kLeaseMin || *parsed > kLeaseMax) {
    return badValue(given, "a duration from 1s to 1h, as in 15s");
  }
  to = *parsed;
  return ok();
}

Status readKubernetes(const Given& given, KubernetesChoice& to) {
  if (given.text == "auto")
    to = KubernetesChoice::Auto;
  else if (given.text == "on")
    to = KubernetesChoice::On;
  else if (given.text == "off")
    to = KubernetesChoice::Off;
  else
    return badValue(given, "auto, on or off");
  return ok();
}

Status readOnOff(const Given& given, bool& to) {
  if (given.text != "on" && given.text != "off") return badValue(given, "on or off");
  to = given.text == "on";
  return ok();
}

Status readMebibytes(const Given& given, std::int64_t& to) {
  if (readInto(parseInteger(given.text, 1, kRecordMibMax, "MiB"), to)) return ok();
  return badValue(given, "a number of MiB from 1 to " + std::to_string(kRecordMibMax));
}

Status readDays(const Given& given, std::int64_t& to) {
  if (readInto(parseInteger(given.text, 1, kReportDaysMax, "days"), to)) return ok();
  return badValue(given, "a number of days from 1 to " + std::to_string(kReportDaysMax));
}

Status readTime(const Given& given, std::int64_t& to) {
  const auto parsed = parseRfc3339(given.text);
  if (!parsed) return badValue(given, "a time of UTC, as in 2026-01-31T12:00:00Z");
  to = *parsed;
  return ok();
}

Status readTask(const Given& given, std::uint64_t& to) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (readInto(parseInteger(given.text, 1, kMost, "task"), to)) return ok();
  return badValue(given, "the number of a task");
}

Status readStore(const Given& given, std::optional<EtcdOptions>& to) {
  Result<EtcdOptions> parsed = parseEtcdStore(given.text);
  if (!parsed) return parsed.error();
  to = std::move(*parsed);
  return ok();
}

// What is said of an etcd, once --store has named it. An option of it without that is refused.
struct StoreSaid {
  std::string ca;
  std::string cert;
  std::string key;
  std::string user;
  std::string passwordFile;
};

Status applyStore(const StoreSaid& said, SchedulerDaemonOptions& to) {
  const bool any = !said.ca.empty() || !said.cert.empty() || !said.user.empty();
  if (!to.etcd) {
    if (!any) return ok();
    return fail(ErrorCode::InvalidArgument,
                "--store-ca, -cert, -key and -user need --store=etcd:URL");
  }
  if (said.cert.empty() != said.key.empty()) {
    return fail(ErrorCode::InvalidArgument, "--store-cert and --store-key go together");
  }
  if (said.user.empty() != said.passwordFile.empty()) {
    return fail(ErrorCode::InvalidArgument, "--store-user and --store-password go together");
  }
  to.etcd->ca = said.ca;
  to.etcd->cert = said.cert;
  to.etcd->key = said.key;
  to.etcd->user = said.user;
  if (said.user.empty()) return ok();
  auto text = readSmallFile("--store-password", said.passwordFile);
  if (!text) return text.error();
  to.etcd->password = text->substr(0, text->find('\n'));
  return ok();
}

Status readOne(std::string_view name, const Given& given, SchedulerDaemonOptions& to) {
  if (name == "priority") return readPriority(given, to.priority);
  if (name == "http") return readAddress(given, to.http);
  if (name == "rpc") return readAddress(given, to.rpc);
  if (name == "web") return readAddress(given, to.web.address);
  if (name == "web-token") return readPath(given, to.web.tokenFile);
  if (name == "dbfile") return readPath(given, to.dbfile);
  if (name == "restore") return readPath(given, to.restore);
  if (name == "record") return readPath(given, to.record);
  if (name == "record-mib") return readMebibytes(given, to.recordMib);
  if (name == "replay") return readPath(given, to.replay);
  if (name == "until") return readTime(given, to.untilUnixMs);
  if (name == "explain") return readTask(given, to.explain);
  if (name == "advertise") return readAddress(given, to.advertise);
  if (name == "run-dir") return readRunDir(given, to.runDir);
  if (name == "lease") return readLease(given, to.lease);
  if (name == "require-report") return readDays(given, to.reportDays);
  if (name == "tls-cert") return readPath(given, to.tlsCert);
  if (name == "tls-key") return readPath(given, to.tlsKey);
  if (name == "tls-ca") return readPath(given, to.tlsCa);
  if (name == "metrics") return readAddress(given, to.metrics);
  if (name == "join") return readAddress(given, to.join);
  if (name == "join-ca-key") return readPath(given, to.joinCaKey);
  if (name == "extender") return readAddress(given, to.extender);
  if (name == "extender-certs") return readPath(given, to.extenderCerts);
  if (name == "webhook") return readAddress(given, to.webhook);
  if (name == "kubernetes") return readKubernetes(given, to.kubernetes);
  if (name == "leader-elect") return readOnOff(given, to.leaderElect);
  if (name == "log-level") return readInto(parseLogLevel(given.text), to.logLevel);
  if (name == "log-format") return readInto(parseLogFormat(given.text), to.logFormat);
  if (name == "resource-prefix") return readInto(parseResourcePrefix(given.text), to.pods.prefix);
  if (name == "memory-unit") return readInto(parseMemoryUnit(given.text), to.pods.unit);
  to.httpTls = to.httpTls || name == "http-tls";
  to.metricsTls = to.metricsTls || name == "metrics-tls";
  to.insecure = to.insecure || name == "insecure";
  to.rebuild = to.rebuild || name == "rebuild-from-nodes";
  to.web.tls = to.web.tls || name == "web-tls";
  return ok();
}

}  // namespace

std::span<const FlagRow> schedulerFlags() {
  return kFlags;
}

std::variant<SchedulerDaemonOptions, ExitNow> parseSchedulerOptions(int argc,
                                                                    const char* const* argv,
                                                                    const Platform& around) {
  Flags flags("qgpu-scheduler", "decides which node and card of a cluster a task gets.",
              "priority = \"spread\"", kFlags, kFooter);
  const auto schema = capnp::Schema::from<schema::SchedulerConfig>();
  if (auto exit = flags.read(argc, argv, schema)) return std::move(*exit);
  flags.setDefault("dbfile", defaultDbfile(around, "scheduler.db"));
  flags.setDefault("run-dir", defaultRunDir(around));
  flags.setDefault("http", "127.0.0.1:" + (around.port.empty() ? "12345" : around.port));
  SchedulerDaemonOptions options;
  options.hostname = around.hostname;
  StoreSaid store;
  const auto readOption = [&](std::string_view name, const Given& given) -> Status {
    if (name == "store") return readStore(given, options.etcd);
    if (name == "store-ca") return readPath(given, store.ca);
    if (name == "store-cert") return readPath(given, store.cert);
    if (name == "store-key") return readPath(given, store.key);
    if (name == "store-user") return store.user = given.text, ok();
    if (name == "store-password") return readPath(given, store.passwordFile);
    return readOne(name, given, options);
  };
  if (auto exit = flags.each(readOption)) return std::move(*exit);
  if (const Status applied = applyStore(store, options); !applied) {
    return flags.refuse(applied.error().message);
  }
  if (options.replay.empty() &&
      (!flags.at("until").text.empty() || !flags.at("explain").text.empty())) {
    return flags.refuse("--until and --explain need --replay=PATH");
  }
  if (options.etcd && options.kubernetes == KubernetesChoice::On) {
    return flags.refuse(
        "--store=etcd:... is for clusters without Kubernetes, where one of several "
        "schedulers acts by its Lease: leave out --store, or say --kubernetes=off");
  }
  if (options.etcd && !options.extender.empty()) {
    return flags.refuse("--extender is Kubernetes' and --store=etcd:... for clusters without it");
  }
  if (options.etcd) options.kubernetes = KubernetesChoice::Off;
  if (options.httpTls && options.tlsCert.empty()) {
    return flags.refuse("--http-tls needs --tls-cert, --tls-key and --tls-ca");
  }
  if (options.metricsTls && options.tlsCert.empty()) {
    return flags.refuse("--metrics-tls needs --tls-cert, --tls-key and --tls-ca");
  }
  if (options.web.tls && options.tlsCert.empty()) {
    return flags.refuse("--web-tls needs --tls-cert, --tls-key and --tls-ca");
  }
  if (!options.join.empty() && (options.tlsCert.empty() || options.joinCaKey.empty())) {
    return flags.refuse("--join needs --tls-cert, --tls-key, --tls-ca and --join-ca-key");
  }
  if (auto exit = flags.printed()) return std::move(*exit);
  return options;
}

}  // namespace qgpu
