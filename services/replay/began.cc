#include "services/replay/began.h"

#include "services/replay/recorder.h"

namespace qgpu {
namespace {

void writeOptions(const SchedulerOptions& options, schema::DecisionOptions::Builder to) {
  to.setVersion(options.version);
  to.setPid(options.pid);
  to.setPriority(word(options.priority));
  to.setFirstTask(options.firstTask);
  to.setRebuilds(options.rebuilds);
  to.setEndedKept(options.endedKept);
  to.setBeatNs(options.times.beat.value);
  to.setLeaseNs(options.times.lease.value);
  to.setFenceNs(options.times.fence.value);
  to.setAssumeMaxNs(options.assumeMax.value);
  to.setRefusedPauseNs(options.refusedPause.value);
  to.setLookEveryNs(options.lookEvery.value);
  to.setProbeEveryNs(options.probeEvery.value);
  to.setReportMsMax(options.reportMsMax);
}

}  // namespace

std::vector<Words> recordsOf(const RecordedLife& life, const SchedulerOptions& options,
                             const std::vector<StoredRow>& rows) {
  ScratchBuilder scratch;
  std::vector<Words> records;
  records.reserve(rows.size() + 1);
  records.push_back(recordOf(scratch, [&](schema::Recorded::Builder to) {
    auto began = to.initBegan();
    began.setVersion(life.version);
    began.setBuild(life.build);
    began.setHost(life.host);
    began.setUnixMs(life.unixMs);
    began.setUnixMsAtZero(options.unixMsAtZero());
    began.setSeed(life.seed);
    began.setSelf(static_cast<std::uint32_t>(life.self));
    began.setLinks(static_cast<std::uint32_t>(life.peers.links));
    writeOptions(options, began.initOptions());
  }));
  for (const StoredRow& row : rows) {
    records.push_back(recordOf(scratch, [&](schema::Recorded::Builder to) {
      auto keyed = to.initRow();
      keyed.setKind(static_cast<std::uint16_t>(row.key.kind));
      keyed.setId(row.key.id);
      keyed.setRow(readRow(row));
    }));
  }
  return records;
}

RecordedLife readLife(schema::Began::Reader began) {
  RecordedLife life;
  life.version = text(began.getVersion());
  life.build = text(began.getBuild());
  life.host = text(began.getHost());
  life.unixMs = began.getUnixMs();
  life.seed = began.getSeed();
  life.self = static_cast<ActorId>(began.getSelf());
  life.peers.links = static_cast<ActorId>(began.getLinks());
  return life;
}

SchedulerOptions readOptions(schema::DecisionOptions::Reader recorded) {
  SchedulerOptions options;
  options.version = text(recorded.getVersion());
  options.pid = recorded.getPid();
  options.priority = readScore(recorded.getPriority());
  options.firstTask = recorded.getFirstTask();
  options.rebuilds = recorded.getRebuilds();
  options.endedKept = recorded.getEndedKept();
  options.times.beat = Nanos(recorded.getBeatNs());
  options.times.lease = Nanos(recorded.getLeaseNs());
  options.times.fence = Nanos(recorded.getFenceNs());
  options.assumeMax = Nanos(recorded.getAssumeMaxNs());
  options.refusedPause = Nanos(recorded.getRefusedPauseNs());
  options.lookEvery = Nanos(recorded.getLookEveryNs());
  options.probeEvery = Nanos(recorded.getProbeEveryNs());
  options.reportMsMax = recorded.getReportMsMax();
  return options;
}

StoredRow readRecordedRow(schema::KeyedRow::Reader recorded) {
  return {{static_cast<RowKind>(recorded.getKind()), recorded.getId()}, flatten(recorded.getRow())};
}

}  // namespace qgpu
