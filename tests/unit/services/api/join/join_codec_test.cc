// What a machine that joins and the scheduler say to one another.
#include "services/api/join/join_codec.h"

#include <gtest/gtest.h>

#include "services/base/net/pem.h"
#include "services/base/net/x509.h"

namespace qgpu::join_codec_test {
namespace {

const std::string kId = "1f2e3d4c", kSecret(32, 'a'), kCa(64, '0');

TEST(JoinWords, ATokenIsReadWholeOrRefused) {
  const std::string text = kId + "." + kSecret + "." + kCa;
  const auto token = readToken(text);
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(token->secret, kSecret);
  EXPECT_EQ(tokenText(*token), text);
  for (const std::string& wrong :
       {std::string(), std::string("."), std::string(".."), kId, kId + "." + kSecret, text + "0",
        text.substr(1), kId + "." + kSecret + "." + std::string(64, 'A'),
        kId + "." + std::string(32, 'g') + "." + kCa, text + "." + kCa, " " + text}) {
    EXPECT_FALSE(readToken(wrong).ok()) << wrong;
  }
}

TEST(JoinWords, WhatIsAskedIsReadAsItWasWritten) {
  const JoinAsk ask{kId, kSecret, "node-7", "-----BEGIN\n\"x\"", 1'700'000'000};
  const auto read = readJoinAsk(joinAskText(ask));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->node, ask.node);
  EXPECT_EQ(read->request, ask.request);
  EXPECT_EQ(read->unix, ask.unix);
  for (const char* wrong : {"", "7", "{}", "[]", R"({"id":1})", "{\"id\":"}) {
    EXPECT_FALSE(readJoinAsk(wrong).ok()) << wrong;
  }
  JoinAsk none = ask;
  none.node.clear();
  EXPECT_FALSE(readJoinAsk(joinAskText(none)).ok());
  EXPECT_FALSE(readJoinAsk(std::string(kJoinBodyMax + 1, ' ')).ok());
}

TEST(JoinWords, AnAnswerIsWholeOrItsRefusal) {
  const auto answer = readJoinAnswer(joinAnswerText({"cert", "ca", 12346}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->rpcPort, 12346u);
  const auto refused = readJoinAnswer(R"({"ok":false,"error":"used","code":"conflict"})");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "used");
  for (const char* wrong : {"", "here are /join", "{}", R"({"ok":true})",
                            R"({"ok":true,"certificate":"a","ca":"b","rpc_port":65536})"}) {
    EXPECT_FALSE(readJoinAnswer(wrong).ok()) << wrong;
  }
}

TEST(JoinWords, ARequestIsReadOnlyWhereItsOwnKeySignedIt) {
  const std::string key = *newPrivateKey();
  const std::string request = *newRequest("node-7", key);
  const auto read = readRequest(request);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->name, "node-7");
  const KeyPair ca{
      *newCertificate({.use = CertificateAsk::Use::Ca, .name = "ca", .until = 1000}, key, nullptr),
      key};
  const auto cert = newCertificateFor({.name = "node-7", .until = 1000}, read->publicKey, ca);
  ASSERT_TRUE(cert.ok());
  EXPECT_TRUE(belongTogether(*cert, key));
  EXPECT_TRUE(signedBy(*cert, ca.cert));
  // Another name in the same bytes.
  std::string bent = request;
  bent[bent.find('\n', 60) + 10] ^= 1;
  EXPECT_FALSE(readRequest(bent).ok());
  for (const std::string& wrong : {std::string(), key, ca.cert, request.substr(0, 100)}) {
    EXPECT_FALSE(readRequest(wrong).ok());
  }
  EXPECT_EQ(readRequest(*newRequest("no/name", key))->name, "");
}

TEST(JoinWords, FingerprintsAreThoseOfTheEncodedBytes) {
  EXPECT_EQ(sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(fingerprintOf("no certificate"), "");
  EXPECT_EQ(randomHex(16).size(), 32u);
  EXPECT_NE(randomHex(16), randomHex(16));
}

}  // namespace
}  // namespace qgpu::join_codec_test
