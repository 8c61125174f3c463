#include "services/guest/token.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace qgpu::guest {
namespace {

constexpr std::size_t kPathMax = 512;

char fromFile[64];  // empty: none was read yet

const char* given(const char* name) {
  const char* value = getenv(name);
  return value && *value ? value : nullptr;
}

// The first line of `path` into `fromFile`. False: it is not there, or has none.
bool readFirstLine(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, fromFile, sizeof fromFile - 1);
  close(fd);
  fromFile[n > 0 ? n : 0] = 0;
  fromFile[strcspn(fromFile, "\n")] = 0;
  return fromFile[0] != 0;
}

}  // namespace

bool tokenNamed() {
  return given("QGPU_TOKEN") || given("QGPU_TOKEN_FILE");
}

const char* findToken() {
  if (const char* token = given("QGPU_TOKEN")) return token;
  if (fromFile[0]) return fromFile;
  const char* next = given("QGPU_TOKEN_FILE");
  while (next && *next) {
    char path[kPathMax];
    const std::size_t length = strcspn(next, ":");
    if (length != 0 && length < sizeof path) {
      memcpy(path, next, length);
      path[length] = 0;
      if (readFirstLine(path)) return fromFile;
    }
    next += length + (next[length] == ':' ? 1 : 0);
  }
  return nullptr;
}

}  // namespace qgpu::guest
