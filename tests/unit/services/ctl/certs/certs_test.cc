// `certs` in a folder of the test's own: what it makes is what daemons and OpenSSL take, keys are
// nobody else's, nothing is overwritten, and renewing keeps whose a certificate is.

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>

#include "runtime/fd.h"
#include "services/api/rpc/certificate.h"
#include "services/base/net/pem.h"
#include "services/base/net/x509.h"
#include "services/base/wall_time.h"
#include "services/ctl/certs/authority.h"
#include "tests/testing/certificates.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::ctl::certs_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNow = 1'790'000'000;

struct CertsFolder : ::testing::Test {
  CertsOptions ask(Certs what) const {
    CertsOptions options;
    options.what = what;
    options.folder = folder;
    return options;
  }
  CertsOptions issueOf(const std::string& name, const std::string& role = "node") const {
    CertsOptions options = ask(Certs::Issue);
    options.name = name;
    options.role = role;
    return options;
  }
  // By name, what was made.
  std::map<std::string, CertificateEntry> done(const CertsOptions& options,
                                               std::int64_t now = kNow) const {
    const auto made = certificates(options, now);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    std::map<std::string, CertificateEntry> entries;
    if (!made) return entries;
    for (const CertificateEntry& entry : *made) entries[entry.name] = entry;
    return entries;
  }
  // Whether it is refused so, with these words.
  static void expectRefused(const CertsOptions& options, ErrorCode code, const std::string& words,
                            std::int64_t now = kNow) {
    const auto made = certificates(options, now);
    ASSERT_FALSE(made.ok()) << words;
    EXPECT_EQ(made.error().code, code) << made.error().message;
    EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
  }
  std::string at(const std::string& file) const { return folder + "/" + file; }
  std::string text(const std::string& file) const {
    std::ifstream in(at(file));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  mode_t modeOf(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  const testing::TempFolder temp{"cs"};
  const std::string folder = temp.path() + "/certs";
};

TEST_F(CertsFolder, KeysAreBornForTheirUserAloneWhateverTheUmask) {
  const mode_t before = ::umask(0);
  done(ask(Certs::Init));
  done(issueOf("node-1"));
  ::umask(before);
  EXPECT_EQ(modeOf(folder), 0700u);
  EXPECT_EQ(modeOf(at("ca.key")), 0600u);
  EXPECT_EQ(modeOf(at("node-1.key")), 0600u);
  EXPECT_EQ(modeOf(at("node-1.pem")), 0644u);
  EXPECT_TRUE(openTls({at("node-1.pem"), at("node-1.key"), at("ca.pem")}).ok());
  std::size_t files = 0;
  for (const auto& file : fs::directory_iterator(folder)) files += file.exists() ? 1 : 0;
  EXPECT_EQ(files, 4u) << "nothing else is left behind";
}

TEST_F(CertsFolder, RolesAreThoseThatDaemonsRead) {
  done(ask(Certs::Init));
  for (const std::string& role : certificateRoles()) done(issueOf("the-" + role, role));
  EXPECT_TRUE(ownerOf(text("the-node.pem")).mayJoinAs("the-node"));
  EXPECT_FALSE(ownerOf(text("the-node.pem")).mayChange());
  EXPECT_TRUE(ownerOf(text("the-admin.pem")).mayChange());
  for (const char* reads : {"the-reader", "the-scheduler"}) {
    const CertificateOwner owner = ownerOf(text(std::string(reads) + ".pem"));
    EXPECT_FALSE(owner.mayChange() || owner.mayJoin()) << reads;
  }
  EXPECT_EQ(done(ask(Certs::Show)).at("the-admin").role, "admin");
}

TEST_F(CertsFolder, ACertificateIsForItsNameAndForThoseThatWereSaid) {
  done(ask(Certs::Init));
  CertsOptions options = issueOf("scheduler.example.org", "scheduler");
  options.names = {"scheduler", "10.0.0.1", "fd00::1"};
  EXPECT_EQ(done(options).at("scheduler.example.org").names, "scheduler,10.0.0.1,fd00::1");
  const std::string pem = text("scheduler.example.org.pem");
  for (const char* host : {"scheduler.example.org", "scheduler", "10.0.0.1", "fd00::1"}) {
    EXPECT_TRUE(isFor(pem, host)) << host;
  }
  EXPECT_FALSE(isFor(pem, "other.example.org"));
  done(issueOf("alice@example.org", "admin"));
  EXPECT_EQ(ownerOf(text("alice@example.org.pem")).names,
            std::vector<std::string>{"alice@example.org"});
}

TEST_F(CertsFolder, OpenSslFindsThemGoodForTheirEndAndNoOther) {
  CertsOptions init = ask(Certs::Init);
  const std::int64_t now = unixMsNow() / 1000;
  done(init, now);
  done(issueOf("node-1"), now);
  done(issueOf("alice", "admin"), now);
  const auto verified = [&](const std::string& purpose, const std::string& name) {
    return testing::run({"openssl", "verify", "-x509_strict", "-CAfile", at("ca.pem"), "-purpose",
                         purpose, at(name + ".pem")})
               .status == 0;
  };
  EXPECT_TRUE(verified("sslclient", "node-1"));
  EXPECT_TRUE(verified("sslserver", "node-1"));
  EXPECT_TRUE(verified("sslclient", "alice"));
  EXPECT_FALSE(verified("sslserver", "alice")) << "a person is no server";
}

TEST_F(CertsFolder, NothingIsOverwrittenUnlessThatIsSaid) {
  done(ask(Certs::Init));
  done(issueOf("node-1"));
  const std::string ca = text("ca.key"), key = text("node-1.key");
  expectRefused(ask(Certs::Init), ErrorCode::AlreadyExists, "--force");
  expectRefused(issueOf("node-1", "admin"), ErrorCode::AlreadyExists, at("node-1.pem"));
  fs::remove(at("node-1.pem"));
  expectRefused(issueOf("node-1"), ErrorCode::AlreadyExists, at("node-1.key"));
  EXPECT_EQ(text("ca.key"), ca);
  EXPECT_EQ(text("node-1.key"), key);
  CertsOptions forced = issueOf("node-1");
  forced.force = true;
  done(forced);
  EXPECT_NE(text("node-1.key"), key);
  EXPECT_TRUE(belongTogether(text("node-1.pem"), text("node-1.key")));
  CertsOptions again = ask(Certs::Init);
  again.force = true;
  done(again);
  EXPECT_NE(text("ca.key"), ca);
  EXPECT_EQ(done(ask(Certs::Show)).at("node-1").note, "not signed by ca.pem");
}

TEST_F(CertsFolder, SerialNumbersAreEachOnce) {
  done(ask(Certs::Init));
  std::set<std::string> serials;
  CertsOptions options = issueOf("node-1");
  options.force = true;
  for (int i = 0; i < 20; ++i) {
    done(options);
    serials.insert(
        testing::run({"openssl", "x509", "-noout", "-serial", "-in", at("node-1.pem")}).output);
  }
  EXPECT_EQ(serials.size(), 20u);
}

TEST_F(CertsFolder, OnlyWhatEndsSoonIsRenewedAndKeepsNamesRoleAndKey) {
  done(ask(Certs::Init));
  CertsOptions options = issueOf("node-1");
  options.names = {"node-1.example.org", "10.0.0.7"};
  done(options);
  options = issueOf("alice", "admin");
  options.days = 20;
  done(options);
  const std::string node = text("node-1.pem"), key = text("node-1.key");
  EXPECT_EQ(done(ask(Certs::Renew)).size(), 0u) << "nothing would last longer";
  EXPECT_EQ(done(ask(Certs::Renew), kNow + kDaySeconds).size(), 1u) << "alice alone";
  EXPECT_EQ(text("node-1.pem"), node);

  const std::int64_t later = kNow + 340 * kDaySeconds;
  fs::remove(at("node-1.key"));  // it is on its own machine
  const auto renewed = done(ask(Certs::Renew), later);
  EXPECT_EQ(renewed.size(), 2u);
  const std::string next = text("node-1.pem");
  EXPECT_NE(next, node);
  EXPECT_TRUE(belongTogether(next, key));
  EXPECT_TRUE(signedBy(next, text("ca.pem")));
  EXPECT_EQ(*expiryOf(next), later + 365 * kDaySeconds) << "as long as before";
  EXPECT_EQ(*expiryOf(text("alice.pem")), later + 20 * kDaySeconds);
  EXPECT_TRUE(ownerOf(next).mayJoinAs("node-1.example.org"));
  EXPECT_TRUE(isFor(next, "10.0.0.7"));
  EXPECT_TRUE(ownerOf(text("alice.pem")).mayChange());
  EXPECT_EQ(fs::exists(at("node-1.key")), false);
}

TEST_F(CertsFolder, ARenewedCaTakesWhatTheOneBeforeSigned) {
  CertsOptions init = ask(Certs::Init);
  init.days = 100;
  done(init);
  const std::string first = text("ca.pem");
  EXPECT_EQ(done(issueOf("node-1")).at("node-1").until, kNow + 100 * kDaySeconds)
      << "not longer than its CA";
  const std::string node = text("node-1.pem");
  const std::int64_t later = kNow + 90 * kDaySeconds;
  const auto renewed = done(ask(Certs::Renew), later);
  ASSERT_EQ(renewed.size(), 2u);
  EXPECT_EQ(renewed.at("ca").until, later + 100 * kDaySeconds);
  EXPECT_EQ(renewed.at("node-1").until, later + 100 * kDaySeconds);
  EXPECT_TRUE(signedBy(node, text("ca.pem"))) << "machines that are not there yet";
  EXPECT_TRUE(signedBy(text("node-1.pem"), first)) << "and those that have the old ca.pem";
  EXPECT_TRUE(belongTogether(text("ca.pem"), text("ca.key")));
}

TEST_F(CertsFolder, WhatOpensslMadeByHandIsRenewedToo) {
  fs::create_directory(folder);
  testing::Certificates made(folder);
  made.makeCa("ca");
  made.make("ca", "node-1", "DNS:node-1.example.org", "/OU=qgpu-node");
  fs::permissions(folder, fs::perms::owner_all);
  const std::int64_t now = unixMsNow() / 1000;
  CertsOptions longer = ask(Certs::Renew);
  longer.days = 365;
  EXPECT_EQ(done(longer, now).size(), 2u);
  EXPECT_TRUE(ownerOf(text("node-1.pem")).mayJoinAs("node-1.example.org"));
  EXPECT_TRUE(openTls({at("node-1.pem"), at("node-1.key"), at("ca.pem")}).ok());
  done(issueOf("node-2"), now);
  EXPECT_TRUE(openTls({at("node-2.pem"), at("node-2.key"), at("ca.pem")}).ok());
}

TEST_F(CertsFolder, SaysWhatIsMissingOrOpenAndWhatMendsIt) {
  expectRefused(issueOf("node-1"), ErrorCode::NotFound, folder);
  CertsOptions nowhere = ask(Certs::Init);
  nowhere.folder = temp.path() + "/none/certs";
  expectRefused(nowhere, ErrorCode::Unavailable, "--dir");
  fs::create_directory(folder);
  expectRefused(issueOf("node-1"), ErrorCode::NotFound, "certs init --dir " + folder);
  done(ask(Certs::Init));
  fs::permissions(at("ca.key"), fs::perms::group_read, fs::perm_options::add);
  expectRefused(issueOf("node-1"), ErrorCode::Denied, "chmod 600");
  fs::permissions(at("ca.key"), fs::perms::owner_read);
  fs::permissions(folder, fs::perms::others_write, fs::perm_options::add);
  expectRefused(ask(Certs::Renew), ErrorCode::Denied, "chmod 700");
  fs::permissions(folder, fs::perms::owner_all);
  expectRefused(issueOf("node-1"), ErrorCode::Conflict, "certs renew", kNow + 3650 * kDaySeconds);
  {
    const Fd held(::open(folder.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
    expectRefused(issueOf("node-1"), ErrorCode::Unavailable, "wait");
  }
  fs::rename(at("ca.key"), at("away.key"));
  expectRefused(issueOf("node-1"), ErrorCode::NotFound, at("ca.key"));
  std::ofstream(at("ca.key")) << *newPrivateKey();
  fs::permissions(at("ca.key"), fs::perms::owner_read | fs::perms::owner_write);
  expectRefused(issueOf("node-1"), ErrorCode::InvalidArgument, "is not the key of");
}

TEST_F(CertsFolder, TakesNoNameThatIsAPathOrMoreThanAName) {
  done(ask(Certs::Init));
  for (const char* name : {"", "../node", "a/b", ".pem", "a b", "a,DNS:b", "ca", "-x"}) {
    expectRefused(issueOf(name), ErrorCode::InvalidArgument, "");
  }
  expectRefused(issueOf(std::string(65, 'a')), ErrorCode::InvalidArgument, "--san");
  for (const char* other : {"a,DNS:b", "email:x", "a b", "x\n", "", "*"}) {
    CertsOptions options = issueOf("node-1");
    options.names = {other};
    expectRefused(options, ErrorCode::InvalidArgument, "--san");
  }
  CertsOptions many = issueOf("node-1");
  many.names.assign(CertsOptions::kNamesMax + 1, "a");
  expectRefused(many, ErrorCode::InvalidArgument, "at most 32");
}

TEST_F(CertsFolder, AsAProgramSaysWhatItMadeAndEndsWithThreeWhereItIsRefused) {
  const auto certs = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {QGPUCTL, "certs"});
    words.insert(words.end(), {"--dir", folder});
    return testing::run(words);
  };
  EXPECT_EQ(certs({"init"}).status, 0);
  const testing::Finished made =
      certs({"issue", "node-1", "--role", "node", "--san", "10.0.0.1", "--days", "90d"});
  EXPECT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find(at("node-1.pem")), std::string::npos) << made.output;
  EXPECT_EQ(certs({"issue", "node-1"}).status, 3);
  EXPECT_EQ(certs({"issue", "a/b"}).status, 2);
  EXPECT_EQ(certs({"issue", "b", "--role", "nodes"}).status, 2);
  EXPECT_EQ(certs({"issue", "b", "--days", "0"}).status, 2);
  const testing::Finished none = certs({"renew"});
  EXPECT_EQ(none.output, "nothing to renew\n");
  const testing::Finished shown = certs({"show", "-o", "json", "--before", "100d"});
  EXPECT_NE(shown.output.find(R"("name":"node-1","role":"node","names":"10.0.0.1")"),
            std::string::npos)
      << shown.output;
  EXPECT_NE(shown.output.find("ends soon"), std::string::npos) << shown.output;
}

}  // namespace
}  // namespace qgpu::ctl::certs_test
