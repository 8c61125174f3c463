#include "services/ctl/certs/authority.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/fd.h"
#include "runtime/whole_file.h"
#include "services/api/rpc/certificate.h"
#include "services/base/json.h"
#include "services/base/net/pem.h"
#include "services/base/net/x509.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/table.h"

namespace qgpu::ctl {
namespace {

namespace fs = std::filesystem;
using Use = CertificateAsk::Use;
using Entries = std::vector<CertificateEntry>;

constexpr std::string_view kCa = "ca";
constexpr const char* kCaName = "qgpu CA";
constexpr mode_t kKeyMode = 0600, kCertMode = 0644, kFolderMode = 0700;

struct Role {
  const char* name;
  const char* unit;
  Use use;
};
// A manager serves metrics by its certificate, and a scheduler dials nobody but is asked to by
// --extender; people only ask.
constexpr std::array<Role, 4> kRoles = {{{"node", kNodeUnit, Use::Peer},
                                         {"scheduler", kSchedulerUnit, Use::Peer},
                                         {"reader", kReaderUnit, Use::Client},
                                         {"admin", kAdminUnit, Use::Client}}};

bool isAddress(const std::string& text) {
  in6_addr to{};
  return ::inet_pton(AF_INET, text.c_str(), &to) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &to) == 1;
}
// A name becomes a file's.
Status checkName(const std::string& name) {
  if (name == kCa) {
    return fail(ErrorCode::InvalidArgument, "\"ca\" is the CA's own name: choose another");
  }
  const Status good = checkCertificateName(name);
  if (good || name.size() <= kCommonNameMax) return good;
  return fail(ErrorCode::InvalidArgument,
              good.error().message + ": shorten it, and say the whole as --san");
}

// Clients compare the host as they write it with DNS entries, also where that is an address.
Status addNames(CertificateAsk& ask, const CertsOptions& options) {
  if (options.names.size() > CertsOptions::kNamesMax) {
    return fail(ErrorCode::InvalidArgument,
                "at most " + std::to_string(CertsOptions::kNamesMax) + " times --san");
  }
  std::vector<std::string> all = {options.name};
  all.insert(all.end(), options.names.begin(), options.names.end());
  for (const std::string& name : all) {
    const bool address = isAddress(name);
    if (address) ask.addresses.push_back(name);
    if (address || isDnsName(name)) {
      ask.names.push_back(name);
    } else if (&name != &all.front()) {
      return fail(ErrorCode::InvalidArgument, "--san \"" + name +
                                                  "\" is neither a host name, as in "
                                                  "node-1.example.org, nor an IP address");
    }
  }
  return ok();
}

// The folder, held so that nobody else issues at the same time.
class Folder {
 public:
  static Result<Folder> open(const std::string& path, bool make) {
    // The default's own place may be missing; of another path that is a typo.
    const std::string above = path.substr(0, path.rfind('/'));
    if (make && path == CertsOptions().folder) ::mkdir(above.c_str(), 0755);
    if (make && ::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
      const std::string why = std::strerror(errno);
      return fail(ErrorCode::Unavailable,
                  "can't make the folder " + path + ": " + why + "; name another with --dir");
    }
    Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) {
      const bool missing = errno == ENOENT;
      const std::string why = std::strerror(errno);
      return fail(missing ? ErrorCode::NotFound : ErrorCode::Denied,
                  "can't open the folder " + path + ": " + why +
                      "; make a CA with `qgpuctl certs init`, or name its folder with --dir");
    }
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      return fail(ErrorCode::Denied,
                  path +
                      " may be written to by others, who could put a CA of theirs there: "
                      "chmod 700 " +
                      path);
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return fail(ErrorCode::Unavailable,
                  "another `qgpuctl certs` works in " + path + ": wait for its end");
    }
    return Folder(path, std::move(fd));
  }

  std::string at(std::string_view name, const char* end) const {
    return path_ + "/" + std::string(name) + end;
  }
  bool has(std::string_view name, const char* end) const {
    struct stat info {};
    return ::lstat(at(name, end).c_str(), &info) == 0;
  }
  Result<std::string> read(std::string_view name, const char* end) const {
    return readSmallFile(at(name, end) + ": ", at(name, end));
  }
  const std::string& path() const { return path_; }

 private:
  Folder(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  Fd fd_;
};

constexpr const char* kCert = ".pem";
constexpr const char* kKey = ".key";

Error noCa(const Folder& folder) {
  return fail(ErrorCode::NotFound, "there is no CA in " + folder.path() +
                                       ": make one with `qgpuctl certs init --dir " +
                                       folder.path() + "`, or name its folder with --dir");
}

Result<KeyPair> readCa(const Folder& folder) {
  if (!folder.has(kCa, kCert)) return noCa(folder);
  if (!folder.has(kCa, kKey)) {
    return fail(ErrorCode::NotFound,
                folder.at(kCa, kKey) +
                    " is not here: certificates are issued where `qgpuctl certs init` was run");
  }
  struct stat info {};
  const std::string path = folder.at(kCa, kKey);
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(ErrorCode::Denied, path + " may be used by others: chmod 600 " + path +
                                       ", or make a new CA if somebody did");
  }
  auto cert = folder.read(kCa, kCert);
  if (!cert) return cert.error();
  auto key = folder.read(kCa, kKey);
  if (!key) return key.error();
  if (!belongTogether(*cert, *key)) {
    return fail(ErrorCode::InvalidArgument,
                path + " is not the key of " + folder.at(kCa, kCert) +
                    ": bring the pair of one CA there, the key without a passphrase");
  }
  return KeyPair{std::move(*cert), std::move(*key)};
}

CertificateEntry entryOf(const Folder& folder, const std::string& name, const std::string& pem) {
  CertificateEntry entry;
  entry.name = name;
  entry.file = folder.at(name, kCert);
  const auto until = expiryOf(pem);
  entry.until = until ? *until : 0;
  if (!until) entry.note = "no certificate";
  const CertificateOwner owner = ownerOf(pem);
  entry.role = name == kCa ? "ca" : "";
  for (const Role& role : kRoles) {
    const bool has = std::ranges::count(owner.units, role.unit) != 0;
    if (has) entry.role += (entry.role.empty() ? "" : ",") + std::string(role.name);
  }
  if (entry.role.empty()) entry.role = "-";
  for (const std::string& other : owner.names) {
    if (other == name || name == kCa) continue;
    entry.names += (entry.names.empty() ? "" : ",") + other;
  }
  return entry;
}

// The key before the certificate: a pair that is half new is never used.
Status writePair(const Folder& folder, const std::string& name, const KeyPair& pair) {
  if (Status key = writeAnew(folder.at(name, kKey), pair.key, kKeyMode); !key) return key;
  return writeAnew(folder.at(name, kCert), pair.cert, kCertMode);
}

Result<Entries> make(const Folder& folder, const std::string& name, const CertificateAsk& ask,
                     const KeyPair* ca) {
  auto key = newPrivateKey();
  if (!key) return key.error();
  auto cert = newCertificate(ask, *key, ca);
  if (!cert) return cert.error();
  if (Status written = writePair(folder, name, {*cert, *key}); !written) return written.error();
  return Entries{entryOf(folder, name, *cert)};
}

std::string untilText(const CertificateEntry& entry) {
  return entry.until == 0 ? "" : rfc3339(entry.until * 1000);
}

std::int64_t inSeconds(std::uint64_t days) {
  return static_cast<std::int64_t>(days) * kDaySeconds;
}

Result<Entries> init(const Folder& folder, const CertsOptions& options, std::int64_t now) {
  if (!options.force && (folder.has(kCa, kCert) || folder.has(kCa, kKey))) {
    return fail(ErrorCode::AlreadyExists, "there is a CA in " + folder.path() +
                                              ": nobody would trust what it signed after "
                                              "another took its place; if that is meant, --force");
  }
  const CertificateAsk ask{
      .use = Use::Ca,
      .name = kCaName,
      .from = now - kEarlySeconds,
      .until = now + inSeconds(options.days == 0 ? CertsOptions::kCaDays : options.days)};
  return make(folder, std::string(kCa), ask, nullptr);
}

Result<std::int64_t> endOfCa(const Folder& folder, const KeyPair& ca, std::int64_t now) {
  const auto until = expiryOf(ca.cert);
  if (until && *until > now) return until;
  return fail(ErrorCode::Conflict, "the CA in " + folder.path() +
                                       " has ended: `qgpuctl certs renew --dir " + folder.path() +
                                       "`, and bring ca.pem to each machine");
}

Result<Entries> issue(const Folder& folder, const CertsOptions& options, std::int64_t now) {
  const auto ca = readCa(folder);
  if (!ca) return ca.error();
  const auto last = endOfCa(folder, *ca, now);
  if (!last) return last.error();
  const std::string& name = options.name;
  if (!options.force && (folder.has(name, kCert) || folder.has(name, kKey))) {
    return fail(ErrorCode::AlreadyExists,
                folder.at(name, folder.has(name, kCert) ? kCert : kKey) +
                    " is there already: `qgpuctl certs renew` lengthens it, and --force makes "
                    "another key and certificate");
  }
  const auto* role = std::ranges::find(kRoles, options.role, &Role::name);
  if (role == kRoles.end()) {
    return fail(ErrorCode::InvalidArgument, "there is no role \"" + options.role + "\"");
  }
  const std::uint64_t days = options.days == 0 ? CertsOptions::kDays : options.days;
  CertificateAsk ask{.use = role->use,
                     .name = name,
                     .unit = role->unit,
                     .from = now - kEarlySeconds,
                     .until = std::min(now + inSeconds(days), *last)};
  if (Status named = addNames(ask, options); !named) return named.error();
  return make(folder, name, ask, &*ca);
}

// Names of the certificates in the folder, the CA first.
std::vector<std::string> certificatesIn(const Folder& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder.path(), error)) {
    const fs::path path = file.path();
    if (path.extension() == kCert) names.push_back(path.stem().string());
  }
  std::ranges::sort(names, {},
                    [](const std::string& name) { return std::pair(name != kCa, name); });
  return names;
}

// For as long as it was made for, where nobody says otherwise.
std::int64_t renewedUntil(const std::string& pem, const CertsOptions& options, std::int64_t now) {
  if (options.days != 0) return now + inSeconds(options.days);
  const auto from = beginningOf(pem), until = expiryOf(pem);
  if (!from || !until) return now + inSeconds(CertsOptions::kDays);
  return now + (*until - *from - kEarlySeconds + kDaySeconds - 1) / kDaySeconds * kDaySeconds;
}

Result<Entries> renew(const Folder& folder, const CertsOptions& options, std::int64_t now) {
  auto ca = readCa(folder);
  if (!ca) return ca.error();
  Entries made;
  for (const std::string& name : certificatesIn(folder)) {
    const auto pem = folder.read(name, kCert);
    const auto until = pem ? expiryOf(*pem) : Result<std::int64_t>(pem.error());
    const bool ours = pem && signedBy(*pem, ca->cert);
    if (!ours || !until || *until - now >= inSeconds(options.before)) continue;
    std::int64_t next = renewedUntil(*pem, options, now);
    if (name != kCa) {
      const auto last = endOfCa(folder, *ca, now);
      if (!last) return last.error();
      next = std::min(next, *last);
      if (next <= *until) continue;  // nothing would be won
    }
    const auto cert = renewedCertificate(*pem, *ca, now - kEarlySeconds, next);
    if (!cert) return cert.error();
    if (Status done = writeAnew(folder.at(name, kCert), *cert, kCertMode); !done) {
      return done.error();
    }
    made.push_back(entryOf(folder, name, *cert));
    if (name != kCa) continue;
    ca->cert = *cert;
    made.back().note = "bring it to each machine, as --tls-ca";
  }
  return made;
}

Result<Entries> show(const Folder& folder, const CertsOptions& options, std::int64_t now) {
  if (!folder.has(kCa, kCert)) return noCa(folder);
  const auto ca = folder.read(kCa, kCert);
  if (!ca) return ca.error();
  Entries all;
  for (const std::string& name : certificatesIn(folder)) {
    const auto pem = folder.read(name, kCert);
    CertificateEntry entry = entryOf(folder, name, pem ? *pem : "");
    if (entry.until == 0) {
      entry.note = pem ? "no PEM certificate" : "can't be read";
    } else if (!signedBy(*pem, *ca)) {
      entry.note = "not signed by ca.pem";
    } else if (entry.until <= now) {
      entry.note = "has ended: certs renew";
    } else if (entry.until - now < inSeconds(options.before)) {
      entry.note = "ends soon: certs renew";
    }
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace

std::vector<std::string> certificateRoles() {
  std::vector<std::string> names;
  for (const Role& role : kRoles) names.emplace_back(role.name);
  return names;
}

Result<std::vector<CertificateEntry>> certificates(const CertsOptions& options, std::int64_t now) {
  if (options.what == Certs::Issue) {
    if (Status named = checkName(options.name); !named) return named.error();
  }
  const auto folder = Folder::open(options.folder, options.what == Certs::Init);
  if (!folder) return folder.error();
  switch (options.what) {
    case Certs::Init:
      return init(*folder, options, now);
    case Certs::Issue:
      return issue(*folder, options, now);
    case Certs::Renew:
      return renew(*folder, options, now);
    case Certs::Show:
      break;
  }
  return show(*folder, options, now);
}

std::string certificatesTable(const std::vector<CertificateEntry>& entries) {
  Table table({{"NAME"}, {"ROLE"}, {"ALSO"}, {"UNTIL"}, {"FILE"}, {"NOTE"}});
  for (const CertificateEntry& entry : entries) {
    table.add({entry.name, entry.role, entry.names, untilText(entry), entry.file, entry.note});
  }
  return entries.empty() ? "nothing to renew\n" : table.text();
}

std::string certificatesJson(const std::vector<CertificateEntry>& entries) {
  JsonWriter json;
  json.beginObject().flag("ok", true).key("certificates").beginArray();
  for (const CertificateEntry& entry : entries) {
    json.beginObject().field("name", entry.name).field("role", entry.role);
    json.field("names", entry.names).field("until", untilText(entry));
    json.field("file", entry.file).field("note", entry.note).endObject();
  }
  json.endArray().endObject();
  return json.take() + "\n";
}

}  // namespace qgpu::ctl
