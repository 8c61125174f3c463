// The folder of a daemon: whose it must be, and that one daemon at a time has it.

#include "services/base/run_dir.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/testing/temp_folder.h"

namespace qgpu::run_dir_test {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

ErrorCode refusalOf(const std::string& path) {
  const Result<RunDir> claimed = RunDir::claim(path, "manager");
  EXPECT_FALSE(claimed.ok()) << path;
  if (claimed.ok()) return ErrorCode::Internal;
  EXPECT_NE(claimed.error().message.find(path), std::string::npos) << claimed.error().message;
  EXPECT_NE(claimed.error().message.find("--run-dir"), std::string::npos)
      << claimed.error().message;
  return claimed.error().code;
}

TEST(RunDir, MakesItsFolderSoThatOthersMayEnterAndNobodyElseMayWrite) {
  const TempFolder dir;
  const mode_t before = ::umask(0077);
  const Result<RunDir> claimed = RunDir::claim(dir.path() + "/run", "manager");
  ::umask(before);
  ASSERT_TRUE(claimed.ok()) << claimed.error().message;
  EXPECT_EQ(claimed->file("manager.sock"), dir.path() + "/run/manager.sock");
  struct stat folder {};
  ASSERT_EQ(::stat(claimed->path().c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777, 0755u);
}

TEST(RunDir, MakesNoFolderAboveItsOwn) {
  const TempFolder dir;
  for (const std::string path : {"/typo/x", "/typo/x/", "/typo/a/b"}) {
    EXPECT_EQ(refusalOf(dir.path() + path), ErrorCode::NotFound);
    EXPECT_FALSE(fs::exists(dir.path() + "/typo"));
  }
  const auto refused = RunDir::claim(dir.path() + "/typo/a/b", "manager");
  EXPECT_NE(refused.error().message.find("no folder " + dir.path() + "/typo for"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(RunDir::claim(dir.path() + "/new/", "manager").ok()) << "a slash at the end";
}

TEST(RunDir, BelongsToOneDaemonUntilThatOneIsGone) {
  const TempFolder dir;
  const std::string path = dir.path() + "/run";
  {
    Result<RunDir> first = RunDir::claim(path, "manager");
    ASSERT_TRUE(first.ok()) << first.error().message;
    const RunDir moved = std::move(*first);
    EXPECT_EQ(refusalOf(path), ErrorCode::Conflict);
  }
  EXPECT_TRUE(RunDir::claim(path, "manager").ok());
}

TEST(RunDir, MayBeSharedByDaemonsOfDifferentKinds) {
  const TempFolder dir;
  const std::string path = dir.path() + "/run";
  const Result<RunDir> manager = RunDir::claim(path, "manager");
  ASSERT_TRUE(manager.ok()) << manager.error().message;
  const Result<RunDir> scheduler = RunDir::claim(path, "scheduler");
  EXPECT_TRUE(scheduler.ok()) << scheduler.error().message;
}

TEST(RunDir, IsNoLinkNoFileAndNobodyElsesFolder) {
  const TempFolder dir;
  const std::string real = dir.path() + "/real";
  fs::create_directory(real);
  fs::create_directory_symlink(real, dir.path() + "/link");
  EXPECT_EQ(refusalOf(dir.path() + "/link"), ErrorCode::Denied);
  EXPECT_TRUE(fs::is_empty(real)) << "no lock was left behind a link";

  std::ofstream(dir.path() + "/file") << "text";
  EXPECT_FALSE(RunDir::claim(dir.path() + "/file", "manager").ok());
  EXPECT_EQ(refusalOf(dir.path() + "/file/below"), ErrorCode::Unavailable);

  fs::permissions(real, fs::perms::group_write, fs::perm_options::add);
  EXPECT_EQ(refusalOf(real), ErrorCode::Denied);
  fs::permissions(real, fs::perms::group_write, fs::perm_options::remove);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(real.c_str(), 65534, 65534), 0);
    EXPECT_EQ(refusalOf(real), ErrorCode::Denied);
    ASSERT_EQ(::chown(real.c_str(), 0, 0), 0);
  }
  EXPECT_TRUE(RunDir::claim(real, "manager").ok());
}

TEST(RunDir, FollowsNoLinkThatStandsWhereItsLockBelongs) {
  const TempFolder dir;
  const std::string run = dir.path() + "/run";
  fs::create_directory(run);
  fs::permissions(run, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove);
  fs::create_symlink(dir.path() + "/elsewhere", run + "/manager.lock");
  EXPECT_EQ(refusalOf(run), ErrorCode::Unavailable);
  EXPECT_FALSE(fs::exists(dir.path() + "/elsewhere"));
}

}  // namespace
}  // namespace qgpu::run_dir_test
