#include "services/guest/gate/token.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "services/wire/places.h"

namespace qgpu::guest {
namespace {

constexpr std::size_t kPathMax = 512;

char token[64];  // empty: none was read yet

const char* given(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

// Asked once: the folder is mounted before the first program of a container starts.
bool inContainer() {
  static std::atomic<int> known{-1};
  int found = known.load(std::memory_order_relaxed);
  if (found < 0) {
    const int saved = errno;
    found = access(kTenantTask, F_OK) == 0 ? 1 : 0;
    errno = saved;
    known.store(found, std::memory_order_relaxed);
  }
  return found != 0;
}

// Paths of files that may have a token, joined by ':'; nullptr: none is named.
const char* tokenFiles() {
  if (const char* named = given("QGPU_TOKEN_FILE")) return named;
  return inContainer() ? kTenantTokens : nullptr;
}

// The first line of `path` into `token`. False: it is not there, or has none.
bool readFirstLine(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, token, sizeof token - 1);
  close(fd);
  token[n > 0 ? n : 0] = 0;
  token[strcspn(token, "\n")] = 0;
  return token[0] != 0;
}

bool readWhole(const char* path, char* text, std::size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::size_t used = 0;
  ssize_t n = 0;
  while (used < size && (n = read(fd, text + used, size - used)) > 0) {
    used += static_cast<std::size_t>(n);
  }
  close(fd);
  if (n < 0 || used == 0 || used == size) return false;
  text[used] = 0;
  return true;
}

// The next path of a list joined by ':', of those that are not too long. False: there is no more.
bool nextPath(const char*& list, char (&path)[kPathMax]) {
  while (list && *list) {
    const std::size_t length = strcspn(list, ":");
    const char* from = list;
    list += length + (list[length] == ':' ? 1 : 0);
    if (length == 0 || length >= sizeof path) continue;
    memcpy(path, from, length);
    path[length] = 0;
    return true;
  }
  return false;
}

}  // namespace

bool tokenNamed() {
  return given("QGPU_TOKEN") || tokenFiles();
}

const char* findSocket() {
  if (const char* named = given("QGPU_SOCKET")) return named;
  return inContainer() ? kTenantSocket : nullptr;
}

bool tokenInFile() {
  return !given("QGPU_TOKEN");
}

const char* findToken() {
  if (const char* named = given("QGPU_TOKEN")) {
    token[0] = 0;
    strncat(token, named, sizeof token - 1);
  }
  if (token[0]) return token;
  const char* next = tokenFiles();
  for (char path[kPathMax]; nextPath(next, path);) {
    if (readFirstLine(path)) return token;
  }
  return nullptr;
}

bool readBesideToken(const char* name, char* text, std::size_t size) {
  const char* next = tokenFiles();
  for (char path[kPathMax]; nextPath(next, path);) {
    char* base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (static_cast<std::size_t>(base - path) + strlen(name) >= sizeof path) continue;
    strcpy(base, name);
    if (readWhole(path, text, size)) return true;
  }
  return false;
}

}  // namespace qgpu::guest
