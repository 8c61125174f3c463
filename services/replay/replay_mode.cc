#include "services/replay/replay_mode.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "runtime/loop.h"
#include "services/api/commands/cluster_render.h"
#include "services/base/wall_time.h"
#include "services/replay/replay.h"

namespace qgpu {
namespace {

Result<std::vector<std::string>> recordingsAt(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().string().ends_with(kRecordingEnd)) found.push_back(entry.path().string());
  }
  if (error) {
    return fail(ErrorCode::Unavailable, "--replay: can't read " + path + ": " + error.message());
  }
  if (found.empty()) {
    return fail(ErrorCode::NotFound, "--replay: " + path + " has no recording: name the folder " +
                                         "that a scheduler was given as --record");
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::unique_ptr<SchedulerReplay>> openReplay(const std::string& path) {
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file) {
    return fail(ErrorCode::NotFound, "--replay: can't read " + path + ": " + std::strerror(errno));
  }
  auto reader = RecordingReader::open(std::move(file), path);
  if (!reader) return reader.error();
  return SchedulerReplay::open(std::move(*reader));
}

// Another binary may well decide otherwise, which is no fault of the recording.
void warnOfAnother(const RecordedLife& life, const ReplayOrder& order, const std::string& path) {
  if (life.version.empty()) return;
  std::string who;
  if (life.version != order.version) {
    who = "qgpu " + life.version + ", and this is " + order.version;
  } else if (life.build != order.build) {
    who = "another build of qgpu " + life.version + " than this";
  }
  if (who.empty()) return;
  std::fprintf(stderr, "qgpu-scheduler: warning: %s was recorded by %s: it may decide otherwise\n",
               path.c_str(), who.c_str());
}

std::string endOf(const Replayed& seen, std::int64_t until) {
  if (!seen.difference.empty()) return "It was not replayed further.";
  if (!seen.ended.empty()) return "The recording ends: " + seen.ended + ".";
  if (seen.cut) return "The recording is cut there: the scheduler was killed, or its machine.";
  return "Later turns than " + rfc3339(until) + " were left out.";
}

void print(const Replayed& seen, const RecordedLife& life, const ReplayOrder& order, Nanos took) {
  std::printf("  %llu turns, %llu rows stored, %llu orders to nodes; replayed in %.3f s\n",
              static_cast<unsigned long long>(seen.turns),
              static_cast<unsigned long long>(seen.rows),
              static_cast<unsigned long long>(seen.orders), static_cast<double>(took.value) / 1e9);
  if (seen.turns > 0) {
    std::printf("  on %s from %s to %s\n", life.host.c_str(),
                rfc3339Micro(seen.firstUnixMs).c_str(), rfc3339Micro(seen.lastUnixMs).c_str());
  }
  std::printf("  %s\n", endOf(seen, order.untilUnixMs).c_str());
}

Status explain(SchedulerReplay& replay, std::uint64_t task) {
  const auto answer =
      replay.ask([task](schema::ClusterRequest::Builder request) { request.setExplain(task); });
  if (!answer) return answer.error();
  const auto reply = capnp::readMessageUnchecked<schema::ClusterReply>(answer->data());
  std::printf("%s\n", renderClusterReply(reply).c_str());
  return ok();
}

Result<SameAgain> replayOne(const ReplayOrder& order, const std::string& path) {
  const Nanos began = monotonicNow();
  auto replay = openReplay(path);
  if (!replay) return replay.error();
  warnOfAnother((*replay)->life(), order, path);
  const Status ran = (*replay)->run(order.untilUnixMs);
  const Replayed& seen = (*replay)->seen();
  const bool same = seen.difference.empty();
  std::printf("%s: %s\n", path.c_str(), same ? "the same as recorded" : seen.difference.c_str());
  print(seen, (*replay)->life(), order, monotonicNow() - began);
  if (!ran) return ran.error();
  if (!same) return SameAgain::No;
  if (order.explain == 0) return SameAgain::Yes;
  if (const Status told = explain(**replay, order.explain); !told) return told.error();
  return SameAgain::Yes;
}

}  // namespace

Result<SameAgain> replayAll(const ReplayOrder& order) {
  const auto paths = recordingsAt(order.path);
  if (!paths) return paths.error();
  SameAgain all = SameAgain::Yes;
  for (const std::string& path : *paths) {
    const auto one = replayOne(order, path);
    if (!one) return one.error();
    if (*one == SameAgain::No) all = SameAgain::No;
  }
  return all;
}

}  // namespace qgpu
