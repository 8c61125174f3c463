#pragma once
// Where a container that the device plugin set up has the manager's attach socket and its token.
// The library looks there whatever the variables of the container say, since a pod's come after the
// plugin's.

namespace qgpu {

inline constexpr const char* kTenantFolder = "/run/qgpu/tenant";  // folder of attach.sock
inline constexpr const char* kTenantSocket = "/run/qgpu/tenant/attach.sock";
inline constexpr const char* kTenantTask = "/run/qgpu/task";  // a folder for each resource
inline constexpr const char* kTenantClaim = "claim";          // and one for a claim
inline constexpr const char* kTenantTokens =
    "/run/qgpu/task/core/token:/run/qgpu/task/memory/token:/run/qgpu/task/greedy/token:"
    "/run/qgpu/task/claim/token";

}  // namespace qgpu
