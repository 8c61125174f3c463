#pragma once
// Calls to the driver's kernel side that a test makes of a program word by word, past libcuda: to
// files, clients and objects by number. For cuda_program.

#include <sstream>
#include <string>

namespace qgpu::testing {

// "<rc> <status>" of most; see the words in cuda_rm.cc.
std::string obeyRm(std::istringstream& in);

}  // namespace qgpu::testing
