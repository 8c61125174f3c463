#pragma once
// A private folder of one run: gone with the object, and, where the run was killed, with the next
// run, which knows from its name that nobody lives in it.

#include <string>

namespace qgpu::crash {

class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace qgpu::crash
