#pragma once
// The begin of a recording: which binary it was, and what its scheduler was made of.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/message.h"
#include "schema/recording.capnp.h"

namespace qgpu {

struct RecordedLife {
  std::string version;
  std::string build;  // of the binary, hexadecimal; empty: it has none
  std::string host;
  std::int64_t unixMs = 0;
  std::uint64_t seed = 0;  // of the actor's random numbers
  ActorId self{};
  SchedulerPeers peers;
};

// The first records of a file. Of `options` its clock is read once.
std::vector<Words> recordsOf(const RecordedLife& life, const SchedulerOptions& options,
                             const std::vector<StoredRow>& rows);

RecordedLife readLife(schema::Began::Reader began);
// Without a clock: SchedulerOptions::unixMsAtZero is who replays it.
SchedulerOptions readOptions(schema::DecisionOptions::Reader recorded);
StoredRow readRecordedRow(schema::KeyedRow::Reader recorded);

}  // namespace qgpu
