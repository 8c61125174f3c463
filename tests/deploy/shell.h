#pragma once
// Runs a command line as a person would, in a folder that goes with the test.

#include <map>
#include <string>

namespace qgpu::testing {

struct ShellResult {
  int status = -1;
  std::string output;  // of both streams, in order
};

// `sh -c line`, with these variables beside the test's own.
ShellResult shell(const std::string& line,
                  const std::map<std::string, std::string>& variables = {});

// A folder that is removed with all in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& relative) const { return path_ + "/" + relative; }
  // Writes a file, and the folders above it.
  std::string write(const std::string& relative, const std::string& text,
                    unsigned mode = 0644) const;

 private:
  std::string path_;
};

}  // namespace qgpu::testing
