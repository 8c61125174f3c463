#pragma once
// What a container gets beside what its image and its pod say.

#include <map>
#include <string>
#include <vector>

namespace qgpu {

struct ContainerSetup {
  struct Mount {
    std::string container;
    std::string host;
    bool operator==(const Mount&) const = default;
  };
  std::map<std::string, std::string> environment;
  std::vector<Mount> mounts;             // read-only
  std::vector<std::string> deviceNodes;  // of the host, at the same place in the container
  std::vector<Mount> deviceFolders;      // whatever nodes lie in it when the container is created
  std::vector<std::string> cdiDevices;   // full names, for runtimes that know the rest of it
  std::string wide;  // why it has the nodes of cards that are not its own; empty: it has none
};

}  // namespace qgpu
