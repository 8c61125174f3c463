#pragma once
// A folder of a test's own, gone with all that is in it when the object goes. Nothing here knows a
// test framework: programs of the tests and benches use it as well. What the system refuses is
// thrown as std::system_error.

#include <string>

namespace qgpu::testing {

class TempFolder {
 public:
  struct Options {
    std::string parent = "/tmp";  // short: a socket's path has 107 characters
    unsigned mode = 0700;
  };

  // PARENT/qgpu-NAME-XXXXXX.
  explicit TempFolder(const std::string& name = "test") : TempFolder(name, Options{}) {}
  TempFolder(const std::string& name, const Options& options);
  TempFolder(TempFolder&& other) noexcept;
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();  // says on stderr what can't be removed

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& relative) const { return path_ + "/" + relative; }

  // Writes a file, and makes the folders above it; answers its path.
  std::string write(const std::string& relative, const std::string& text,
                    unsigned mode = 0644) const;

 private:
  std::string path_;  // empty: another has it
};

// The parent for what is in memory alone: /dev/shm, or /tmp where there is none.
std::string memoryFolder();

}  // namespace qgpu::testing
