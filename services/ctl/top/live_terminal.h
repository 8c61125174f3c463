#pragma once
// The terminal while `qgpuctl top` lives in it: another screen, without cursor and echo, and given
// back as it was. The one part of it that touches a terminal. Into a file or pipe it writes what it
// is told, and waits for signals alone.

#include <signal.h>
#include <string>
#include <termios.h>
#include <vector>

#include "runtime/units.h"
#include "services/base/terminal.h"
#include "services/ctl/top/keys.h"

namespace qgpu::ctl {

class LiveTerminal {
 public:
  // `live`: stdout is a terminal, and to be taken. From here on signals come by next() alone.
  explicit LiveTerminal(bool live);
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  TerminalSize size() const;
  // As it is, at the place where the cursor stands. False where nobody reads any more.
  bool write(const std::string& text) const;
  // In the place of what was shown before; no line is longer than the screen.
  bool show(const std::vector<std::string>& lines) const;

  // What a person or the system did, or nothing of it until `until`.
  struct News {
    int signal = 0;       // that ends the program
    bool redraw = false;  // another size, or here again
    std::vector<Key> keys{};
  };
  News next(Nanos until);

 private:
  void enter();
  void leave();
  void readKeys(News& news);
  void readSignal(News& news);

  const bool live_;
  bool keys_ = false;  // stdin is a terminal, and still there
  termios before_{};
  int signals_ = -1;
  KeyReader reader_;
};

}  // namespace qgpu::ctl
