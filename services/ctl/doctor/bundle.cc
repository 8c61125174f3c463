#include "services/ctl/doctor/bundle.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "actors/base/event_log.h"
#include "runtime/fd.h"
#include "services/base/child_probe.h"
#include "services/base/json.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/doctor/doctor_look.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kReportAskLimit = seconds(10);
constexpr std::int64_t kEventsMs = 3'600'000;  // as far back as events are told
constexpr std::size_t kTokenDigits = 32;       // hexadecimal, of a task's token
constexpr std::size_t kArgumentsMax = 256;
constexpr const char* kLeftOut = "(left out)";
// Words of which a member's name may have one; answers have more than is asked for here one day.
constexpr std::array<std::string_view, 6> kSecretWords = {"token",    "env",    "secret",
                                                          "password", "bearer", "private"};

bool isSecret(std::string_view name) {
  return name == "key" || std::ranges::any_of(kSecretWords, [&](std::string_view word) {
           return name.find(word) != std::string_view::npos;
         });
}

void tell(Value value, std::size_t depth, std::string& to) {
  constexpr std::size_t kLinesTo = 2;  // deeper ones stay on their line
  const std::string between = depth < kLinesTo ? ",\n" : ",";
  std::size_t told = 0;
  if (value.isObject()) {
    to += '{';
    for (const Value member : value) {
      const std::string_view name = member.key();
      if (told++ > 0) to += depth == 0 ? between : ",";
      appendJsonString(to, name);
      to += ':';
      if (isSecret(name)) {
        appendJsonString(to, kLeftOut);
      } else {
        tell(member, depth + 1, to);
      }
    }
    to += '}';
  } else if (value.isList()) {
    to += '[';
    for (const Value entry : value) {
      if (told++ > 0) to += between;
      tell(entry, depth + 1, to);
    }
    to += ']';
  } else {
    to += jsonOf(value);
  }
}

void section(std::string& report, const std::string& title, const std::string& text) {
  report += "\n== " + title + "\n" + text;
  if (!report.ends_with('\n')) report += '\n';
}

std::string orNothing(std::string text) {
  return text.empty() ? "(nothing)" : text;
}

std::string told(const Result<Answer>& answer) {
  if (!answer) return "(no answer: " + answer.error().message + ")";
  return tellable(answer->root());
}

// Those of the last hour; a daemon keeps so many.
std::string eventsOf(Client& client) {
  std::string lines;
  const std::int64_t oldest = unixMsNow() - kEventsMs;
  std::uint64_t since = 0;
  for (std::size_t page = 0; page <= EventLog::kKept / EventLog::kPerReply; ++page) {
    const Result<Answer> answer =
        client.askLine("events " + std::to_string(since), kReportAskLimit);
    if (!answer) return lines + told(answer);
    const std::vector<Value> events = listOf(answer->root(), "events");
    if (events.empty()) break;
    for (const Value event : events) {
      since = numberOf(event, "seq");
      if (static_cast<std::int64_t>(numberOf(event, "unix_ms")) < oldest) continue;
      tell(event, 2, lines);
      lines += '\n';
    }
  }
  return orNothing(lines);
}

// Arguments of a process that runs this program as root or as this user; without any where it is
// somebody else's, whose words are no flags of ours.
std::vector<std::string> argumentsOf(const DoctorOptions& options, std::uint64_t pid,
                                     const std::string& program) {
  const std::string process =
      (options.root == "/" ? "" : options.root) + "/proc/" + std::to_string(pid);
  std::array<char, 4096> exe{};
  struct stat info {};
  if (::stat(process.c_str(), &info) != 0 || (info.st_uid != 0 && info.st_uid != ::geteuid()) ||
      ::readlink((process + "/exe").c_str(), exe.data(), exe.size() - 1) <= 0 ||
      !std::string_view(exe.data()).ends_with("/" + program)) {
    return {};
  }
  std::vector<std::string> words;
  const std::string line = readWhole(process + "/cmdline").value_or("");
  for (std::size_t at = 0; at < line.size() && words.size() < kArgumentsMax;) {
    const std::size_t end = std::min(line.find('\0', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// What the daemon says of its configuration: the program beside this one, with its arguments.
Result<std::string> configurationOf(const std::string& program, std::vector<std::string> words) {
  if (words.empty()) {
    return fail(ErrorCode::Denied, "its process is not to be read by this user: try as root");
  }
  words.emplace_back("--print-config");
  words[0] = binaryFolder() + "/" + program;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return askInChild(program, program + " --print-config", kReportAskLimit, [&](int out) {
    ::dup2(out, STDOUT_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  });
}

// HOST:PORT of the configuration's line for `key`, which may be the default's.
std::string addressIn(const std::string& configuration, const std::string& key) {
  const std::string line = key + " = \"";
  for (const std::string& begin : {"\n" + line, "\n#" + line}) {
    const std::size_t at = configuration.find(begin);
    if (at == std::string::npos) continue;
    const std::size_t from = at + begin.size();
    return configuration.substr(from, configuration.find('"', from) - from);
  }
  return "";
}

void tellDaemon(std::string& report, const DoctorOptions& options, const std::string& daemon) {
  const std::string program = "qgpu-" + daemon;
  const std::string socket = options.path(options.runDir + "/" + daemon + ".sock");
  if (socketState(socket) != SocketState::Alive) {
    return section(report, program, "(does not serve in " + options.runDir + ")");
  }
  Client client(socket);
  const Result<Answer> status = client.askLine("status", kReportAskLimit);
  section(report, program + ": status", told(status));
  for (const std::string list : {"nodes", "cards", "tasks"}) {
    if (list == "nodes" && daemon == "manager") continue;
    section(report, program + ": " + list, told(client.askLine(list, kReportAskLimit)));
  }
  section(report, program + ": events of the last hour", eventsOf(client));
  const std::uint64_t pid = status ? numberOf(status->root(), "pid") : 0;
  const auto configuration = configurationOf(program, argumentsOf(options, pid, program));
  section(report, program + ": configuration",
          configuration ? *configuration : "(not known: " + configuration.error().message + ")");
  const std::string address = configuration ? addressIn(*configuration, "http") : "";
  const auto metrics = fetch(address, "/metrics", kReportAskLimit);
  section(report, program + ": metrics",
          metrics ? *metrics : "(not known: " + metrics.error().message + ")");
}

void tellMachine(std::string& report, const DoctorOptions& options) {
  for (const char* file : {"/proc/version", "/proc/driver/nvidia/version", "/etc/os-release",
                           "/proc/meminfo", "/proc/pressure/cpu", "/proc/loadavg"}) {
    section(report, file, orNothing(readWhole(options.path(file)).value_or("")));
  }
  std::string modules;
  const std::string loaded = "\n" + readWhole(options.path("/proc/modules")).value_or("");
  for (std::size_t at = 0; (at = loaded.find("\nn", at)) != std::string::npos; ++at) {
    const std::string line = loaded.substr(at + 1, loaded.find('\n', at + 1) - at);
    if (line.starts_with("nvidia") || line.starts_with("nouveau")) modules += line;
  }
  section(report, "/proc/modules: drivers of NVIDIA cards", orNothing(modules));
}

}  // namespace

std::string tellable(Value document) {
  std::string text;
  tell(document, 0, text);
  return text;
}

std::string withoutSecrets(std::string_view text) {
  constexpr std::string_view kBegin = "-----BEGIN ", kPrivate = "PRIVATE KEY-----";
  constexpr std::size_t kHeadMax = 64;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const std::size_t named =
        rest.starts_with(kBegin) ? rest.substr(0, kHeadMax).find(kPrivate) : std::string_view::npos;
    if (named != std::string_view::npos) {
      out += kLeftOut;
      const std::size_t end = rest.find(kPrivate, named + 1);
      if (end == std::string_view::npos) return out + '\n';
      at += end + kPrivate.size();
      continue;
    }
    const std::size_t digits =
        std::min(rest.find_first_not_of("0123456789abcdefABCDEF"), rest.size());
    if (digits >= kTokenDigits) {
      out += kLeftOut;
    } else {
      out += rest.substr(0, std::max<std::size_t>(digits, 1));
    }
    at += std::max<std::size_t>(digits, 1);
  }
  return out;
}

std::string reportOf(const DoctorOptions& options, const Diagnosis& diagnosis,
                     const std::string& version) {
  std::string report = "A report of qgpuctl " + version + ", made at " + rfc3339(unixMsNow()) +
                       ".\nTokens, keys and environments are left out. Names of nodes, tasks, "
                       "users and files are in it:\nlook it over before you send it.\n";
  section(report, "doctor", doctorTable(diagnosis));
  tellMachine(report, options);
  for (const char* daemon : {"manager", "scheduler"}) tellDaemon(report, options, daemon);
  return withoutSecrets(report);
}

Status writeReport(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) {
    return fail(ErrorCode::AlreadyExists, path + " is there already: name another file");
  }
  std::size_t at = 0;
  while (file && at < text.size()) {
    const ssize_t n = ::write(file.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  if (file && at == text.size()) return ok();
  const std::string why = std::strerror(errno);
  if (file) ::unlink(path.c_str());
  return fail(ErrorCode::Unavailable, "can't write " + path + ": " + why);
}

}  // namespace qgpu::ctl
