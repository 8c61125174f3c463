#pragma once
// A small file system in memory that only this process and its children see. It goes with the last
// of them, whatever ends them. Root or a user namespace makes it possible; where neither is allowed
// the constructor says so with Skipped. Made before any thread starts.

#include <cstdint>
#include <string>

namespace qgpu::crash {

class Tmpfs {
 public:
  Tmpfs(std::string at, std::uint64_t kib);
  ~Tmpfs();
  Tmpfs(const Tmpfs&) = delete;
  Tmpfs& operator=(const Tmpfs&) = delete;

  std::string file(const std::string& name) const { return at_ + "/" + name; }
  // Takes all of what is left but `leftBytes`; again with less or more at will.
  void fill(std::uint64_t leftBytes);
  void free();
  std::uint64_t leftBytes() const;

 private:
  const std::string at_;
};

}  // namespace qgpu::crash
