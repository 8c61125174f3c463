#include "services/attach/run_dir/survivors.h"

#include <capnp/message.h>
#include <set>
#include <string>

#include "schema/rows.capnp.h"
#include "services/attach/run_dir/attached_list.h"
#include "services/attach/run_dir/task_records.h"
#include "services/base/process.h"

namespace qgpu {
namespace {

// Tasks with a process that was attached and is alive.
Result<std::set<std::uint64_t>> attachedTasks(const std::string& runDir) {
  AttachedList list;
  if (Status opened = list.open(runDir); !opened) return opened.error();
  std::set<std::uint64_t> tasks;
  for (const AttachedEntry& entry : list.read()) {
    if (entry.task > INT64_MAX) continue;  // no manager gave it out
    const Result<Fd> process = openProcess(entry.pid, entry.start);
    if (!process) return process.error();
    if (*process) tasks.insert(entry.task);
  }
  return tasks;
}

Result<bool> ownerLives(schema::TaskRow::Reader row) {
  const auto spec = row.getSpec();
  if (spec.getOwnerPid() == 0) return false;
  const Result<Fd> owner = openProcess(spec.getOwnerPid(), spec.getOwnerStart());
  if (!owner) return owner.error();
  return static_cast<bool>(*owner);
}

}  // namespace

Result<Survivors> findSurvivors(const std::string& runDir) {
  const Result<std::set<std::uint64_t>> attached = attachedTasks(runDir);
  if (!attached) return attached.error();
  TaskRecords records;
  if (Status opened = records.open(runDir); !opened) return opened.error();

  Survivors found;
  std::set<std::uint64_t> living = *attached;
  std::set<std::string> tokens;
  for (const std::uint64_t task : records.list()) {
    Result<StoredRow> stored = records.read(task);
    if (!stored) {
      found.unusable.push_back(stored.error().message);
      if (stored.error().code == ErrorCode::Corrupt) records.remove(task);
      continue;
    }
    const auto row = capnp::readMessageUnchecked<schema::Row>(stored->words.data()).getTask();
    const Result<bool> owned = ownerLives(row);
    if (!owned) return owned.error();
    if (!*owned && !attached->contains(task)) {
      records.remove(task);
      continue;
    }
    living.insert(task);
    if (!tokens.insert(row.getToken().cStr()).second) {
      found.unusable.push_back("the record of task " + std::to_string(task) +
                               " has the token of another task");
      continue;
    }
    found.tasks.push_back(std::move(*stored));
  }
  found.living.assign(living.begin(), living.end());
  if (!living.empty()) found.lastTask = *living.rbegin();
  return found;
}

}  // namespace qgpu
