#pragma once
// A recording as bytes: one life of a scheduler (schema/recording.capnp).
//
//   qgpu-recording 1          a line; 1: format of this file
//                             then records: length, sum of the head, sum, bytes
//
// Numbers have 4 bytes, little-endian. Sums are CRC-32C and go on from record to record, so that a
// record that is missing, or stands elsewhere, is damage. A length has a sum of its own, so that a
// file that was cut (its writer was killed, the power went) is told from a damaged one.

#include <capnp/serialize.h>
#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/message_words.h"
#include "runtime/result.h"
#include "schema/recording.capnp.h"

namespace qgpu {

inline constexpr std::string_view kRecordingEnd = ".recording";  // of the names of such files
inline constexpr std::string_view kRecordingMagic = "qgpu-recording 1\n";
inline constexpr std::size_t kRecordBytesMax = 64UL << 20U;  // of one record

// Puts a record behind others, without sums.
void appendRecord(std::string& to, const Words& record);
// Gives the records of `batch` their sums; `sum`: that of the record before, 0 at the begin.
void seal(std::string& batch, std::uint32_t& sum);

// Reads one record after the other, checked as bytes of a disk are.
class RecordingReader {
 public:
  // At the first record. `name`: of the file, for errors. Corrupt, or Unsupported where a newer
  // qgpu wrote it.
  static Result<std::unique_ptr<RecordingReader>> open(std::unique_ptr<std::istream> in,
                                                       std::string name);
  RecordingReader(const RecordingReader&) = delete;
  RecordingReader& operator=(const RecordingReader&) = delete;

  enum class At : std::uint8_t {
    Record,
    End,     // behind the last
    Cut,     // in the middle of one
    Damage,  // see damage()
  };
  At at() const { return at_; }
  const Error& damage() const { return *damage_; }
  // Where at() is Record, until next().
  schema::Recorded::Reader record() const { return root_; }
  const Words& words() const { return words_; }
  void next();

  const std::string& name() const { return name_; }

 private:
  RecordingReader(std::unique_ptr<std::istream> in, std::string name)
      : in_(std::move(in)), name_(std::move(name)) {}
  std::size_t take(void* to, std::size_t size);
  void damaged(const std::string& why);
  bool restIsZero();

  const std::unique_ptr<std::istream> in_;
  const std::string name_;
  At at_ = At::Record;
  std::optional<Error> damage_;
  std::uint64_t number_ = 0;  // of the record, from 1
  std::uint64_t begin_ = 0;   // of the record, in bytes
  std::uint64_t end_ = 0;
  std::uint32_t sum_ = 0;
  Words words_;
  kj::ArrayPtr<const capnp::word> segment_;
  std::optional<capnp::SegmentArrayMessageReader> message_;
  schema::Recorded::Reader root_;
};

}  // namespace qgpu
