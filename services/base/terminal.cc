#include "services/base/terminal.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <sys/ioctl.h>
#include <unistd.h>

namespace qgpu {

bool isTerminal(int fd) {
  return ::isatty(fd) == 1;
}

TerminalSize terminalSize(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

bool speaksUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    return ::strcasestr(value, "utf-8") != nullptr || ::strcasestr(value, "utf8") != nullptr;
  }
  return false;
}

bool takesColours(int fd) {
  const char* plain = std::getenv("NO_COLOR");
  return isTerminal(fd) && (plain == nullptr || *plain == 0);
}

}  // namespace qgpu
