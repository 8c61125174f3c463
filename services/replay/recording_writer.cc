#include "services/replay/recording_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "runtime/whole_file.h"
#include "services/base/wall_time.h"
#include "services/replay/recording_file.h"

namespace qgpu {
namespace {

constexpr std::string_view kNameStart = "scheduler-";
constexpr const char* kStopped = "it was stopped";

Error cant(const char* what, const std::string& path) {
  return fail(ErrorCode::Unavailable,
              std::string("--record: can't ") + what + " " + path + ": " + std::strerror(errno));
}

// As names sort, so do times.
std::string nameOf(std::int64_t unixMs) {
  std::string name(kNameStart);
  for (const char c : rfc3339Micro(unixMs).substr(0, 23)) {
    if (c != '-' && c != ':') name += c;
  }
  return name + "-" + std::to_string(::getpid());
}

}  // namespace

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::open(const std::string& folder,
                                                               Limits limits) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return cant("make", folder);
  Fd claimed(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!claimed) return cant("open", folder);
  if (::flock(claimed.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return cant("lock", folder);
    return fail(ErrorCode::AlreadyExists, "--record: another process records in " + folder +
                                              ": give each a folder of its own");
  }
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return cant("write to", folder);
  }
  return std::unique_ptr<RecordingWriter>(new RecordingWriter(folder, std::move(claimed), limits));
}

RecordingWriter::RecordingWriter(std::string folder, Fd claimed, Limits limits)
    : folder_(std::move(folder)), claimed_(std::move(claimed)), limits_(limits) {
  listOthers();
}

RecordingWriter::~RecordingWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void RecordingWriter::listOthers() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kNameStart) || !name.ends_with(kRecordingEnd)) continue;
    others_.push_back({entry.path().string(), entry.file_size(error)});
    otherBytes_ += others_.back().bytes;
  }
  std::sort(others_.begin(), others_.end(),
            [](const Other& a, const Other& b) { return a.path < b.path; });
}

// Two lives may have one number in one millisecond.
Status RecordingWriter::makeFile(std::int64_t unixMs) {
  const std::string start = folder_ + "/" + nameOf(unixMs);
  for (int again = 0; !file_; ++again) {
    path_ = start + (again == 0 ? "" : "-" + std::to_string(again)) + std::string(kRecordingEnd);
    file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_ && errno != EEXIST) return cant("make", path_);
  }
  return ok();
}

Status RecordingWriter::begin(const std::vector<Words>& records, std::int64_t unixMs,
                              Stopped stopped) {
  stopped_ = std::move(stopped);
  if (Status made = makeFile(unixMs); !made) return made;
  std::string batch;
  for (const Words& record : records) appendRecord(batch, record);
  seal(batch, sum_);
  const std::string file = std::string(kRecordingMagic) + batch;
  if (!makeRoom(file.size())) {
    ::unlink(path_.c_str());
    return fail(ErrorCode::InvalidArgument,
                "--record: what the store has takes " + std::to_string(file.size() >> 20U) +
                    " MiB of the recording: give --record-mib more than that");
  }
  if (!writeAll(file_.get(), file)) {
    const Error why = cant("write", path_);
    ::unlink(path_.c_str());
    return why;
  }
  written_ = file.size();
  takes_ = true;
  thread_ = std::thread([this] { run(); });
  return ok();
}

void RecordingWriter::put(Words record) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() + record.size() * sizeof(capnp::word) > limits_.pendingBytes) {
      tooSlow_ = true;
      takes_ = false;
    } else {
      appendRecord(pending_, record);
    }
    wake = std::exchange(idle_, false);
  }
  if (wake) wake_.notify_one();
}

// What comes while a batch is written is the next batch.
void RecordingWriter::run() {
  std::string batch;
  std::string why;
  while (why.empty()) {
    bool last = false;
    batch.clear();
    {
      std::unique_lock lock(mutex_);
      idle_ = true;
      wake_.wait(lock, [this] { return !pending_.empty() || ending_ || tooSlow_; });
      idle_ = false;
      batch.swap(pending_);
      if (tooSlow_) why = "the disk did not keep up";
      last = ending_;
    }
    if (!makeRoom(batch.size())) {
      why = "the recordings have " + std::to_string(limits_.folderBytes >> 20U) +
            " MiB, as --record-mib says";
    } else if (const Status done = write(batch); !done) {
      why = "can't write " + path_ + ": " + done.error().message;
    } else if (last && why.empty()) {
      return writeEnded(kStopped);
    }
  }
  takes_ = false;
  writeEnded(why);
  stopped_(why);
}

// A batch is there in full or not at all.
Status RecordingWriter::write(std::string& batch) {
  const std::uint32_t before = sum_;
  seal(batch, sum_);
  if (writeAll(file_.get(), batch)) {
    written_ += batch.size();
    return ok();
  }
  Status done = fail(ErrorCode::Unavailable, std::strerror(errno));
  sum_ = before;
  if (::ftruncate(file_.get(), static_cast<off_t>(written_)) == 0) {
    ::lseek(file_.get(), static_cast<off_t>(written_), SEEK_SET);
  }
  return done;
}

bool RecordingWriter::makeRoom(std::uint64_t bytes) {
  while (otherBytes_ + written_ + bytes > limits_.folderBytes) {
    if (others_.empty()) return false;
    ::unlink(others_.front().path.c_str());
    otherBytes_ -= others_.front().bytes;
    others_.pop_front();
  }
  return true;
}

void RecordingWriter::writeEnded(const std::string& why) {
  ScratchBuilder scratch;
  std::string batch;
  appendRecord(batch, recordOf(scratch, [&](schema::Recorded::Builder to) { to.setEnded(why); }));
  static_cast<void>(write(batch));
}

}  // namespace qgpu
