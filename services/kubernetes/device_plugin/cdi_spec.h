#pragma once
// What containers of this node get, as the Container Device Interface says it: one file that
// container runtimes read, and a name by which Allocate asks for what stands there. It holds what
// is the same for every container: library and driver, and the nodes of all cards where containers
// can't have those of their own alone. What differs, as token and socket, stays with Allocate.
//
// The file is written anew beside the old one and renamed over it; it says which version of qgpu
// wrote it. It goes when the plugin ends, as when qgpu is taken off the node: a plugin that is
// replaced writes it again before it serves.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/kubernetes/device_plugin/container_setup.h"

namespace qgpu {

inline constexpr const char* kCdiVersion = "0.6.0";  // the first with annotations
inline constexpr const char* kCdiKind = "qgpu.io/card";
inline constexpr const char* kCdiDevice = "all";  // that there is
inline constexpr const char* kCdiFolder = "/var/run/cdi";
inline constexpr const char* kCdiFile = "qgpu.io-card.json";

// "qgpu.io/card=all".
std::string cdiDeviceName();

struct CdiDevice {
  std::string name;
  ContainerSetup edits;  // something
};
// The document of devices of one kind, at least one; `version` is qgpu's.
std::string cdiDocument(std::string_view kind, const std::vector<CdiDevice>& devices,
                        const std::string& version);
// Whether `setup` is anything that a CDI device may be: one without edits is none.
bool cdiOffers(const ContainerSetup& setup);
// The document for what `setup` says, which is something; `version` is qgpu's.
std::string cdiSpec(const ContainerSetup& setup, const std::string& version);

// A file of specs in `folder`, made where its parent is there.
class CdiFile {
 public:
  explicit CdiFile(std::string folder, std::string name = kCdiFile)
      : folder_(std::move(folder)), name_(std::move(name)) {}
  Status write(const std::string& spec) const;
  void remove() const;
  std::string path() const { return folder_ + "/" + name_; }

 private:
  std::string folder_;
  std::string name_;
};

}  // namespace qgpu
