#pragma once
// The private folder of one run: gone with the object, and, where the run was killed, with the next
// run, which knows from its name that nobody lives in it.

#include "tests/testing/temp_folder.h"

namespace qgpu::crash {

testing::TempFolder makeFolder();

}  // namespace qgpu::crash
