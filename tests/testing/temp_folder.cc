#include "tests/testing/temp_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace qgpu::testing {
namespace {

void give(const std::string& path, unsigned mode) {
  if (::chmod(path.c_str(), mode) == 0) return;
  throw std::system_error(errno, std::generic_category(), path + " can't be given its mode");
}

}  // namespace

TempFolder::TempFolder(const std::string& name, const Options& options)
    : path_(options.parent + "/qgpu-" + name + "-XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(),
                            path_ + " can't be made: make room or rights in " + options.parent);
  }
  give(path_, options.mode);
}

TempFolder::TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TempFolder::~TempFolder() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) std::fprintf(stderr, "%s is left: %s\n", path_.c_str(), error.message().c_str());
}

std::string TempFolder::write(const std::string& relative, const std::string& text,
                              unsigned mode) const {
  const std::string path = *this / relative;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  give(path, mode);
  return path;
}

std::string memoryFolder() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

}  // namespace qgpu::testing
