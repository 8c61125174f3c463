#pragma once
// A page of docs/reference, or another file, which is made of what the programs themselves hold. A
// test compares it with the tree, and writes it anew where QGPU_WRITE_REFERENCE=1 stands in its
// environment:
//
//   QGPU_WRITE_REFERENCE=1 ctest --test-dir build -R 'ctl_test|options_test|e2e_reference'

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <string_view>

namespace qgpu::testing {

// A cell of a table keeps to its line and column.
inline std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// Nothing stays nothing.
inline std::string code(std::string_view text) {
  return text.empty() ? "" : "`" + cell(text) + "`";
}

// One line of a table.
inline std::string row(std::initializer_list<std::string> cells) {
  std::string out = "|";
  for (const std::string& text : cells) out += text.empty() ? " |" : " " + text + " |";
  return out + "\n";
}

// `name`: of the file below the tree's root. The program has QGPU_SOURCE_ROOT.
inline void expectFile(const std::string& name, const std::string& wanted) {
  const std::string path = std::string(QGPU_SOURCE_ROOT) + "/" + name;
  if (std::getenv("QGPU_WRITE_REFERENCE") != nullptr) std::ofstream(path) << wanted;
  std::ifstream file(path);
  std::stringstream is;
  is << file.rdbuf();
  EXPECT_EQ(is.str(), wanted) << name
                              << " is stale: run this with QGPU_WRITE_REFERENCE=1, and commit it";
}

// `name`: of the page, as in "commands.md".
inline void expectPage(const std::string& name, const std::string& wanted) {
  expectFile("docs/reference/" + name, wanted);
}

}  // namespace qgpu::testing
