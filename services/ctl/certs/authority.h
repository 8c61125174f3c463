#pragma once
// `qgpuctl certs`: a folder with a CA, ca.pem and ca.key, and the pairs that it signed, NAME.pem
// and NAME.key. Who issues needs ca.key; a machine that shows a certificate needs its own pair and
// ca.pem.
//
// Keys are born readable for their user alone, and nothing is overwritten that was not asked for.
// Renewing keeps the key: only NAME.pem changes, and neither it nor the machine where the key lies
// is needed for more than that file. Certificates that another tool put here by these names are
// renewed as well. One `certs` works in a folder at a time.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu::ctl {

enum class Certs : std::uint8_t { Init, Issue, Renew, Show };

struct CertsOptions {
  static constexpr std::uint64_t kDaysMax = 36'500;
  static constexpr std::uint64_t kCaDays = 3650;
  static constexpr std::uint64_t kDays = 365;
  static constexpr std::uint64_t kBeforeDays = 30;
  static constexpr std::size_t kNamesMax = 32;  // --san

  Certs what = Certs::Show;
  std::string folder = "/etc/qgpu/certs";
  std::string name;                // whom to issue for
  std::string role = "node";       // one of certificateRoles()
  std::vector<std::string> names;  // beside `name`: DNS names and IP addresses
  std::uint64_t days = 0;          // 0: as long as the one before, else the default
  std::uint64_t before = kBeforeDays;
  bool force = false;
};

// What a certificate may be for, and the unit of its subject: node, scheduler, reader, admin.
std::vector<std::string> certificateRoles();

struct CertificateEntry {
  std::string name;
  std::string role;        // as the unit of its subject says, "ca", or "-" without one
  std::string names;       // DNS entries beside the name, with a comma between
  std::int64_t until = 0;  // Unix seconds
  std::string file;
  std::string note;  // empty where there is nothing to say
};

// What was made, or with Show what is there; the CA first. `now`: Unix seconds. InvalidArgument,
// NotFound, AlreadyExists, Denied and Unavailable name the file and what mends it.
Result<std::vector<CertificateEntry>> certificates(const CertsOptions& options, std::int64_t now);

std::string certificatesTable(const std::vector<CertificateEntry>& entries);
std::string certificatesJson(const std::vector<CertificateEntry>& entries);

}  // namespace qgpu::ctl
