#include "tests/testing/pseudo_terminal.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <regex>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>

namespace qgpu::testing {
namespace {

constexpr const char* kTop = "\x1b[H";
constexpr const char* kEnd = "\x1b[J";

void check(bool done, const char* what) {
  if (!done) throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

PseudoTerminal::PseudoTerminal(unsigned short columns, unsigned short rows)
    : person_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {
  check(person_ >= 0 && ::grantpt(person_) == 0 && ::unlockpt(person_) == 0, "no terminal");
  char name[64] = {};
  check(::ptsname_r(person_, name, sizeof name) == 0, "a terminal without a name");
  name_ = name;
  program_ = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  check(program_ >= 0, name);
  resize(columns, rows);
}

PseudoTerminal::~PseudoTerminal() {
  ::close(program_);
  ::close(person_);
}

void PseudoTerminal::type(const std::string& text) const {
  check(::write(person_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "type");
}

void PseudoTerminal::resize(unsigned short columns, unsigned short rows) const {
  const winsize size{rows, columns, 0, 0};
  check(::ioctl(person_, TIOCSWINSZ, &size) == 0, "resize");
}

termios PseudoTerminal::modes() const {
  termios modes{};
  check(::tcgetattr(program_, &modes) == 0, "modes");
  return modes;
}

const std::string& PseudoTerminal::shown() {
  char chunk[4096];
  for (ssize_t n = 0; (n = ::read(person_, chunk, sizeof chunk)) > 0;) {
    shown_.append(chunk, static_cast<std::size_t>(n));
  }
  return shown_;
}

std::vector<std::string> PseudoTerminal::picture() {
  const std::string& all = shown();
  const std::size_t end = all.rfind(kEnd);
  const std::size_t top = end == std::string::npos ? end : all.rfind(kTop, end);
  if (top == std::string::npos) return {};
  static const std::regex sequence("\x1b\\[[0-9;?]*[a-zA-Z]|\r");
  const std::string text = std::regex_replace(all.substr(top, end - top), sequence, "");
  std::vector<std::string> lines;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t newline = std::min(text.find('\n', from), text.size());
    std::string line = text.substr(from, newline - from);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
    from = newline + 1;
  }
  return lines;
}

}  // namespace qgpu::testing
