#pragma once
// A test at a terminal: what a person sees there, and whether the program gave it back as it was.

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/e2e/testing_names.h"
#include "tests/testing/pseudo_terminal.h"

namespace qgpu::e2e {

inline bool has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

struct AtTerminal : ::testing::Test {
  void shows(const std::function<bool(const std::vector<std::string>&)>& wanted, const char* what) {
    EXPECT_TRUE(eventually([&] { return wanted(terminal.picture()); })) << what << "\n" << seen();
  }
  void shows(const std::string& part) {
    shows([&](const auto& lines) { return has(lines, part); }, part.c_str());
  }
  void showsNot(const std::string& part) {
    shows([&](const auto& lines) { return !has(lines, part); }, part.c_str());
  }
  std::string seen() {
    std::string text;
    for (const std::string& line : terminal.picture()) text += line + "\n";
    return text;
  }
  // The terminal is as before: its modes, its cursor, its own screen.
  void isGivenBack() {
    const termios now = terminal.modes();
    EXPECT_EQ(now.c_lflag, before.c_lflag);
    EXPECT_EQ(now.c_iflag, before.c_iflag);
    EXPECT_EQ(now.c_oflag, before.c_oflag);
    const std::string all = terminal.shown();
    EXPECT_GT(all.rfind("\x1b[?1049l") + 1, all.rfind("\x1b[?1049h") + 1);
    EXPECT_GT(all.rfind("\x1b[?25h") + 1, all.rfind("\x1b[?25l") + 1);
    EXPECT_GT(all.rfind("\x1b[?7h") + 1, all.rfind("\x1b[?7l") + 1);
  }

  testing::PseudoTerminal terminal;
  const termios before = terminal.modes();
};

}  // namespace qgpu::e2e
