#include "services/ctl/doctor/doctor.h"

#include <algorithm>
#include <array>
#include <climits>
#include <ctime>
#include <map>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "services/api/rpc/certificate.h"
#include "services/base/json.h"
#include "services/base/net/pem.h"
#include "services/base/net/x509.h"
#include "services/base/toml.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/doctor/doctor_look.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kProbeLimit = seconds(3);
constexpr std::int64_t kSoonSeconds = 14 * kDaySeconds;
// Findings with which everything still works.
constexpr std::array<std::string_view, 19> kWarnings = {
    "card-cordoned",   "certificate-ends",  "clock-unsynced", "cluster-away",
    "disk-low",        "driver-rm",         "driver-unknown", "hold-weak",
    "kernel-rm",       "library-differs",   "memory-refused", "realtime",
    "report-stale",    "report-unreadable", "socket-stale",   "task-quarantined",
    "task-unattached", "versions-differ",   "wal-large"};
const std::vector<unsigned> kOldestKernel = {5, 3};
const std::vector<unsigned> kOldestDriver = {450, 102, 4};

// Who may write to a folder that daemons trust.
void checkFolder(DoctorContext& context, const std::string& folder) {
  struct stat info {};
  if (::lstat(context.path(folder).c_str(), &info) != 0) return;
  const std::string name = folder;
  if (!S_ISDIR(info.st_mode)) {
    context.finding("folder", name + " is no folder", "move it away; the daemon makes a new one");
  } else if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    context.finding("folder-open", name + " may be written to by others", "chmod go-w " + name);
  } else if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    context.finding("folder-owner", name + " belongs to uid " + std::to_string(info.st_uid),
                    "chown root " + name);
  } else {
    context.well(name + " is its daemon's alone");
  }
}

void checkKernel(DoctorContext& context) {
  const std::string release = firstLine(context.path("/proc/sys/kernel/osrelease"));
  if (release.empty()) return;
  context.fact("kernel", release);
  if (versionNumbers(release, kOldestKernel.size()) < kOldestKernel) {
    context.finding("kernel-old",
                    "kernel " + release +
                        " has no pidfd, by which qgpu follows "
                        "processes",
                    "run Linux 5.3 or later");
  } else {
    context.well("kernel " + release + " has pidfd, by which qgpu follows processes (5.3)");
  }
}

void checkDriver(DoctorContext& context) {
  const std::string line = firstLine(context.path("/proc/driver/nvidia/version"));
  const std::string modules = readWhole(context.path("/proc/modules")).value_or("");
  const bool nouveau =
      modules.starts_with("nouveau ") || modules.find("\nnouveau ") != std::string::npos;
  if (line.empty()) {
    if (nouveau) {
      context.finding("driver-nouveau", "the kernel drives NVIDIA cards by nouveau",
                      "install NVIDIA's driver, and blacklist nouveau");
    }
    return;
  }
  const std::size_t at = line.find_first_of("0123456789", line.find("Module"));
  const std::string version =
      at == std::string::npos ? "" : line.substr(at, line.find(' ', at) - at);
  context.fact("nvidia driver", version);
  if (!version.empty() && versionNumbers(version, kOldestDriver.size()) < kOldestDriver) {
    context.finding("driver-old", "NVIDIA's driver " + version + " is older than 450.102.04",
                    "install a newer one");
  } else if (!version.empty()) {
    const std::string release = firstLine(context.path("/proc/sys/kernel/osrelease"));
    judgeCounting(context, version);
    judgeRm(context, version, versionNumbers(release, kOldestKernel.size()));
  }
  if (namesIn(context.path("/dev"), "nvidia0", "").empty() &&
      !exists(context.path("/dev/nvidiactl"))) {
    context.finding("driver-devices", "NVIDIA's driver is loaded, and /dev/nvidia* are missing",
                    "start qgpu-manager by its unit, or nvidia-persistenced; by hand: "
                    "nvidia-modprobe -c 255 -c 0, then nvidia-modprobe -u -c 0");
  }
}

// The value that a daemon's flags give to `flag`; empty where they don't.
std::string flagValue(const std::string& flags, const std::string& flag) {
  std::size_t at = flags.find(flag + "=");
  if (at == std::string::npos) return "";
  at += flag.size() + 1;
  return flags.substr(at, flags.find_first_of(" \t\n\"'", at) - at);
}

// How a daemon is configured: by its flags, else by the file that --config names.
struct DaemonConfig {
  std::string flags;
  std::map<std::string, std::string> file{};
  std::string path{};  // of that file

  std::string value(const std::string& name) const {
    const std::string said = flagValue(flags, "--" + name);
    const auto found = file.find(name);
    return said.empty() && found != file.end() ? found->second : said;
  }
  // Where somebody would mend it.
  std::string place(const std::string& daemon) const {
    return path.empty() ? "/etc/default/" + daemon : path;
  }
};

// Nothing is known of the older form of that file; the daemon itself tells what is wrong with one.
std::optional<DaemonConfig> configOf(DoctorContext& context, const std::string& daemon) {
  auto flags = readWhole(context.path("/etc/default/" + daemon));
  if (!flags) return std::nullopt;
  DaemonConfig config{std::move(*flags)};
  const std::string path = flagValue(config.flags, "--config");
  if (path.empty()) return config;
  const auto text = readWhole(context.path(path));
  const auto entries = text ? parseToml(*text) : fail(ErrorCode::NotFound, "it can't be read");
  config.path = path;
  if (entries) {
    for (const TomlEntry& entry : *entries) config.file[entry.key] = entry.value;
  } else if (!text || !text->starts_with('(')) {
    context.finding("config",
                    "the configuration of " + daemon + ", " + path + ": " + entries.error().message,
                    "mend it, and try it with " + daemon + " --config=" + path + " --print-config");
  }
  return config;
}

// Another one is refused by the scheduler each time that the node would join.
void checkNodeCertificate(DoctorContext& context, const std::string& whose, const std::string& pem,
                          const DaemonConfig& config) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string named = config.value("nodename");
  const std::string node = named.empty() ? host.data() : named;
  const CertificateOwner owner = ownerOf(pem);
  if (!owner.mayJoin()) {
    context.finding("certificate-role", whose + " is not that of a node",
                    "where the CA is: qgpuctl certs issue " + node + " --role node");
  } else if (!owner.mayJoinAs(node)) {
    context.finding("certificate-name", whose + " does not name " + node + ", which joins with it",
                    "where the CA is: qgpuctl certs issue " + node + "; or say --nodename");
  }
}

struct Pair {
  std::string cert, key, ca;  // files
};

// Its text; empty where it is none. `place`: where it is named.
std::string checkPair(DoctorContext& context, const std::string& whose, const Pair& files,
                      const std::string& place) {
  const auto pem = readWhole(context.path(files.cert));
  const auto begin = beginningOf(pem.value_or("")), end = expiryOf(pem.value_or(""));
  if (!pem || !end) {
    context.finding("certificate", whose + (pem ? " is no PEM certificate" : " can't be read"),
                    "see --tls-cert in " + place);
    return "";
  }
  const std::size_t before = context.diagnosis.findings.size();
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  const std::int64_t left = *end - now;
  const std::string renew =
      "where the CA is: qgpuctl certs renew; then copy it here, and it is read within 10 s";
  if (begin && now < *begin) {
    context.finding(
        "certificate-early",
        whose + " holds only from " + rfc3339(*begin * 1000) + " on, by this machine's clock",
        "set the clock (timedatectl set-ntp true); where it is right, issue another");
  } else if (left <= 0) {
    context.finding("certificate-expired", whose + " has expired", renew);
  } else if (left < kSoonSeconds) {
    context.finding("certificate-ends",
                    whose + " ends in " + std::to_string(left / kDaySeconds) + " days", renew);
  }
  const auto key = readWhole(context.path(files.key));
  if (key && !belongTogether(*pem, *key)) {
    context.finding("certificate-key", whose + " does not belong to the key of --tls-key",
                    "name the pair in " + place);
  }
  const auto ca = readWhole(context.path(files.ca));
  if (ca && !files.ca.empty() && !signedBy(*pem, *ca)) {
    context.finding("certificate-ca", whose + " is not signed by " + files.ca + ", of --tls-ca",
                    "bring the ca.pem of the CA that signed it");
  }
  if (context.diagnosis.findings.size() == before) {
    context.well(whose + " holds until " + rfc3339(*end * 1000));
  }
  return *pem;
}

void checkCertificate(DoctorContext& context, const std::string& daemon,
                      const DaemonConfig& config) {
  const Pair files{config.value("tls-cert"), config.value("tls-key"), config.value("tls-ca")};
  if (files.cert.empty()) return;
  const std::string whose = "the certificate of " + daemon + ", " + files.cert + ",";
  const std::string pem = checkPair(context, whose, files, config.place(daemon));
  if (pem.empty()) return;
  if (daemon == "qgpu-manager") return checkNodeCertificate(context, whose, pem, config);
  const std::string rpc = config.value("rpc");
  const std::string host = rpc.substr(0, rpc.rfind(':'));
  const bool everywhere = host.empty() || host == "0.0.0.0" || host == "[::]" || host == "*";
  if (!everywhere && !isFor(pem, host)) {
    context.finding("certificate-name", whose + " does not name " + host + ", where it serves",
                    "where the CA is: qgpuctl certs issue " + host + " --role scheduler");
  }
}

// The version that a daemon tells; empty where it tells none.
std::string versionOf(const std::string& socket) {
  const Result<Answer> answer = Client(socket).askLine("status", kProbeLimit);
  return answer ? textOf(answer->root(), "version") : "";
}

// Compared with the copies that containers get, which the device plugin makes at its start.
void checkLibrary(DoctorContext& context) {
  const std::string folder = context.path("/var/lib/qgpu/kubelet");
  const std::string program = binaryFolder();
  const auto own = readWhole(program.substr(0, program.rfind('/')) + "/lib/libqgpu.so");
  const auto copies = namesIn(folder, "libqgpu-", ".so");
  if (!own || copies.empty()) return;
  const bool same = std::any_of(copies.begin(), copies.end(), [&](const std::string& name) {
    return readWhole(folder + "/" + name) == own;
  });
  if (same) return;
  context.finding("library-differs",
                  "containers get another libqgpu.so than the one beside this program",
                  "restart qgpu-manager of this version; running containers keep theirs");
}

void append(std::string& out, const std::string& text) {
  out += text + "\n";
}

}  // namespace

std::string DoctorOptions::path(const std::string& absolute) const {
  return (root.ends_with('/') ? root.substr(0, root.size() - 1) : root) + absolute;
}
bool Diagnosis::somethingBroken() const {
  return !std::ranges::all_of(findings, &Finding::isWarning);
}

bool Finding::isWarning() const {
  return std::ranges::count(kWarnings, code) != 0;
}
void DoctorContext::fact(std::string name, std::string value) {
  diagnosis.facts.push_back({std::move(name), std::move(value)});
}
void DoctorContext::finding(std::string code, std::string what, std::string fix) {
  diagnosis.findings.push_back({std::move(code), std::move(what), std::move(fix)});
}

void examineMachine(DoctorContext& context) {
  checkKernel(context);
  checkDriver(context);
  checkFolder(context, context.options.runDir);
  checkFolder(context, "/var/lib/qgpu");
}

void examineDaemons(DoctorContext& context, const std::string& version) {
  std::size_t alive = 0;
  for (const std::string daemon : {"manager", "scheduler"}) {
    for (const std::string end : {".sock", ".rpc"}) {
      const std::string name = context.options.runDir + "/" + daemon + end;
      const SocketState state = socketState(context.path(name));
      if (state == SocketState::Stale || state == SocketState::NoSocket) {
        context.finding("socket-stale",
                        "nobody listens on " + name + ": qgpu-" + daemon + " was killed",
                        "start qgpu-" + daemon + ", which replaces it");
      }
      if (state != SocketState::Alive || end != ".sock") continue;
      ++alive;
      const std::string told = versionOf(context.path(name));
      context.fact("qgpu-" + daemon, told.empty() ? "does not answer" : told);
      if (told.empty()) {
        context.finding("daemon-silent",
                        "qgpu-" + daemon + " takes connections on " + name + " and does not answer",
                        "look at its log; restart it");
      } else if (told != version) {
        context.finding("versions-differ",
                        "qgpu-" + daemon + " is " + told + ", this qgpuctl " + version,
                        "bring both to one version");
      } else {
        context.well("qgpu-" + daemon + " " + told + " answers on " + name);
      }
    }
  }
  const std::string attach = context.options.runDir + "/attach.sock";
  const bool manager =
      socketState(context.path(context.options.runDir + "/manager.sock")) == SocketState::Alive;
  if (manager && socketState(context.path(attach)) != SocketState::Alive) {
    context.finding(
        "attach-closed",
        "qgpu-manager runs, and nobody listens on " + attach + ": programs can't get their share",
        "restart qgpu-manager");
  }
  if (alive == 0) {
    context.finding("no-daemon",
                    "neither qgpu-manager nor qgpu-scheduler serves in " + context.options.runDir,
                    "start one: qgpu-manager, or systemctl start "
                    "qgpu-manager; on Kubernetes label the node qgpu-device-enable=enable");
  }
  checkLibrary(context);
}

void examineCertificates(DoctorContext& context) {
  for (const std::string daemon : {"qgpu-manager", "qgpu-scheduler"}) {
    const auto config = configOf(context, daemon);
    if (config) checkCertificate(context, daemon, *config);
  }
  const DoctorOptions& options = context.options;
  if (options.cert.empty()) return;
  checkPair(context, "the certificate " + options.cert, {options.cert, options.key, options.ca},
            "what was said, or QGPU_TLS_CERT");
}

Diagnosis examine(const DoctorOptions& options, const std::string& version) {
  Diagnosis diagnosis;
  DoctorContext context{options, diagnosis};
  examineMachine(context);
  examineHost(context);
  examineDaemons(context, version);
  examineNode(context);
  examineCertificates(context);
  examineKubelet(context);
  examineKubeScheduler(context);
  return diagnosis;
}

std::string doctorTable(const Diagnosis& diagnosis, Telling telling) {
  std::string out;
  if (telling == Telling::All) {
    Table facts({{"FACT"}, {"VALUE"}});
    for (const Fact& fact : diagnosis.facts) facts.add({fact.name, fact.value});
    out = diagnosis.facts.empty() ? "" : facts.text() + "\n";
    for (const std::string& well : diagnosis.well) append(out, "[ok]   " + printable(well));
  }
  for (const Finding& finding : diagnosis.findings) {
    append(out, (finding.isWarning() ? "[warn] " : "[fail] ") + printable(finding.code) + ": " +
                    printable(finding.what));
    append(out, "         fix: " + printable(finding.fix));
  }
  if (diagnosis.findings.empty() && telling == Telling::All) {
    append(out, "nothing found that would break qgpu here");
  }
  return out;
}

std::string doctorJson(const Diagnosis& diagnosis) {
  JsonWriter json;
  json.beginObject().flag("ok", !diagnosis.somethingBroken()).key("facts").beginArray();
  for (const Fact& fact : diagnosis.facts) {
    json.beginObject().field("name", fact.name).field("value", fact.value).endObject();
  }
  json.endArray().key("well").beginArray();
  for (const std::string& well : diagnosis.well) json.string(well);
  json.endArray().key("findings").beginArray();
  for (const Finding& finding : diagnosis.findings) {
    json.beginObject().field("code", finding.code).field("what", finding.what);
    json.field("fix", finding.fix)
        .field("level", finding.isWarning() ? "warn" : "fail")
        .endObject();
  }
  json.endArray().endObject();
  return json.take() + "\n";
}

}  // namespace qgpu::ctl
