#pragma once
// Frees what OpenSSL made, for unique_ptr: std::unique_ptr<X509, OpensslFreed<X509_free>>.

namespace qgpu {

template <auto Free>
struct OpensslFreed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

}  // namespace qgpu
