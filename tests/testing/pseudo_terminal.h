#pragma once
// A terminal for a program of a test, as a person sits at one: what is typed, what is shown, and
// its size. Nothing here knows a test framework. What the system refuses is thrown as
// std::system_error.

#include <string>
#include <termios.h>
#include <vector>

namespace qgpu::testing {

class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns = 80, unsigned short rows = 24);
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  const std::string& name() const { return name_; }  // of its device
  int programsEnd() const { return program_; }       // for the program's streams

  void type(const std::string& text) const;
  // Whoever has it is told by SIGWINCH.
  void resize(unsigned short columns, unsigned short rows) const;
  termios modes() const;

  // All that was written so far, as it came.
  const std::string& shown();
  // The lines of the last picture that began at the top of the screen and was shown to its end;
  // without colours, and without blanks at their ends.
  std::vector<std::string> picture();

 private:
  int person_ = -1;
  int program_ = -1;  // kept, so that what was written outlives its writer
  std::string name_;
  std::string shown_;
};

}  // namespace qgpu::testing
