#pragma once
// A program of a task of a cluster: it has been attached all the time, and launches.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/crash/tenant_record.h"
#include "tests/e2e/testing_names.h"

namespace qgpu::e2e {

class LaunchingProgram {
 public:
  // `assigned`: the answer to its submit. `tenant`: qgpu-crash-tenant, also of another release.
  LaunchingProgram(const Json& assigned, const testing::PrivateDaemon& node,
                   const std::string& tenant = binary("qgpu-crash-tenant")) {
    std::ofstream(record_).close();
    std::filesystem::resize_file(record_, sizeof(crash::TenantRecord));
    Environment environment;
    for (const auto& [name, value] : assigned["env"].items()) environment[name] = value;
    environment["QGPU_SOCKET"] = node.attachSocket();
    child_ = std::make_unique<Child>(
        std::vector<std::string>{tenant, record_, "200", "1000", "1048576"}, environment);
  }
  // Its launches go on from here.
  bool launches() {
    const std::uint64_t before = launched();
    return eventually([&] { return launched() > before + 10; }) && child_->alive();
  }

 private:
  std::uint64_t launched() const {
    crash::TenantRecord record;
    std::ifstream(record_, std::ios::binary).read(reinterpret_cast<char*>(&record), sizeof record);
    return record.launches.load();
  }

  TempFolder folder_{"program"};
  const std::string record_ = folder_ / "record";
  std::unique_ptr<Child> child_;
};

}  // namespace qgpu::e2e
