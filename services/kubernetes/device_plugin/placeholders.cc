#include "services/kubernetes/device_plugin/placeholders.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/base/tenant_variables.h"
#include "runtime/text_hash.h"
#include "runtime/whole_file.h"

namespace qgpu {
namespace {

constexpr unsigned kForTenants = 0644;
constexpr std::size_t kFileMax = 1 << 20;  // kDevicesMax ids and room

Error failed(const std::string& what) {
  return fail(ErrorCode::Unavailable, what + ": " + std::strerror(errno));
}

Status makeFolder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) {
    if (::chmod(path.c_str(), mode) == 0) return ok();
  } else if (errno == EEXIST) {
    return ok();
  }
  return failed(path);
}

std::string linesOf(const std::vector<std::string>& ids) {
  std::string lines;
  for (const std::string& id : sortedIds(ids)) lines += id + "\n";
  return lines;
}

// Nothing where it is not there, or larger than anything of ours.
std::string readFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kFileMax, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text.size() == kFileMax ? std::string() : text;
}

std::string settingsOf(const Grant& grant) {
  std::string cards;
  for (const std::string& card : grant.cards) cards += (cards.empty() ? "" : ",") + card;
  std::ostringstream out;
  out << "version=" << kSettingsVersion << "\ntask=" << grant.task
      << "\nnamespace=" << grant.container.nameSpace << "\npod=" << grant.container.pod
      << "\ncontainer=" << grant.container.container << "\ncards=" << cards << "\n";
  return out.str();
}

// Of nobody where nobody was started, or by somebody who writes another version.
Placeholder readSettings(std::string key, const std::string& settings) {
  std::istringstream in(settings);
  Placeholder read{std::move(key)};
  std::string version;
  for (std::string line; std::getline(in, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    const std::string value = line.substr(equals + 1);
    if (name == "version") version = value;
    if (name == "task") read.task = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "namespace") read.owner.nameSpace = value;
    if (name == "pod") read.owner.pod = value;
    if (name == "container") read.owner.container = value;
  }
  if (version != std::to_string(kSettingsVersion)) return Placeholder{std::move(read.key)};
  return read;
}

std::vector<std::string> linesIn(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Status writeGrant(const std::string& folder, const Grant& grant) {
  if (Status s = writeAnew(folder + "/settings", settingsOf(grant), kForTenants); !s) return s;
  std::string environment;
  for (const std::string& line : assignments(cardVariables(grant.cards))) {
    environment += line + "\n";
  }
  const std::string variables = folder + "/environment";
  if (environment.empty()) {
    ::unlink(variables.c_str());
  } else if (Status s = writeAnew(variables, environment, kForTenants); !s) {
    return s;
  }
  return writeAnew(folder + "/token", grant.token + "\n", kForTenants);
}

std::string Placeholders::keyOf(Resource resource, const std::vector<std::string>& ids) {
  return std::string(resourceWord(resource)) + "-" + textHashHex(linesOf(ids));
}

// Two sets of ids with one hash would share a token: the file of ids tells them apart.
Result<std::string> Placeholders::open(Resource resource,
                                       const std::vector<std::string>& ids) const {
  const std::string path = pathOf(keyOf(resource, ids));
  if (Status made = makeFolder(dir_, 0700); !made) return made.error();
  if (Status made = makeFolder(path, 0755); !made) return made.error();
  const std::string lines = linesOf(ids);
  const std::string held = readFile(path + "/devices");
  if (held == lines) return path;
  if (!held.empty()) {
    return fail(ErrorCode::Conflict, path + " stands for other devices with the same hash");
  }
  if (Status written = writeAnew(path + "/devices", lines, kForTenants); !written) {
    return written.error();
  }
  return path;
}

Result<std::string> Placeholders::prepare(Resource resource,
                                          const std::vector<std::string>& ids) const {
  const Result<std::string> path = open(resource, ids);
  if (!path) return path;
  ::unlink((*path + "/token").c_str());
  ::unlink((*path + "/settings").c_str());
  ::unlink((*path + "/environment").c_str());
  return path;
}

Status Placeholders::fill(Resource resource, const std::vector<std::string>& ids,
                          const Grant& grant) const {
  const Result<std::string> path = open(resource, ids);
  return path ? writeGrant(*path, grant) : Status(path.error());
}

std::vector<Placeholder> Placeholders::list() const {
  std::vector<Placeholder> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir_, error)) {
    if (!entry.is_directory(error)) continue;
    found.push_back(
        readSettings(entry.path().filename().string(), readFile(entry.path() / "settings")));
    found.back().ids = linesIn(readFile(entry.path() / "devices"));
  }
  return found;
}

void Placeholders::remove(const std::string& key) const {
  std::error_code error;
  std::filesystem::remove_all(pathOf(key), error);
}

}  // namespace qgpu
