#include <gtest/gtest.h>

#include "services/base/net/pem.h"
#include "services/kubernetes/webhook/certificates.h"

namespace qgpu::webhook_certificates_test {
namespace {

constexpr std::int64_t kNow = 1'790'000'000;
const std::vector<std::string> kNames = {"qgpu-scheduler.kube-system.svc", "qgpu-scheduler"};

CertificateSet made(const std::optional<CertificateSet>& before = {}, std::int64_t now = kNow,
                    const std::vector<std::string>& names = kNames) {
  auto set = renewed(before, names, now);
  EXPECT_TRUE(set.ok()) << (set.ok() ? "" : set.error().message);
  if (!set.ok()) return {};
  EXPECT_TRUE(set->has_value()) << "nothing was renewed";
  return set->value_or(CertificateSet{});
}

bool isKept(const CertificateSet& set, std::int64_t now,
            const std::vector<std::string>& names = kNames) {
  const auto next = renewed(set, names, now);
  return next.ok() && !next->has_value();
}

std::size_t certificatesIn(const std::string& bundle) {
  const auto parsed = parseBundle("bundle: ", bundle);
  return parsed.ok() ? parsed->size() : 0;
}

TEST(WebhookCertificates, AreMadeOfNothingAndKeptThen) {
  const CertificateSet set = made();
  EXPECT_EQ(certificatesIn(set.ca), 1u);
  EXPECT_TRUE(belongTogether(set.cert, set.key));
  EXPECT_TRUE(belongTogether(set.ca, set.caKey));
  EXPECT_FALSE(belongTogether(set.cert, set.caKey));
  EXPECT_EQ(*expiryOf(set.cert), kNow + kServerSeconds);
  EXPECT_EQ(*expiryOf(set.ca), kNow + kCaSeconds);
  EXPECT_TRUE(isKept(set, kNow));
  EXPECT_TRUE(isKept(set, kNow + kServerSeconds / 2));
}

TEST(WebhookCertificates, AreRenewedWithAThirdOfTheirTimeLeftByTheSameCa) {
  const CertificateSet set = made();
  const std::int64_t late = kNow + kServerSeconds * 2 / 3;
  EXPECT_TRUE(isKept(set, late - 1));
  const CertificateSet next = made(set, late);
  EXPECT_EQ(next.ca, set.ca);
  EXPECT_EQ(next.caKey, set.caKey);
  EXPECT_NE(next.cert, set.cert);
  EXPECT_NE(next.key, set.key);
  EXPECT_EQ(*expiryOf(next.cert), late + kServerSeconds);
}

TEST(WebhookCertificates, ANewCaLeavesTheOneBeforeInTheBundleUntilItEnds) {
  const CertificateSet set = made();
  const std::int64_t late = kNow + kCaSeconds * 2 / 3;
  const CertificateSet next = made(set, late);
  EXPECT_EQ(certificatesIn(next.ca), 2u);
  EXPECT_NE(next.ca.find(set.ca), std::string::npos);
  EXPECT_EQ(*expiryOf(next.ca), late + kCaSeconds) << "the newest stands first";
  EXPECT_TRUE(belongTogether(next.ca, next.caKey));
  EXPECT_TRUE(isKept(next, late));
  EXPECT_EQ(certificatesIn(made(next, late + kCaSeconds).ca), 1u) << "both had ended";
}

TEST(WebhookCertificates, AreMadeAnewWhereTheyAreBrokenOrOfAnotherName) {
  const CertificateSet set = made();
  const CertificateSet stranger = made();
  CertificateSet noKey = set;
  noKey.key.clear();
  CertificateSet otherKey = set;
  otherKey.key = stranger.key;
  CertificateSet otherCa = set;
  otherCa.ca = stranger.ca;
  otherCa.caKey = stranger.caKey;
  CertificateSet noCa = set;
  noCa.ca = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
  for (const CertificateSet& broken : {noKey, otherKey, otherCa, noCa, CertificateSet{}}) {
    const CertificateSet next = made(broken);
    EXPECT_TRUE(isKept(next, kNow));
  }
  EXPECT_FALSE(isKept(set, kNow, {"qgpu-scheduler.other.svc"}));
  EXPECT_TRUE(
      isKept(made(set, kNow, {"qgpu-scheduler.other.svc"}), kNow, {"qgpu-scheduler.other.svc"}));
  EXPECT_FALSE(expiryOf("no certificate").ok());
}

}  // namespace
}  // namespace qgpu::webhook_certificates_test
