#pragma once
// Numbers at the end and at the beginning of bytes, in the order that files and values of etcd have
// them: little-endian, as every machine is that this runs on.

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

namespace qgpu {

static_assert(std::endian::native == std::endian::little);

template <typename Number>
void writeNumber(std::string& to, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  to.append(bytes, sizeof number);
}

// `from` has as many bytes.
template <typename Number>
Number takeNumber(std::string_view& from) {
  Number number;
  std::memcpy(&number, from.data(), sizeof number);
  from.remove_prefix(sizeof number);
  return number;
}

}  // namespace qgpu
