#pragma once
// What every file of this room says of the library of tests: children, folders and waiting.

#include <nlohmann/json.hpp>

#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"
#include "tests/testing/private_daemon.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::e2e {

using Json = nlohmann::json;
using testing::askSocket;
using testing::binary;
using testing::Child;
using testing::Environment;
using testing::eventually;
using testing::Finished;
using testing::library;
using testing::monotonicNs;
using testing::run;
using testing::TempFolder;

// The first value of a field in the log of a daemon.
inline std::string loggedIn(const std::string& log, const std::string& field) {
  const std::size_t at = log.find(" " + field + "=") + field.size() + 2;
  return log.substr(at, log.find_first_of(" \n", at) - at);
}

}  // namespace qgpu::e2e
