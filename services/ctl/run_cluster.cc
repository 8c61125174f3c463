#include <cstdio>
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

// The name of this machine's node; empty where no manager answers.
std::string nodeHere(Client& manager) {
  const Result<Answer> status = manager.ask(askFor("status"), kNodeLimit);
  return status ? textOf(status->root(), "node") : "";
}

// Two clusters may have nodes of the same name: it is ours if its task is.
bool isHere(Client& manager, const std::string& here, Value assigned) {
  if (here.empty() || textOf(assigned, "node") != here) return false;
  const Result<Answer> tasks = manager.ask(askFor("tasks"), kNodeLimit);
  if (!tasks) return false;
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

int placedElsewhere(const Options& options, const std::string& here, Value assigned) {
  const std::string node = printable(textOf(assigned, "node"));
  const std::string keep = here.empty() ? "no manager answers here at " + options.nodeSocket
                                        : "to keep it on this machine say --node " + here;
  return refuseRun(
      "task " + std::to_string(numberOf(assigned, "task")) + " was placed on node " + node + " (" +
          cardsOf(assigned) + "), which is not this machine: it was ended, and nothing was started",
      "start it there, on " + node + ": the same command with --node " + node + "; " + keep);
}

}  // namespace

int runInCluster(const Options& options) {
  const Result<std::string> library = libraryOfPrograms();
  if (!library) return refuseRun(library.error().message, "QGPU_LIB names libqgpu.so");
  if (const Status there = schedulerAnswers(options); !there) {
    return refuseRun(there.error().message,
                     options.server.empty() ? "start one: " + startLine(options.socket) : "");
  }
  Ask ask = options.ask;
  ask.row = &commandRow("submit");
  nameRequest(ask.said);
  auto guard = TaskGuard::start(options, ask);
  if (!guard) return refuseRun(guard.error().message, "");
  bool told = false;
  const Result<Answer> answer = submitTask(options, ask, [&](const Answer& waits) {
    guard->learn(waitingTask(waits));
    if (!std::exchange(told, true)) sayThatItWaits(waits);
  });
  if (!answer) return refuseRun(answer.error().message, "");
  const Result<BoundTask> bound = parseBound(*answer);
  if (!bound) {
    guard->learn(0);
    return refuseRun(bound.error().message, helpInCluster(bound.error()));
  }
  if (!told) guard->learn(bound->id);
  Client manager(options.nodeSocket);
  const std::string here = nodeHere(manager);
  if (!isHere(manager, here, answer->root())) {
    guard->end();
    return placedElsewhere(options, here, answer->root());
  }
  const Result<Environment> environment = environmentOf(*bound, *library, options.nodeSocket);
  if (!environment) return refuseRun(environment.error().message, "");
  return runProgram(options, *environment, manager, numberOf(answer->root(), "node_task"));
}

}  // namespace qgpu::ctl
