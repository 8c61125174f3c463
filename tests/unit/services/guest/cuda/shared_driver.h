#pragma once
// The kernel's stand-in that all tenants of one test program share: a folder for all its tests,
// since the state is mapped once.

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/rm_stand_in/rm_state.h"
#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing {

inline DriverRoot& driverRoot() {
  static DriverRoot only;
  return only;
}
inline rm_stand_in::State& driver() {
  static rm_stand_in::State* const only = [] {
    setenv("QGPU_DRIVER_ROOT", driverRoot().path().c_str(), 1);
    rm_stand_in::prepare();
    return rm_stand_in::state();
  }();
  return *only;
}

// The environment of a tenant that meets it.
inline std::vector<std::string> sharedTenantOf(const FakeManager& manager) {
  driver();
  return driverRoot().tenantOf(manager, QGPU_RM_STAND_IN);
}

}  // namespace qgpu::testing
