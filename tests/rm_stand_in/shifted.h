#pragma once
// A driver that lays its calls out as none did before it, for the stand-ins of the kernel's part
// and of libcuda, which agree on that as a release's parts do. QGPU_STAND_IN_SHIFT names what lies
// elsewhere: `call`, an allocation is 8 bytes longer, with its status at the end; `status`, it has
// its length, and its status 4 bytes later; `size`, memory's size lies 8 bytes later.

#include <cstdlib>
#include <cstring>

#include "tests/rm_stand_in/nvidia_rm.h"

namespace qgpu::rm_stand_in {

inline bool isShifted(const char* what) {
  const char* given = std::getenv("QGPU_STAND_IN_SHIFT");
  return given && std::strcmp(given, what) == 0;
}

inline nvidia::rm::AllocForms shifted(nvidia::rm::AllocForms forms) {
  if (isShifted("call")) {
    forms.longForm.size += 8;
    forms.longForm.statusAt += 8;
  }
  if (isShifted("status")) forms.longForm.statusAt += 4;
  return forms;
}

inline std::size_t memorySizeAt() {
  return offsetof(nvidia::rm::MemoryParameters, size) + (isShifted("size") ? 8 : 0);
}

}  // namespace qgpu::rm_stand_in
