#pragma once
// What a node's container runtime can, by the name that the node has for it
// (status.nodeInfo.containerRuntimeVersion): "containerd://1.7.2". One that is not known can.

#include <string_view>

namespace qgpu {

// Takes folders of device nodes: Docker and CRI-O always did, containerd since 1.5.
bool takesDeviceFolders(std::string_view runtime);

// Gives a container the CDI devices of its claims: containerd since 1.7, where it may be switched
// off. An older one passes over them without a word.
bool takesCdiDevices(std::string_view runtime);

}  // namespace qgpu
