#pragma once
// What tests tell the library by its environment: where their driver's files are, how long it may
// wait. Only a build for tests (QGPU_TEST_HOOKS) listens; the one that is shipped has not even the
// names, so that nobody leads it to other files.

#include <stdlib.h>

namespace qgpu::guest {

// Null where nothing is said, and in the library that is shipped.
inline const char* testSetting([[maybe_unused]] const char* name) {
#ifdef QGPU_TEST_HOOKS
  return getenv(name);
#else
  return nullptr;
#endif
}

}  // namespace qgpu::guest
