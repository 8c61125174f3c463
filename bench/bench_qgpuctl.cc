// Claim: a command of qgpuctl that lists takes less than 30 ms with 1,000 tasks, from its start to
// its end, as a person waits for it: process, libraries, question, answer, table. A real scheduler
// and a real manager with simulated cards have the tasks. Prints one JSON line.
// --tasks=N, --runs=N.
//
// Limits of the same run: `true`, a process that does nothing; `read`, one that connects to the
// manager, asks for the tasks and reads the answer to its end, with no library but libc and
// libstdc++; `version`, qgpuctl that asks nobody. `top` is shown without the interval of 100 ms
// that it looks at.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <spawn.h>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"
#include "tests/testing/private_daemon.h"

namespace qgpu::bench {
namespace {

constexpr auto kServesWithin = std::chrono::seconds(60);
constexpr double kTopIntervalMs = 100;
constexpr const char* kTask = R"(submit {"name":"train","memory":"512MiB","core_percent":1})";
constexpr const char* kRead = "--read";  // of ourselves: the limit of this name

struct Case {
  std::string name;
  std::vector<std::string> argv;
  double less = 0;  // ms that it waits on purpose
};

struct Took {
  double ms = 0;   // from the start of the process to its end; negative: it did not end well
  double cpu = 0;  // of it, which others on the machine change less
};

Took once(const Case& one) {
  std::vector<char*> argv;
  for (const std::string& word : one.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const auto begun = std::chrono::steady_clock::now();
  pid_t pid = 0;
  rusage use{};
  int status = ::posix_spawnp(&pid, argv[0], &files, nullptr, argv.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (status == 0 && ::wait4(pid, &status, 0, &use) != pid) status = -1;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  const auto ms = [](timeval t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return {status == 0 ? took.count() - one.less : -1, ms(use.ru_utime) + ms(use.ru_stime)};
}

// `"name":{"p50":..,"p99":..,"cpu_p50":..}` of so many runs; empty: one did not end well.
std::string measured(const Case& one, int runs) {
  if (once(one).ms < 0) return "";  // the first has files to read
  std::vector<double> took, cpu;
  for (int i = 0; i < runs; ++i) {
    const Took run = once(one);
    if (run.ms < 0) return "";
    took.push_back(run.ms);
    cpu.push_back(run.cpu);
  }
  std::sort(took.begin(), took.end());
  std::sort(cpu.begin(), cpu.end());
  const auto at = [&](std::size_t permille) { return took[(took.size() - 1) * permille / 1000]; };
  char text[128];
  std::snprintf(text, sizeof text, "\"%s\":{\"p50\":%.1f,\"p99\":%.1f,\"cpu_p50\":%.1f}",
                one.name.c_str(), at(500), at(990), cpu[cpu.size() / 2]);
  return text;
}

std::vector<Case> cases(const std::string& ctl, const std::string& manager,
                        const std::string& scheduler, const std::string& self,
                        const std::string& task) {
  std::vector<Case> all = {
      {"true", {"/bin/true"}}, {"read", {self, kRead, manager}}, {"version", {ctl, "version"}}};
  const auto add = [&](std::string name, const std::string& socket,
                       std::vector<std::string> words) {
    words.insert(words.begin(), {ctl, "--socket", socket});
    all.push_back({std::move(name), std::move(words)});
  };
  for (const char* list : {"status", "tasks", "cards", "events"}) add(list, manager, {list});
  add("tasks_json", manager, {"-o", "json", "tasks"});
  add("top", manager, {"top", "--once", "--interval", "0.1"});
  all.back().less = kTopIntervalMs;
  for (const char* list : {"nodes", "tasks", "cards", "events"}) {
    add(std::string("cluster_") + list, scheduler, {list});
  }
  add("cluster_explain", scheduler, {"explain", task});
  add("cluster_what_if", scheduler, {"what-if", "place", "--memory", "1", "--count", "20"});
  return all;
}

// The limit: what the daemon says of its tasks, read and looked at by nobody.
int readTasks(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 1;
  if (::send(fd, "tasks\n", 6, MSG_NOSIGNAL) != 6) return 1;
  static char part[64 * 1024];
  while (true) {
    const ssize_t n = ::recv(fd, part, sizeof part, 0);
    if (n <= 0) return 1;
    if (part[n - 1] == '\n') return 0;
  }
}

// The number of the last one; empty: one was refused.
std::string submitAll(const std::string& scheduler, int tasks) {
  const std::string mark = "{\"ok\":true,\"task\":";
  std::string task;
  for (int i = 0; i < tasks; ++i) {
    const std::string answer = testing::askSocket(scheduler, kTask);
    if (!answer.starts_with(mark)) {
      std::fprintf(stderr, "a task was refused: %s\n", answer.c_str());
      return "";
    }
    task = answer.substr(mark.size(), answer.find(',', mark.size()) - mark.size());
  }
  return task;
}

int measure(int tasks, int runs, const std::string& self) {
  testing::PrivateDaemon scheduler("scheduler", testing::TempFolder("ctl-s"),
                                   {"--kubernetes=off", "--rpc=127.0.0.1:0"});
  scheduler.launch();
  testing::PrivateDaemon manager("manager", testing::TempFolder("ctl-m"),
                                 {"--cards=sim:64x64", "--max-tasks-per-card=64", "--nodename=here",
                                  "--scheduler=unix:" + scheduler.runDir() + "/scheduler.rpc"});
  manager.launch();
  const bool serve = scheduler.awaitService(kServesWithin) && manager.awaitService(kServesWithin);
  const auto joined = [&] {
    return testing::askSocket(manager.socket(), "status").find("\"joined:") != std::string::npos;
  };
  if (!serve || !testing::eventually(joined)) {
    std::fprintf(stderr, "they did not come up: %s%s\n", scheduler.log().c_str(),
                 manager.log().c_str());
    return 1;
  }
  const std::string task = submitAll(scheduler.socket(), tasks);
  if (task.empty()) return 1;
  const std::string ctl = self.substr(0, self.rfind('/')) + "/qgpuctl";
  std::string line;
  for (const Case& one : cases(ctl, manager.socket(), scheduler.socket(), self, task)) {
    const std::string part = measured(one, runs);
    if (part.empty()) return std::fprintf(stderr, "%s did not end well\n", one.name.c_str()), 1;
    line += "," + part;
  }
  std::printf("{\"bench\":\"qgpuctl\",\"tasks\":%d,\"runs\":%d,\"unit\":\"ms\"%s}\n", tasks, runs,
              line.c_str());
  return 0;
}

std::string ownPath() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return {path, length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == qgpu::bench::kRead) {
    return qgpu::bench::readTasks(argv[2]);
  }
  int tasks = 1000, runs = 200;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--tasks="))
      tasks = std::max(1, std::atoi(word.c_str() + 8));
    else if (word.starts_with("--runs="))
      runs = std::max(1, std::atoi(word.c_str() + 7));
    else
      return std::fprintf(stderr, "bench_qgpuctl [--tasks=N] [--runs=N]\n"), 2;
  }
  return qgpu::bench::measure(tasks, runs, qgpu::bench::ownPath());
}
