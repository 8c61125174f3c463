#pragma once
// A row as the store has it, for tests that say what is in one.

#include <capnp/message.h>

#include "runtime/journal.h"
#include "schema/rows.capnp.h"

namespace qgpu {

template <typename Fill>
StoredRow makeRow(RowKey key, Fill&& fill) {
  capnp::MallocMessageBuilder message(4096);
  fill(message.initRoot<schema::Row>());
  const auto segment = message.getSegmentsForOutput()[0];
  return StoredRow{key, {segment.begin(), segment.end()}};
}

}  // namespace qgpu
