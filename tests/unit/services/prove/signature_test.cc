// Signatures by the real ssh-keygen, with keys made here.

#include "services/prove/signature.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "services/prove/card_reports.h"
#include "tests/testing/temp_folder.h"
#include "tests/unit/services/prove/example_report.h"

namespace qgpu::prove::signature_test {
namespace {

class Signature : public ::testing::Test {
 protected:
  void SetUp() override {
    write(file_, "{\"a\":1}\n");
    for (const char* name : {"key", "other"}) makeKey(name);
    allow("me@host", "key");
  }
  std::string at(const std::string& name) const { return made_.path() + "/" + name; }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  }
  void makeKey(const std::string& name) const {
    const std::string command = "ssh-keygen -q -t ed25519 -N '' -C c -f '" + at(name) + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << "openssh-client is needed";
  }
  void allow(const std::string& who, const std::string& key) const {
    write(signers_, who + " " + read(at(key + ".pub")) + "\n");
  }
  ErrorCode refusal() const {
    const auto signer = readSigned(file_, signers_);
    EXPECT_FALSE(signer);
    return signer ? ErrorCode::Internal : signer.error().code;
  }

  const testing::TempFolder made_{"prove"};
  const std::string file_ = at("report.json"), signers_ = at("signers");
};

TEST_F(Signature, NamesWhoMadeIt) {
  ASSERT_TRUE(sign(file_, at("key")));
  const auto signer = readSigned(file_, signers_);
  ASSERT_TRUE(signer) << signer.error().message;
  EXPECT_EQ(signer->signer, "me@host");
  EXPECT_EQ(signer->text, "{\"a\":1}\n");
}

TEST_F(Signature, IsReplacedByANewOne) {
  ASSERT_TRUE(sign(file_, at("other")));
  ASSERT_TRUE(sign(file_, at("key")));
  EXPECT_TRUE(readSigned(file_, signers_));
}

TEST_F(Signature, AChangedByteIsFound) {
  ASSERT_TRUE(sign(file_, at("key")));
  write(file_, "{\"a\":2}\n");
  EXPECT_EQ(refusal(), ErrorCode::Corrupt);
  EXPECT_NE(readSigned(file_, signers_).error().message.find("is not what me@host signed"),
            std::string::npos);
}

TEST_F(Signature, OfSomebodyElseIsDenied) {
  ASSERT_TRUE(sign(file_, at("other")));
  EXPECT_EQ(refusal(), ErrorCode::Denied);
}

TEST_F(Signature, OfAnotherPurposeCountsForNothing) {
  const std::string command =
      "ssh-keygen -q -Y sign -n git -f '" + at("key") + "' '" + file_ + "' 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(refusal(), ErrorCode::Corrupt);
}

TEST_F(Signature, ThatIsNotThereIsToldWithWhatMakesOne) {
  EXPECT_EQ(refusal(), ErrorCode::NotFound);
  EXPECT_NE(readSigned(file_, signers_).error().message.find("--sign KEY"), std::string::npos);
}

// What a manager makes of a report where it is told whose reports count.
TEST_F(Signature, OfNobodyWhoMayAReportCountsForNothing) {
  Report report = exampleReport();
  report.promises.pop_back();
  const auto why = [&](const std::string& signers) {
    const Standing here{"3.1", "6.1.0", "0.1.0"};
    return judgeNow(readReportBy(file_, signers), "opencl-0", here, 1'767'323'045'000).why;
  };
  const std::string refused = "none of --report-signers signed it";
  write(file_, jsonOf(report));
  EXPECT_EQ(why(""), "") << "whoever made it";
  EXPECT_EQ(why(signers_), refused) << "nobody signed it";
  ASSERT_TRUE(sign(file_, at("other")));
  EXPECT_EQ(why(signers_), refused) << "somebody else did";
  ASSERT_TRUE(sign(file_, at("key")));
  EXPECT_EQ(why(signers_), "");
  EXPECT_EQ(why(at("none")), refused) << "nobody may";
  report.promises[1].verdict = Verdict::Proven;
  write(file_, jsonOf(report));
  EXPECT_EQ(why(signers_), refused) << "it was altered since";
  std::filesystem::remove(file_);
  EXPECT_EQ(why(signers_), refused) << "there is none";
}

TEST_F(Signature, IsNotWaitedForWhereItsFileIsNone) {
  ASSERT_EQ(::mkfifo((file_ + ".sig").c_str(), 0600), 0);
  EXPECT_EQ(refusal(), ErrorCode::NotFound);
}

TEST_F(Signature, AFileThatIsNoKeySignsNothing) {
  const Status is = sign(file_, file_);
  ASSERT_FALSE(is);
  EXPECT_EQ(is.error().code, ErrorCode::InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(file_ + ".sig"));
}

}  // namespace
}  // namespace qgpu::prove::signature_test
