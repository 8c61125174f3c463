#include "store/testing/memory_disk.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace qgpu {
namespace {

constexpr std::size_t kSector = 512;

struct Handle {
  sqlite3_file base;
  MemoryDisk* disk;
  MemoryDisk::File* opened;
};

Handle& of(sqlite3_file* file) {
  return *reinterpret_cast<Handle*>(file);
}

int onClose(sqlite3_file*) {
  return SQLITE_OK;
}
int onRead(sqlite3_file* file, void* into, int size, sqlite3_int64 offset) {
  return of(file).disk->read(*of(file).opened, into, size, offset);
}
int onWrite(sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) {
  return of(file).disk->write(*of(file).opened, from, size, offset);
}
int onTruncate(sqlite3_file* file, sqlite3_int64 size) {
  return of(file).disk->truncate(*of(file).opened, size);
}
int onSync(sqlite3_file* file, int) {
  return of(file).disk->sync(*of(file).opened);
}
int onFileSize(sqlite3_file* file, sqlite3_int64* size) {
  *size = of(file).disk->size(*of(file).opened);
  return SQLITE_OK;
}
int onLock(sqlite3_file*, int) {
  return SQLITE_OK;
}
int onCheckLock(sqlite3_file*, int* held) {
  return *held = 0, SQLITE_OK;
}
int onControl(sqlite3_file*, int, void*) {
  return SQLITE_NOTFOUND;
}
int onSectorSize(sqlite3_file*) {
  return static_cast<int>(kSector);
}
// As SQLite assumes of every disk under Linux: a write that is cut short leaves the bytes beside it
// as they were. Without it SQLite writes on after a commit, and where that fails, the commit is
// told failed though the next process finds it.
int onCharacteristics(sqlite3_file*) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

// Version 1: no shared memory, so write-ahead logging works only for an exclusive owner.
const sqlite3_io_methods kMethods = {
    1,       onClose,     onRead,    onWrite,      onTruncate,        onSync,  onFileSize, onLock,
    onLock,  onCheckLock, onControl, onSectorSize, onCharacteristics, nullptr, nullptr,    nullptr,
    nullptr, nullptr,     nullptr};

MemoryDisk& of(sqlite3_vfs* vfs) {
  return *static_cast<MemoryDisk*>(vfs->pAppData);
}

int onOpen(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* outFlags) {
  if (path == nullptr) return SQLITE_CANTOPEN;
  if ((flags & SQLITE_OPEN_CREATE) == 0 && !of(vfs).exists(path)) return SQLITE_CANTOPEN;
  new (file) Handle{{&kMethods}, &of(vfs), &of(vfs).create(path)};
  if (outFlags != nullptr) *outFlags = flags;
  return SQLITE_OK;
}
int onDelete(sqlite3_vfs* vfs, const char* path, int syncFolder) {
  return of(vfs).remove(path, syncFolder != 0);
}
int onAccess(sqlite3_vfs* vfs, const char* path, int, int* result) {
  *result = of(vfs).exists(path) ? 1 : 0;
  return SQLITE_OK;
}
int onFullPath(sqlite3_vfs*, const char* path, int size, char* out) {
  return sqlite3_snprintf(size, out, "%s", path), SQLITE_OK;
}
int onRandomness(sqlite3_vfs*, int size, char* out) {
  return std::memset(out, 7, static_cast<std::size_t>(size)), size;
}
int onSleep(sqlite3_vfs*, int micros) {
  return micros;
}
int onCurrentTime(sqlite3_vfs*, double* days) {
  return *days = 2460000.5, SQLITE_OK;
}
int onLastError(sqlite3_vfs*, int, char*) {
  return 0;
}

std::uint64_t mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 31);
}

}  // namespace

MemoryDisk::MemoryDisk(std::string name) : name_(std::move(name)) {
  vfs_.iVersion = 1;
  vfs_.szOsFile = sizeof(Handle);
  vfs_.mxPathname = 255;
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.xOpen = onOpen;
  vfs_.xDelete = onDelete;
  vfs_.xAccess = onAccess;
  vfs_.xFullPathname = onFullPath;
  vfs_.xRandomness = onRandomness;
  vfs_.xSleep = onSleep;
  vfs_.xCurrentTime = onCurrentTime;
  vfs_.xGetLastError = onLastError;
  sqlite3_vfs_register(&vfs_, 0);
}

MemoryDisk::~MemoryDisk() {
  sqlite3_vfs_unregister(&vfs_);
}

// --- faults ---

void MemoryDisk::setCapacity(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void MemoryDisk::fail(Op op, std::uint64_t times) {
  const std::lock_guard lock(mutex_);
  failing_[static_cast<std::size_t>(op)] = times;
}

void MemoryDisk::mend() {
  const std::lock_guard lock(mutex_);
  failing_ = {};
}

void MemoryDisk::crashAt(std::uint64_t io) {
  const std::lock_guard lock(mutex_);
  crashAt_ = io;
  crashed_ = false;
}

void MemoryDisk::crashNow() {
  const std::lock_guard lock(mutex_);
  crashAt_ = 0;
  crashed_ = true;
}

bool MemoryDisk::crashed() const {
  const std::lock_guard lock(mutex_);
  return crashed_;
}

std::uint64_t MemoryDisk::ioCount() const {
  const std::lock_guard lock(mutex_);
  return ioCount_;
}

void MemoryDisk::restart() {
  const std::lock_guard lock(mutex_);
  crashAt_ = kForever;
  crashed_ = false;
}

void MemoryDisk::powerCut(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  for (auto& [path, file] : files_) {
    const std::vector<Change> changes = file.unsynced;
    const std::vector<unsigned char> kept = file.kept;
    undo(file);
    for (const Change& change : changes) redoSome(file, change, kept, seed);
    cutName(file, seed);
  }
  crashAt_ = kForever;
  crashed_ = false;
  failing_ = {};
}

void MemoryDisk::wipe() {
  const std::lock_guard lock(mutex_);
  for (auto& [path, file] : files_) file = File();
  used_ = 0;
}

std::int64_t MemoryDisk::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool MemoryDisk::dies() {
  const bool dead = ++ioCount_ >= crashAt_;
  crashed_ = crashed_ || dead;
  return dead;
}

bool MemoryDisk::failsNow(Op op) {
  std::uint64_t& left = failing_[static_cast<std::size_t>(op)];
  if (left == 0) return false;
  if (left != kForever) --left;
  return true;
}

void MemoryDisk::setSize(File& file, std::size_t size) {
  used_ += static_cast<std::int64_t>(size) - static_cast<std::int64_t>(file.now.size());
  file.now.resize(size);
}

// Back to what the last sync left.
void MemoryDisk::undo(File& file) {
  for (auto change = file.unsynced.rbegin(); change != file.unsynced.rend(); ++change) {
    setSize(file, change->sizeBefore);
    std::copy_n(file.kept.begin() + static_cast<std::ptrdiff_t>(change->at), change->replaced,
                file.now.begin() + static_cast<std::ptrdiff_t>(change->offset));
  }
  file.unsynced.clear();
  file.kept.clear();
}

void MemoryDisk::redoSome(File& file, const Change& change, const std::vector<unsigned char>& kept,
                          std::uint64_t& seed) {
  const std::uint64_t fate = mix(seed) % 3;
  if (fate == 0) return;
  if (change.written == 0) return setSize(file, std::min(file.now.size(), change.offset));
  const unsigned char* bytes = kept.data() + change.at + change.replaced;
  const std::size_t torn = fate == 1 ? mix(seed) % (change.written / kSector + 1) : SIZE_MAX;
  std::size_t done = 0;
  for (std::size_t number = 0; done < change.written; ++number) {
    const std::size_t end = (change.offset + done) / kSector * kSector + kSector;
    const std::size_t whole = std::min(end - change.offset, change.written) - done;
    std::size_t part = whole;
    if (number == torn)
      part = mix(seed) % (whole + 1);
    else if (fate == 1 && mix(seed) % 2 == 0)
      part = 0;
    if (part > 0) {
      const std::size_t to = change.offset + done;
      setSize(file, std::max(file.now.size(), to + part));
      std::copy_n(bytes + done, part, file.now.begin() + static_cast<std::ptrdiff_t>(to));
    }
    done += whole;
  }
}

// A file whose name was not synced may be gone, a removed one may be back.
void MemoryDisk::cutName(File& file, std::uint64_t& seed) {
  if (file.exists && !file.nameSynced && mix(seed) % 2 == 0) {
    setSize(file, 0);
    file.exists = false;
  }
  if (!file.exists && file.hasGhost && mix(seed) % 2 == 0) {
    setSize(file, file.ghost.size());
    file.now = file.ghost;
    file.exists = true;
  }
  file.nameSynced = file.exists;
  file.hasGhost = false;
  file.ghost.clear();
}

// SQLite syncs the folder with the first sync of a new journal or log, and that is where every
// name is kept.
void MemoryDisk::syncNames() {
  for (auto& [path, file] : files_) {
    file.nameSynced = file.exists;
    file.hasGhost = false;
    file.ghost.clear();
  }
}

// --- files ---

bool MemoryDisk::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  return found != files_.end() && found->second.exists;
}

MemoryDisk::File& MemoryDisk::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  File& file = files_[path];
  file.exists = true;
  return file;
}

int MemoryDisk::remove(const std::string& path, bool synced) {
  const std::lock_guard lock(mutex_);
  if (dies() || failsNow(Op::Delete)) return SQLITE_IOERR_DELETE;
  File& file = files_[path];
  undo(file);
  if (file.nameSynced) {
    file.ghost = file.now;
    file.hasGhost = true;
  }
  setSize(file, 0);
  file.exists = file.nameSynced = false;
  if (synced) syncNames();
  return SQLITE_OK;
}

int MemoryDisk::read(const File& file, void* into, int size, std::int64_t offset) {
  const std::lock_guard lock(mutex_);
  if (failsNow(Op::Read)) return SQLITE_IOERR_READ;
  const auto& bytes = file.now;
  const auto have =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(bytes.size()) - offset, 0, size);
  if (have > 0) std::memcpy(into, bytes.data() + offset, static_cast<std::size_t>(have));
  if (have == size) return SQLITE_OK;
  std::memset(static_cast<char*>(into) + have, 0, static_cast<std::size_t>(size - have));
  return SQLITE_IOERR_SHORT_READ;
}

int MemoryDisk::write(File& file, const void* from, int size, std::int64_t offset) {
  const std::lock_guard lock(mutex_);
  if (dies() || failsNow(Op::Write)) return SQLITE_IOERR_WRITE;
  const auto begin = static_cast<std::size_t>(offset);
  const auto length = static_cast<std::size_t>(size);
  const std::size_t before = file.now.size();
  const std::int64_t grows = offset + size - static_cast<std::int64_t>(before);
  if (grows > 0 && used_ + grows > capacity_) return SQLITE_FULL;
  const std::size_t replaced = begin < before ? std::min(before - begin, length) : 0;
  file.unsynced.push_back({begin, length, replaced, before, file.kept.size()});
  const auto old = file.now.begin() + static_cast<std::ptrdiff_t>(replaced == 0 ? 0 : begin);
  file.kept.insert(file.kept.end(), old, old + static_cast<std::ptrdiff_t>(replaced));
  const auto* bytes = static_cast<const unsigned char*>(from);
  file.kept.insert(file.kept.end(), bytes, bytes + length);
  if (grows > 0) setSize(file, begin + length);
  std::memcpy(file.now.data() + begin, bytes, length);
  return SQLITE_OK;
}

int MemoryDisk::truncate(File& file, std::int64_t size) {
  const std::lock_guard lock(mutex_);
  if (dies() || failsNow(Op::Truncate)) return SQLITE_IOERR_TRUNCATE;
  const std::size_t before = file.now.size();
  const std::size_t after = std::min(before, static_cast<std::size_t>(size));
  file.unsynced.push_back({after, 0, before - after, before, file.kept.size()});
  const auto cut = file.now.begin() + static_cast<std::ptrdiff_t>(after);
  file.kept.insert(file.kept.end(), cut, file.now.end());
  setSize(file, after);
  return SQLITE_OK;
}

int MemoryDisk::sync(File& file) {
  const std::lock_guard lock(mutex_);
  // A crash is not a failed fsync: the process that would have noticed is gone.
  if (dies()) return SQLITE_IOERR;
  if (failsNow(Op::Sync)) return SQLITE_IOERR_FSYNC;
  file.unsynced.clear();
  file.kept.clear();
  if (!file.nameSynced) syncNames();
  return SQLITE_OK;
}

std::int64_t MemoryDisk::size(const File& file) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(file.now.size());
}

}  // namespace qgpu
