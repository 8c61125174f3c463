#include <cstdint>
#include <cstdio>
#include <optional>
#include <signal.h>
#include <string>
#include <utility>

#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/run.h"
#include "services/ctl/server.h"
#include "services/ctl/submit.h"
#include "services/ctl/task_guard.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kNodeLimit = seconds(10);

// For CMD, to have it as whoever started us had it: an RPC connection makes the process ignore it,
// and what is ignored stays so over exec().
class PipeSignal {
 public:
  PipeSignal() { ::sigaction(SIGPIPE, nullptr, &before_); }
  void restore() const { ::sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

void sayThatItWaits(const Answer& answer) {
  std::fprintf(stderr, "qgpuctl: task %llu waits for its place (ctrl-c ends it): %s\n",
               static_cast<unsigned long long>(waitingTask(answer)),
               printable(textOf(answer.root(), "reason")).c_str());
}

// Before anything is asked that would have to be ended.
Status schedulerAnswers(const Options& options) {
  auto asker = reach(options);
  if (!asker) return asker.error();
  const Result<Answer> status = (*asker)->ask(askFor("status"), kNodeLimit);
  return status ? ok() : Status(status.error());
}

// The name of this machine's node.
Result<std::string> nodeHere(Client& manager) {
  const Result<Answer> status = answerTo(manager, askFor("status"), kNodeLimit);
  if (!status) return status.error();
  return textOf(status->root(), "node");
}

int noNodeHere(const Error& error) {
  return refuseRun(error.message,
                   "CMD needs a manager here that has joined the scheduler (qgpu-manager "
                   "--scheduler=ADDR); or run it on a machine of `qgpuctl nodes`");
}

// Two clusters may have nodes of the same name: it is ours if its task is.
Result<bool> isHere(Client& manager, const std::string& here, Value assigned) {
  if (textOf(assigned, "node") != here) return false;
  const Result<Answer> tasks = answerTo(manager, askFor("tasks"), kNodeLimit);
  if (!tasks) return tasks.error();
  for (const Value task : listOf(tasks->root(), "tasks")) {
    if (numberOf(task, "id") == numberOf(assigned, "node_task")) return true;
  }
  return false;
}

std::string cardsOf(Value assigned) {
  std::string cards;
  for (const Value card : listOf(assigned, "cards")) {
    cards += (cards.empty() ? "" : ", ") + printable(card.text().value_or(""));
  }
  return cards;
}

// helpFor() speaks of one node.
std::string helpInCluster(const Error& error) {
  if (error.code == ErrorCode::Infeasible) return "";
  return error.code == ErrorCode::NotFound ? "`qgpuctl nodes` lists the nodes" : helpFor(error);
}

// "task 7 was placed on node a (sim-0)"
std::string placeOf(Value assigned) {
  return "task " + std::to_string(numberOf(assigned, "task")) + " was placed on node " +
         printable(textOf(assigned, "node")) + " (" + cardsOf(assigned) + ")";
}

constexpr const char* kWasEnded = ": it was ended, and nothing was started";

int placedElsewhere(const std::string& here, Value assigned) {
  const std::string node = printable(textOf(assigned, "node"));
  return refuseRun(placeOf(assigned) + ", which is not this machine" + kWasEnded,
                   "start it there, on " + node + ": the same command with --node " + node +
                       "; to keep it on this machine say --node " + here);
}

int nodeIsUnsure(Value assigned, const Error& error) {
  return refuseRun(placeOf(assigned) + ", and the manager here does not say whether it has it (" +
                       error.message + ")" + kWasEnded,
                   "try again");
}

int endedWhileItWaited(std::uint64_t task) {
  return refuseRun("task " + std::to_string(task) + " was ended while it waited", "");
}

}  // namespace

int runInCluster(const Options& options) {
  const PipeSignal pipeSignal;
  const Result<std::string> library = libraryOfPrograms();
  if (!library) return refuseRun(library.error().message, "QGPU_LIB names libqgpu.so");
  if (const Status there = schedulerAnswers(options); !there) {
    return refuseRun(there.error().message,
                     options.server.empty() ? "start one: " + startLine(options.socket) : "");
  }
  Client manager(options.nodeSocket);
  const Result<std::string> here = nodeHere(manager);
  if (!here) return noNodeHere(here.error());
  manager.close();  // TaskGuard wants no connection, and the task may wait for long
  Ask ask = options.ask;
  ask.row = &commandRow("submit");
  nameRequest(ask.said);
  auto guard = TaskGuard::start(options, ask);
  if (!guard) return refuseRun(guard.error().message, "");
  std::uint64_t waited = 0;
  const Result<Answer> answer = submitTask(options, ask, [&](const Answer& waits) {
    guard->learn(waitingTask(waits));
    if (std::exchange(waited, waitingTask(waits)) == 0) sayThatItWaits(waits);
  });
  // What isn't known the guard asks for. What has waited it deletes, whatever the last refusal was.
  const std::optional<std::uint64_t> task = taskOf(answer);
  if (task && (*task != 0 || waited == 0)) guard->learn(*task);
  if (!answer) return refuseRun(answer.error().message, "");
  const Result<BoundTask> bound = parseBound(*answer);
  if (!bound) {
    const bool ended = waited != 0 && bound.error().code == ErrorCode::Conflict;
    return ended ? endedWhileItWaited(waited)
                 : refuseRun(bound.error().message, helpInCluster(bound.error()));
  }
  const Result<bool> ours = isHere(manager, *here, answer->root());
  if (!ours || !*ours) {
    guard->end();
    return ours ? placedElsewhere(*here, answer->root())
                : nodeIsUnsure(answer->root(), ours.error());
  }
  const Result<Environment> environment = environmentOf(*bound, *library, options.nodeSocket);
  if (!environment) return refuseRun(environment.error().message, "");
  pipeSignal.restore();
  return runProgram(options, *environment, manager, numberOf(answer->root(), "node_task"));
}

}  // namespace qgpu::ctl
