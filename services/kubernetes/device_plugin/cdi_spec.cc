#include "services/kubernetes/device_plugin/cdi_spec.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "services/base/json.h"
#include "services/kubernetes/device_plugin/placeholders.h"

namespace qgpu {
namespace {

void writeEdits(JsonWriter& json, const ContainerSetup& edits) {
  json.beginObject();
  if (!edits.environment.empty()) {
    json.key("env").beginArray();
    for (const auto& [name, value] : edits.environment) json.string(name + "=" + value);
    json.endArray();
  }
  if (!edits.deviceNodes.empty()) {
    json.key("deviceNodes").beginArray();
    for (const std::string& node : edits.deviceNodes) {
      json.beginObject().field("path", node).field("permissions", "rw").endObject();
    }
    json.endArray();
  }
  if (!edits.mounts.empty()) {
    json.key("mounts").beginArray();
    for (const ContainerSetup::Mount& mount : edits.mounts) {
      json.beginObject().field("hostPath", mount.host).field("containerPath", mount.container);
      json.key("options").beginArray();
      for (const char* option : {"ro", "nosuid", "nodev", "bind"}) json.string(option);
      json.endArray().endObject();
    }
    json.endArray();
  }
  json.endObject();
}

}  // namespace

std::string cdiDeviceName() {
  return std::string(kCdiKind) + "=" + kCdiDevice;
}

bool cdiOffers(const ContainerSetup& setup) {
  return !setup.environment.empty() || !setup.deviceNodes.empty() || !setup.mounts.empty();
}

std::string cdiDocument(std::string_view kind, const std::vector<CdiDevice>& devices,
                        const std::string& version) {
  JsonWriter json;
  json.beginObject().field("cdiVersion", kCdiVersion).field("kind", kind);
  json.key("annotations").beginObject().field("qgpu.io/version", version).endObject();
  json.key("devices").beginArray();
  for (const CdiDevice& device : devices) {
    QGPU_CHECK(cdiOffers(device.edits), "a CDI device changes something");
    json.beginObject().field("name", device.name).key("containerEdits");
    writeEdits(json, device.edits);
    json.endObject();
  }
  json.endArray().endObject();
  return json.take() + "\n";
}

std::string cdiSpec(const ContainerSetup& edits, const std::string& version) {
  return cdiDocument(kCdiKind, {{kCdiDevice, edits}}, version);
}

Status CdiFile::write(const std::string& spec) const {
  if (::mkdir(folder_.c_str(), 0755) != 0 && errno != EEXIST) {
    return fail(ErrorCode::Unavailable,
                folder_ + ": " + std::strerror(errno) + "; --cdi=DIR names another folder");
  }
  return writeAnew(path(), spec, 0644);
}

void CdiFile::remove() const {
  ::unlink(path().c_str());
}

}  // namespace qgpu
