// What a manager that serves says of its cards and tasks: how holds are made and why, real-time
// priority, storage, the way to its scheduler, and what happened to tasks that are still there.

#include <algorithm>
#include <array>
#include <map>

#include "actors/base/event_kinds.h"
#include "actors/base/event_log.h"
#include "actors/ledger/card_name.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/doctor/doctor.h"
#include "services/ctl/doctor/doctor_look.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kNodeAskLimit = seconds(3);

std::string realtimeRemedy(const std::string& told) {
  const auto says = [&](const char* text) { return told.find(text) != std::string::npos; };
  if (says("sched_rt_runtime_us")) return "sysctl -w kernel.sched_rt_runtime_us=950000";
  if (says("in spite of")) {
    return "give its cgroup and those above cpu.rt_runtime_us, or take RestrictRealtime from its "
           "unit";
  }
  return "run it by its unit, which has CAP_SYS_NICE";
}

void checkRealtime(DoctorContext& context, Value status) {
  const std::string told = textOf(status, "realtime");
  if (told.empty()) return;
  if (told == "fifo") return context.well("the card loop has real-time priority (SCHED_FIFO)");
  if (told == "none") {
    return context.well("the card loop has no real-time priority: --realtime=off");
  }
  context.finding("realtime", "the card loop has no real-time priority: " + told,
                  realtimeRemedy(told) + "; then systemctl restart qgpu-manager");
}

void checkStanding(DoctorContext& context, Value status) {
  const std::string storage = textOf(status, "storage");
  if (storage == "ok") {
    context.well("the manager's database takes changes");
  } else if (!storage.empty()) {
    context.finding("storage-failed", "the manager's database takes nothing: " + storage,
                    "make room on the disk (df -h /var/lib/qgpu), or mend it; it goes on by "
                    "itself then");
  }
  const std::string cluster = textOf(status, "cluster");
  if (cluster.empty() || cluster == "none") return;
  if (cluster.starts_with("joined")) return context.well("its scheduler: " + cluster);
  context.finding("cluster-away", "the manager is no member of its cluster: " + cluster,
                  "see that the scheduler runs and is reached from here (qgpuctl nodes --server "
                  "ADDR), and the certificates above");
}

// Where no hold is made on the card itself, others wait for as long as a kernel takes.
void checkHold(DoctorContext& context, const std::string& name, Value card) {
  const std::string how = textOf(card, "suspend"), why = textOf(card, "suspend_why");
  const std::string because = why.empty() ? "" : ", since " + why;
  const bool chosen = why.find("--suspend") != std::string::npos;
  if (textOf(card, "backend") == "nvidia" && how == "gate" && !chosen) {
    context.finding("hold-weak", name + " is held by gates alone" + because,
                    "mend that and restart qgpu-manager, which tries again; or say --suspend=gate "
                    "where long kernels hurt nobody");
  } else if (!how.empty()) {
    const char* meaning = how == "rm"       ? "channels are taken off the card"
                          : how == "freeze" ? "threads of its kernels are stopped"
                                            : "launches wait";
    context.well(name + " (" + textOf(card, "model") + "): held by " + how + ", " + meaning +
                 because);
  }
}

void checkCards(DoctorContext& context, Value cards, const std::string& version) {
  if (!cards["cards"].isList()) return;
  const std::vector<Value> all = listOf(cards, "cards");
  if (all.empty()) {
    return context.finding("no-cards", "the manager has no card to share",
                           "see what it found: nvidia-smi -L, clinfo -l; and its --cards");
  }
  for (const Value card : all) {
    const std::string name =
        "card " +
        shortCardName(textOf(card, "id"), static_cast<std::uint32_t>(numberOf(card, "index")));
    checkHold(context, name, card);
    examineReport(context, card, version);
    const std::string state = textOf(card, "state");
    const std::string target = textOf(card, "id");
    if (state == "quarantined") {
      context.finding(
          "card-quarantined", name + " is quarantined: its work could not be held or ended",
          "qgpuctl tasks says whose it is: evict that; then qgpuctl uncordon " + target);
    } else if (state == "cordoned" || state == "draining") {
      context.finding("card-cordoned", name + " takes no new tasks: it is " + state,
                      "once it is well: qgpuctl uncordon " + target +
                          " (qgpuctl events --kind card-cordoned says who did it)");
    }
  }
}

struct OfTasks {
  EventKind kind;
  bool whileAway;  // over once a process of it is there
  const char* fix;
};
constexpr const char* kKeptOut =
    "where its program should use a card, look for what keeps libqgpu.so out of it: a program "
    "without glibc's loader, or an environment of its own";
constexpr std::array<OfTasks, 3> kOfTasks = {
    {{kTaskUnattached, true, kKeptOut},
     {kTaskUnheld, false, kKeptOut},
     {kMemoryRefused, false,
      "give it more (qgpuctl run --memory, in a pod qgpu-memory), or mend the program"}}};

// The last event of each task, by kind: its text.
using LastEvents = std::map<std::string, std::map<std::uint64_t, std::string>>;

LastEvents lastEvents(Client& client) {
  LastEvents last;
  std::uint64_t since = 0;
  for (std::size_t page = 0; page <= EventLog::kKept / EventLog::kPerReply; page++) {
    const Result<Answer> events = client.askLine("events " + std::to_string(since), kNodeAskLimit);
    const auto list = events ? listOf(events->root(), "events") : std::vector<Value>();
    if (list.empty()) break;
    for (const Value event : list) {
      since = numberOf(event, "seq");
      const std::string kind = textOf(event, "kind");
      const bool known = std::ranges::any_of(
          kOfTasks, [&](const OfTasks& one) { return one.kind == std::string_view(kind); });
      if (known) last[kind][numberOf(event, "task")] = textOf(event, "text");
    }
  }
  return last;
}

void checkTasks(DoctorContext& context, Client& client, Value tasks) {
  if (!tasks["tasks"].isList()) return;
  const std::vector<Value> all = listOf(tasks, "tasks");
  const LastEvents last = lastEvents(client);
  const std::size_t before = context.diagnosis.findings.size();
  for (const OfTasks& one : kOfTasks) {
    const auto kind = last.find(one.kind.name());
    if (kind == last.end()) continue;
    for (const Value task : all) {
      const auto found = kind->second.find(numberOf(task, "id"));
      if (found == kind->second.end()) continue;
      if (one.whileAway && numberOf(task, "processes") != 0) continue;
      context.finding(one.kind.name(),
                      "task " + std::to_string(found->first) + " (" + textOf(task, "name") +
                          "): " + found->second,
                      one.fix);
    }
  }
  for (const Value task : all) {
    if (!flagOf(task, "quarantined")) continue;
    const std::string id = std::to_string(numberOf(task, "id"));
    context.finding(
        "task-quarantined",
        "task " + id + " (" + textOf(task, "name") +
            ") did not let itself be held and gets no more turns: " + textOf(task, "note"),
        "qgpuctl evict " + id + ", and look at its program");
  }
  if (context.diagnosis.findings.size() > before) return;
  context.well(std::to_string(all.size()) +
               " tasks: none is quarantined, was refused memory, or went past the library");
}

}  // namespace

void examineNode(DoctorContext& context) {
  const std::string socket = context.path(context.options.runDir + "/manager.sock");
  if (socketState(socket) != SocketState::Alive) return;
  Client client(socket);
  const Result<Answer> status = client.askLine("status", kNodeAskLimit);
  if (!status || !status->status()) return;  // who does not answer was told of
  checkRealtime(context, status->root());
  checkStanding(context, status->root());
  const Result<Answer> cards = client.askLine("cards", kNodeAskLimit);
  if (cards && cards->status()) {
    checkCards(context, cards->root(), textOf(status->root(), "version"));
  }
  const Result<Answer> tasks = client.askLine("tasks", kNodeAskLimit);
  if (tasks && tasks->status()) checkTasks(context, client, tasks->root());
}

}  // namespace qgpu::ctl
