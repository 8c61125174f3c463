#pragma once
// A recording in memory, for tests and the simulator: written by a Recorder, read by a replay.

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "services/replay/recorder.h"
#include "services/replay/recording_file.h"

namespace qgpu::testing {

class MemoryRecording final : public RecordSink {
 public:
  bool takes() const override { return true; }
  void put(Words record) override { appendRecord(records_, record); }

  // The file that it would be. Its writer was killed where nobody put `ended`.
  std::string file() const {
    std::string sealed = records_;
    std::uint32_t sum = 0;
    seal(sealed, sum);
    return std::string(kRecordingMagic) + sealed;
  }

  static Result<std::unique_ptr<RecordingReader>> read(std::string file) {
    return RecordingReader::open(std::make_unique<std::istringstream>(std::move(file)),
                                 "recording");
  }

  // A whole file, its records changed one by one; those for which `keep` says false are left out.
  using Keep = std::function<bool(schema::Recorded::Builder)>;
  static std::string changed(const std::string& file, const Keep& keep) {
    MemoryRecording to;
    auto from = read(file);
    QGPU_CHECK(from, "the file is whole");
    for (; (*from)->at() == RecordingReader::At::Record; (*from)->next()) {
      capnp::MallocMessageBuilder message;
      message.setRoot((*from)->record());
      if (keep(message.getRoot<schema::Recorded>())) to.put(flatten<schema::Recorded>(message));
    }
    return to.file();
  }

 private:
  std::string records_;
};

}  // namespace qgpu::testing
