#include "services/attach/sockets/token_book.h"

#include <algorithm>
#include <mutex>

namespace qgpu {

void TokenBook::add(std::uint64_t task, const std::string& token) {
  QGPU_CHECK(token.size() == QGPU_TOKEN_LEN, "the length was looked at");
  Entry entry{task, {}};
  std::copy(token.begin(), token.end(), entry.token.begin());
  const std::lock_guard lock(mutex_);
  entries_.push_back(entry);
}

void TokenBook::remove(std::uint64_t task) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [task](const Entry& entry) { return entry.task == task; });
}

void TokenBook::complete() {
  const std::lock_guard lock(mutex_);
  complete_ = true;
}

TokenBook::Found TokenBook::find(const char* token) const {
  const std::lock_guard lock(mutex_);
  Found found;
  for (const Entry& entry : entries_) {
    if (same(entry.token.data(), token)) found.task = entry.task;
  }
  found.mayCome = found.task == 0 && !complete_;
  return found;
}

bool TokenBook::same(const char* left, const char* right) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < QGPU_TOKEN_LEN; i++) {
    difference |= static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]);
  }
  return difference == 0;
}

}  // namespace qgpu
