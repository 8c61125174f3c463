#include "services/replay/recording_file.h"

#include <algorithm>
#include <cstring>
#include <kj/exception.h>
#include <utility>

#include "store/crc32c.h"

namespace qgpu {
namespace {

struct RecordHead {
  std::uint32_t length = 0;  // of the bytes behind it
  std::uint32_t headSum = 0;
  std::uint32_t sum = 0;
};
static_assert(sizeof(RecordHead) == 12);

std::uint32_t headSumOf(std::uint32_t before, std::uint32_t length) {
  return crc32c(before, &length, sizeof length);
}

constexpr std::string_view kMagicStart = kRecordingMagic.substr(0, 15);  // without its number

}  // namespace

void appendRecord(std::string& to, const Words& record) {
  const std::size_t bytes = record.size() * sizeof(capnp::word);
  const RecordHead head{static_cast<std::uint32_t>(bytes), 0, 0};
  to.append(reinterpret_cast<const char*>(&head), sizeof head);
  to.append(reinterpret_cast<const char*>(record.data()), bytes);
}

void seal(std::string& batch, std::uint32_t& sum) {
  for (std::size_t at = 0; at < batch.size();) {
    RecordHead head;
    std::memcpy(&head, batch.data() + at, sizeof head);
    head.headSum = headSumOf(sum, head.length);
    sum = head.sum = crc32c(head.headSum, batch.data() + at + sizeof head, head.length);
    std::memcpy(batch.data() + at, &head, sizeof head);
    at += sizeof head + head.length;
  }
}

Result<std::unique_ptr<RecordingReader>> RecordingReader::open(std::unique_ptr<std::istream> in,
                                                               std::string name) {
  std::unique_ptr<RecordingReader> reader(new RecordingReader(std::move(in), std::move(name)));
  std::string magic(kRecordingMagic.size(), '\0');
  magic.resize(reader->take(magic.data(), magic.size()));
  if (magic.size() < kRecordingMagic.size() && kRecordingMagic.starts_with(magic)) {
    reader->at_ = At::Cut;
    return reader;
  }
  if (!magic.starts_with(kMagicStart)) {
    return fail(ErrorCode::Corrupt, reader->name() + " is no recording of qgpu");
  }
  if (magic != kRecordingMagic) {
    return fail(ErrorCode::Unsupported, reader->name() + " was written by a newer qgpu");
  }
  reader->next();
  return reader;
}

std::size_t RecordingReader::take(void* to, std::size_t size) {
  in_->read(static_cast<char*>(to), static_cast<std::streamsize>(size));
  const auto taken = static_cast<std::size_t>(in_->gcount());
  end_ += taken;
  return taken;
}

void RecordingReader::damaged(const std::string& why) {
  at_ = At::Damage;
  damage_ = fail(ErrorCode::Corrupt, name_ + " is damaged: record " + std::to_string(number_) +
                                         ", at byte " + std::to_string(begin_) + ", " + why);
}

// What a file system leaves that gave a file its length before its bytes.
bool RecordingReader::restIsZero() {
  char bytes[4'096];
  while (const std::size_t taken = take(bytes, sizeof bytes)) {
    if (std::any_of(bytes, bytes + taken, [](char byte) { return byte != 0; })) return false;
  }
  return true;
}

void RecordingReader::next() {
  ++number_;
  begin_ = end_;
  RecordHead head;
  const std::size_t taken = take(&head, sizeof head);
  if (taken < sizeof head) {
    at_ = taken == 0 ? At::End : At::Cut;
    return;
  }
  if (head.headSum != headSumOf(sum_, head.length)) {
    if (head.length == 0 && head.headSum == 0 && head.sum == 0 && restIsZero()) {
      at_ = At::Cut;
      return;
    }
    return damaged("has another checksum of its length");
  }
  if (head.length == 0 || head.length > kRecordBytesMax || head.length % sizeof(capnp::word) != 0) {
    return damaged("has an impossible length");
  }
  words_ = Words(head.length / sizeof(capnp::word));
  if (take(words_.data(), head.length) < head.length) {
    at_ = At::Cut;
    return;
  }
  sum_ = crc32c(head.headSum, words_.data(), head.length);
  if (sum_ != head.sum) return damaged("has another checksum");
  segment_ = kj::arrayPtr(words_.data(), words_.size());
  const auto failure = kj::runCatchingExceptions([&] {
    capnp::ReaderOptions limits;  // it is read a few times over
    limits.traversalLimitInWords += 16 * words_.size();
    message_.emplace(kj::arrayPtr(&segment_, 1), limits);
    root_ = message_->getRoot<schema::Recorded>();
  });
  if (failure != nullptr) damaged("does not decode");
}

}  // namespace qgpu
