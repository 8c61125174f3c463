#pragma once
// The stand-in driver of one test program: a folder of its own for all its tests, since the state
// is mapped once.

#include <cstdlib>
#include <string>

#include "runtime/check.h"
#include "tests/rm_stand_in/rm_state.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::rm_stand_in {

inline State& driver() {
  static testing::TempFolder folder;
  static State* const only = [] {
    ::setenv("QGPU_DRIVER_ROOT", folder.path().c_str(), 1);
    prepare();
    return state();
  }();
  QGPU_CHECK(only != nullptr, "the stand-in's state is mapped");
  return *only;
}

// Channels that are off the card now, of whatever process.
inline int channelsOff() {
  int count = 0;
  for (const Object& object : driver().objects) {
    count += object.pid != 0 && object.stopped.load() != 0 ? 1 : 0;
  }
  return count;
}

// What a program needs to meet it.
inline testing::Environment drivers() {
  driver();
  return {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR},
          {"LD_PRELOAD", QGPU_RM_STAND_IN},
          {"QGPU_LIB", QGPU_TESTING_LIBRARY},
          {"QGPU_DRIVER_ROOT", std::getenv("QGPU_DRIVER_ROOT")}};
}

}  // namespace qgpu::rm_stand_in
