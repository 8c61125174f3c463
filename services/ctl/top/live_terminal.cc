#include "services/ctl/top/live_terminal.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "services/ctl/answers/client.h"

namespace qgpu::ctl {
namespace {

// The rest of a sequence that a key begins is there within this time.
constexpr Nanos kSequenceWithin = millis(40);

sigset_t signalsOfOurs() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH}) {
    ::sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

LiveTerminal::LiveTerminal(bool live) : live_(live) {
  const sigset_t set = signalsOfOurs();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  keys_ = live_ && isTerminal(STDIN_FILENO) && ::tcgetattr(STDIN_FILENO, &before_) == 0;
  enter();
}

LiveTerminal::~LiveTerminal() {
  leave();
  ::close(signals_);
}

// Lines that are too long all the same are cut: a wrapped one would move all others.
void LiveTerminal::enter() {
  if (!live_) return;
  if (keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  write("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J");
}

void LiveTerminal::leave() {
  if (!live_) return;
  write("\x1b[?7h\x1b[?25h\x1b[?1049l");
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

TerminalSize LiveTerminal::size() const {
  return terminalSize(STDOUT_FILENO);
}

bool LiveTerminal::write(const std::string& text) const {
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd wanted{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&wanted, 1, -1);
      continue;
    }
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

bool LiveTerminal::show(const std::vector<std::string>& lines) const {
  std::string text = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
  return write(text + "\x1b[J");
}

void LiveTerminal::readKeys(News& news) {
  char bytes[256];
  const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    keys_ = false;  // it hung up
    return;
  }
  news.keys = reader_.read({bytes, static_cast<std::size_t>(n)});
}

void LiveTerminal::readSignal(News& news) {
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != sizeof info) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGTSTP) {
    leave();
    ::kill(::getpid(), SIGSTOP);
    enter();
    news.redraw = true;
  } else if (signal == SIGCONT) {
    enter();  // a shell may have set its own modes meanwhile
    news.redraw = true;
  } else if (signal == SIGWINCH) {
    news.redraw = true;
  } else {
    news.signal = signal;
  }
}

LiveTerminal::News LiveTerminal::next(Nanos until) {
  News news;
  while (true) {
    const Nanos limit = reader_.waits() ? std::min(until, now() + kSequenceWithin) : until;
    const Nanos left = std::max(limit - now(), Nanos(0));
    pollfd wanted[] = {{signals_, POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    const auto ms = static_cast<int>((left + millis(1) - Nanos(1)) / millis(1));
    const int ready = ::poll(wanted, 2, ms);
    if (ready < 0 && errno != EINTR) return news;
    if (ready > 0 && wanted[0].revents != 0) readSignal(news);
    if (ready > 0 && wanted[1].revents != 0) readKeys(news);
    if (ready == 0 && reader_.waits()) news.keys = reader_.end();
    const bool told = news.signal != 0 || news.redraw || !news.keys.empty();
    if (told || (ready == 0 && now() >= until)) return news;
  }
}

}  // namespace qgpu::ctl
