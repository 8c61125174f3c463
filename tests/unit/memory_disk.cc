#include "tests/unit/memory_disk.h"

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
  char path[256];
};

Handle& of(sqlite3_file* file) {
  return *reinterpret_cast<Handle*>(file);
}

int onClose(sqlite3_file*) {
  return SQLITE_OK;
}
int onRead(sqlite3_file* file, void* into, int size, sqlite3_int64 offset) {
  return of(file).disk->read(of(file).path, into, size, offset);
}
int onWrite(sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) {
  return of(file).disk->write(of(file).path, from, size, offset);
}
int onTruncate(sqlite3_file* file, sqlite3_int64 size) {
  return of(file).disk->truncate(of(file).path, size);
}
int onSync(sqlite3_file* file, int) {
  return of(file).disk->sync(of(file).path);
}
int onFileSize(sqlite3_file* file, sqlite3_int64* size) {
  *size = of(file).disk->size(of(file).path);
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
int onCharacteristics(sqlite3_file*) {
  return 0;
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
  if (path == nullptr || std::strlen(path) >= sizeof Handle::path) return SQLITE_CANTOPEN;
  if (!of(vfs).exists(path)) {
    if ((flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
    of(vfs).create(path);
  }
  auto* handle = new (file) Handle{{&kMethods}, &of(vfs), {}};
  std::strcpy(handle->path, path);
  if (outFlags != nullptr) *outFlags = flags;
  return SQLITE_OK;
}
int onDelete(sqlite3_vfs* vfs, const char* path, int) {
  return of(vfs).remove(path);
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

void overlay(std::vector<unsigned char>& bytes, const MemoryDisk::Write& write) {
  const auto offset = static_cast<std::size_t>(write.offset);
  if (write.bytes.empty()) return bytes.resize(std::min(bytes.size(), offset));
  if (bytes.size() < offset + write.bytes.size()) bytes.resize(offset + write.bytes.size());
  std::copy(write.bytes.begin(), write.bytes.end(), bytes.begin() + write.offset);
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
  vfs_.mxPathname = sizeof Handle::path - 1;
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

void MemoryDisk::setCapacity(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void MemoryDisk::failSync() {
  const std::lock_guard lock(mutex_);
  syncFails_ = true;
}

void MemoryDisk::crashAt(std::uint64_t io) {
  const std::lock_guard lock(mutex_);
  crashAt_ = io;
}

std::uint64_t MemoryDisk::ioCount() const {
  const std::lock_guard lock(mutex_);
  return ioCount_;
}

void MemoryDisk::powerCut(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  for (auto& [path, file] : files_) {
    for (Write& write : file.unsynced) {
      const std::uint64_t fate = mix(seed);
      if (fate % 3 == 0) continue;  // lost
      if (fate % 3 == 1 && write.bytes.size() > kSector) {
        write.bytes.resize(kSector * (1 + fate / 3 % (write.bytes.size() / kSector)));  // torn
      }
      overlay(file.durable, write);
    }
    file.unsynced.clear();
    file.now = file.durable;
  }
  crashAt_ = UINT64_MAX;
  syncFails_ = false;
}

bool MemoryDisk::crashes() {
  return ++ioCount_ >= crashAt_;
}

std::int64_t MemoryDisk::used() const {
  std::int64_t sum = 0;
  for (const auto& [path, file] : files_) sum += static_cast<std::int64_t>(file.now.size());
  return sum;
}

bool MemoryDisk::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(path);
}

void MemoryDisk::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  files_[path];
}

int MemoryDisk::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (crashes()) return SQLITE_IOERR_DELETE;
  files_.erase(path);
  return SQLITE_OK;
}

int MemoryDisk::read(const std::string& path, void* into, int size, std::int64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto& bytes = files_.at(path).now;
  const auto have =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(bytes.size()) - offset, 0, size);
  std::memset(into, 0, static_cast<std::size_t>(size));
  if (have > 0) std::memcpy(into, bytes.data() + offset, static_cast<std::size_t>(have));
  return have == size ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

int MemoryDisk::write(const std::string& path, const void* from, int size, std::int64_t offset) {
  const std::lock_guard lock(mutex_);
  if (crashes()) return SQLITE_IOERR_WRITE;
  File& file = files_.at(path);
  const auto* bytes = static_cast<const unsigned char*>(from);
  const std::int64_t grows = offset + size - static_cast<std::int64_t>(file.now.size());
  if (grows > 0 && used() + grows > capacity_) return SQLITE_FULL;
  file.unsynced.push_back(Write{offset, {bytes, bytes + size}});
  overlay(file.now, file.unsynced.back());
  return SQLITE_OK;
}

int MemoryDisk::truncate(const std::string& path, std::int64_t size) {
  const std::lock_guard lock(mutex_);
  if (crashes()) return SQLITE_IOERR_TRUNCATE;
  File& file = files_.at(path);
  file.unsynced.push_back(Write{size, {}});
  overlay(file.now, file.unsynced.back());
  return SQLITE_OK;
}

int MemoryDisk::sync(const std::string& path) {
  const std::lock_guard lock(mutex_);
  // A crash is not a failed fsync: the process that would have noticed is gone.
  if (crashes()) return SQLITE_IOERR;
  if (syncFails_) return SQLITE_IOERR_FSYNC;
  File& file = files_.at(path);
  file.durable = file.now;
  file.unsynced.clear();
  return SQLITE_OK;
}

std::int64_t MemoryDisk::size(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(files_.at(path).now.size());
}

}  // namespace qgpu
