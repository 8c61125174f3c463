#pragma once
// A library of NVIDIA's driver in a program of our own, by the names of its functions. It stays
// loaded until the program ends.

#include <dlfcn.h>

namespace qgpu::suspend {

class Library {
 public:
  explicit Library(const char* name) : at_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}

  explicit operator bool() const { return at_ != nullptr; }
  // Null: it has none of that name.
  template <typename F>
  F find(const char* name) const {
    return at_ ? reinterpret_cast<F>(::dlsym(at_, name)) : nullptr;
  }

 private:
  void* at_;
};

}  // namespace qgpu::suspend
