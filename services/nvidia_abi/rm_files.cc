#include "services/nvidia_abi/rm_files.h"

namespace qgpu::rm {

Files::Entry* Files::entryOf(int fd) {
  if (!known(fd)) return nullptr;
  for (Entry& entry : entries_) {
    if (entry.file != kNone && entry.fd == fd) return &entry;
  }
  return nullptr;
}

std::uint32_t Files::of(int fd) {
  if (const Entry* entry = entryOf(fd)) return entry->file;
  learn(fd, lastFile_ + 1);
  if (!known(fd)) return kNone;
  return ++lastFile_;
}

const Files::Entry* Files::firstOf(std::uint32_t file) const {
  for (const Entry& entry : entries_) {
    if (file != kNone && entry.file == file) return &entry;
  }
  return nullptr;
}

void Files::learn(int fd, std::uint32_t file, Way way) {
  const auto at = static_cast<std::size_t>(fd);
  if (at >= kDescriptors || file == kNone) return;
  Entry* place = entryOf(fd);
  for (Entry& entry : entries_) {
    if (!place && entry.file == kNone) place = &entry;
  }
  if (!place) return;
  const Entry* other = firstOf(file);
  *place = {fd, file, way, other && other->holdsMemory};
  marks_[at / 64].fetch_or(1ull << at % 64, std::memory_order_relaxed);
}

std::uint32_t Files::closed(int fd) {
  Entry* entry = entryOf(fd);
  if (!entry) return kNone;
  const std::uint32_t file = entry->file;
  entry->file = kNone;
  const auto at = static_cast<std::size_t>(fd);
  marks_[at / 64].fetch_and(~(1ull << at % 64), std::memory_order_relaxed);
  return firstOf(file) ? kNone : file;
}

void Files::duplicated(int from, int to) {
  if (const Entry* entry = entryOf(from)) learn(to, entry->file, entry->way);
}

void Files::holdsMemory(std::uint32_t file) {
  const Entry* first = firstOf(file);
  if (!first || first->holdsMemory) return;
  for (Entry& entry : entries_) {
    if (entry.file == file) entry.holdsMemory = true;
  }
}

int Files::descriptorOf(std::uint32_t file) const {
  for (const Entry& entry : entries_) {
    if (file != kNone && entry.file == file && entry.way == Way::kItself) return entry.fd;
  }
  return -1;
}

void Files::forget() {
  for (Entry& entry : entries_) {
    if (entry.file != kNone) closed(entry.fd);
  }
}

}  // namespace qgpu::rm
