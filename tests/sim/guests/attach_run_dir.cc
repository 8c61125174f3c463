#include "tests/sim/guests/attach_run_dir.h"

#include <capnp/message.h>

#include "runtime/message.h"

namespace qgpu::sim {

void RunDir::remove(const AttachedEntry& entry) {
  std::erase_if(attached, [&](const AttachedEntry& other) {
    return other.pid == entry.pid && other.start == entry.start;
  });
}

void RunDir::record(schema::TaskRow::Reader row) {
  capnp::MallocMessageBuilder message;
  message.initRoot<schema::Row>().setTask(row);
  records[row.getId()] = {{RowKind::Task, row.getId()}, flatten<schema::Row>(message)};
}

void RunDir::recordEvicting(std::uint64_t task) {
  const auto found = records.find(task);
  if (found == records.end()) return;
  capnp::MallocMessageBuilder message;
  message.setRoot(capnp::readMessageUnchecked<schema::Row>(found->second.words.data()));
  message.getRoot<schema::Row>().getTask().setEvicting(true);
  found->second.words = flatten<schema::Row>(message);
}

}  // namespace qgpu::sim
