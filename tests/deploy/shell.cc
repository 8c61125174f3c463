#include "tests/deploy/shell.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace qgpu::testing {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

ShellResult shell(const std::string& line, const std::map<std::string, std::string>& variables) {
  std::string command;
  for (const auto& [name, value] : variables) command += name + "=" + quoted(value) + " ";
  command = "exec 2>&1; " + command + "sh -c " + quoted(line);
  ShellResult result;
  FILE* pipe = ::popen(command.c_str(), "re");
  EXPECT_NE(pipe, nullptr) << command;
  if (pipe == nullptr) return result;
  std::array<char, 4096> part{};
  std::size_t n = 0;
  while ((n = std::fread(part.data(), 1, part.size(), pipe)) > 0) {
    result.output.append(part.data(), n);
  }
  const int raw = ::pclose(pipe);
  result.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  return result;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = ::testing::TempDir() + "qgpu-deploy-XXXXXX";
  path_ = ::mkdtemp(pattern.data()) == nullptr ? "" : pattern;
  EXPECT_FALSE(path_.empty()) << pattern << " can't be made";
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  EXPECT_FALSE(error) << path_ << ": " << error.message();
}

std::string TemporaryFolder::write(const std::string& relative, const std::string& text,
                                   unsigned mode) const {
  const std::string path = file(relative);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(::chmod(path.c_str(), mode), 0) << path;
  return path;
}

}  // namespace qgpu::testing
