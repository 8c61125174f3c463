// EtcdClient on a real etcd: that it keeps what kv.h says, with certificates and signed in.

#include "services/etcd/etcd_client.h"

#include <functional>
#include <gtest/gtest.h>

#include "store/etcd/etcd_store.h"
#include "store/etcd/seat.h"
#include "tests/e2e/hosts/network.h"
#include "tests/testing/certificates.h"
#include "tests/testing/story.h"

namespace qgpu::e2e::etcd_client_test {
namespace {

using testing::Certificates;

constexpr const char* kKey = "/qgpu/a";

// One etcd on this namespace's loopback, by TLS or without.
struct EtcdServer {
  explicit EtcdServer(std::vector<std::string> more = {}, const std::string& scheme = "http") {
    url = scheme + "://127.0.0.1:2379";
    std::vector<std::string> argv = {"etcd",
                                     "--data-dir=" + folder.path() + "/etcd",
                                     "--listen-client-urls=" + url,
                                     "--advertise-client-urls=" + url,
                                     "--listen-peer-urls=http://127.0.0.1:2380",
                                     "--logger=zap",
                                     "--log-level=error"};
    argv.insert(argv.end(), more.begin(), more.end());
    process = std::make_unique<Child>(argv);
  }
  std::unique_ptr<EtcdClient> client(const std::function<void(EtcdOptions&)>& set = nullptr) {
    auto options = parseEtcdStore("etcd:" + url);
    EXPECT_TRUE(options.ok());
    if (set) set(*options);
    auto opened = EtcdClient::open(std::move(*options));
    EXPECT_TRUE(opened.ok()) << (opened ? "" : opened.error().message);
    return std::move(*opened);
  }
  static ::testing::AssertionResult answers(EtcdClient& client) {
    std::string why;
    const auto listed = [&] {
      const auto got = client.list(kKey, "", 1);
      if (!got) why = got.error().message;
      return got.ok();
    };
    if (eventually(listed, std::chrono::seconds(30))) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << why;
  }

  TempFolder folder;
  std::string url;
  std::unique_ptr<Child> process;
};

KvChange put(std::string key, std::string value, std::int64_t lease = 0) {
  return {KvChange::Does::Put, std::move(key), {}, std::move(value), lease};
}

TEST(EtcdClient, TransactionsListsAndLeasesAreAsTheirHeaderSays) {
  EtcdServer etcd;
  const auto kv = etcd.client();
  ASSERT_TRUE(EtcdServer::answers(*kv)) << etcd.process->output();
  const auto made = kv->txn({{{kKey, 0}}, {put(kKey, "1"), put("/qgpu/b", std::string(1, '\0'))}});
  ASSERT_TRUE(made.ok() && made->done);
  EXPECT_FALSE(kv->txn({{{kKey, 0}}, {put(kKey, "2")}})->done);
  const auto again = kv->txn({{{kKey, made->revision}}, {put(kKey, "3")}});
  ASSERT_TRUE(again.ok() && again->done);
  const auto listed = kv->list("/qgpu/", endOfPrefix("/qgpu/"), 10);
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 2U);
  EXPECT_EQ(listed->front().value, "3");
  EXPECT_EQ(listed->front().created, made->revision);
  EXPECT_EQ(listed->front().modified, again->revision);
  EXPECT_EQ(listed->back().value, std::string(1, '\0'));
  EXPECT_EQ(kv->list("/qgpu/", endOfPrefix("/qgpu/"), 1)->size(), 1U);
  const KvCondition moved{kKey, made->revision, KvCondition::Of::Modified};
  EXPECT_FALSE(kv->txn({{moved}, {put(kKey, "4")}})->done);
  EXPECT_TRUE(
      kv->txn({{}, {{KvChange::Does::Delete, "/qgpu/", endOfPrefix("/qgpu/"), {}, 0}}})->done);
  EXPECT_TRUE(kv->list("/qgpu/", endOfPrefix("/qgpu/"), 10)->empty());

  const auto lease = kv->grant(seconds(2));
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(kv->txn({{}, {put(kKey, "leased", *lease)}})->done);
  EXPECT_EQ(kv->list(kKey, "", 1)->front().lease, *lease);
  EXPECT_TRUE(kv->keepAlive(*lease).ok());
  EXPECT_TRUE(kv->revoke(*lease).ok());
  EXPECT_EQ(kv->keepAlive(*lease).error().code, ErrorCode::NotFound);
  EXPECT_TRUE(kv->list(kKey, "", 1)->empty());
  const auto late = kv->txn({{}, {put(kKey, "x", *lease)}});
  EXPECT_EQ(late.error().code, ErrorCode::NotFound) << "for certain, not perhaps";
  const auto large = kv->txn({{}, {put(kKey, std::string(4 << 20, 'x'))}});
  EXPECT_NE(large.error().code, ErrorCode::Unavailable) << large.error().message;
}

TEST(EtcdClient, RowsOf1MiBFitWhatEtcdTakes) {
  EtcdServer etcd;
  const auto kv = etcd.client();
  ASSERT_TRUE(EtcdServer::answers(*kv));
  std::vector<KvChange> changes;
  for (std::size_t i = 0; i < EtcdStore::kChangesMax; ++i) {
    changes.push_back(put(kKey + std::to_string(i),
                          std::string(EtcdStore::kPartBytes / EtcdStore::kChangesMax, 'x')));
  }
  changes.push_back(put(kKey, "end"));
  const auto done = kv->txn({{}, changes});
  EXPECT_TRUE(done.ok() && done->done) << (done ? "" : done.error().message);
}

TEST(EtcdClient, WithCertificatesOfBothSides) {
  const TempFolder folder;
  Certificates made(folder.path());
  made.makeCa("ca");
  const TlsFiles own = made.make("ca", "etcd", "IP:127.0.0.1"),
                 other = made.make("ca", "scheduler");
  const std::string ca = made.path("ca.pem");
  EtcdServer etcd({"--cert-file=" + own.cert, "--key-file=" + own.key, "--trusted-ca-file=" + ca,
                   "--client-cert-auth"},
                  "https");
  const auto kv = etcd.client([&](EtcdOptions& options) {
    options.ca = ca;
    options.cert = other.cert;
    options.key = other.key;
  });
  ASSERT_TRUE(EtcdServer::answers(*kv)) << etcd.process->output();
  const auto bare = etcd.client([&](EtcdOptions& options) { options.ca = ca; });
  EXPECT_FALSE(bare->list(kKey, "", 1).ok());
}

TEST(EtcdClient, SignsInWhereEtcdAsksForIt) {
  EtcdServer etcd;
  const auto nobody = etcd.client();
  ASSERT_TRUE(EtcdServer::answers(*nobody));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"user", "add", "root:secret"},
        {"user", "grant-role", "root", "root"},
        {"auth", "enable"}}) {
    std::vector<std::string> argv = {"etcdctl", "--endpoints=" + etcd.url};
    argv.insert(argv.end(), words.begin(), words.end());
    const Finished done = run(argv, {{"ETCDCTL_API", "3"}});
    ASSERT_EQ(done.status, 0) << done.output;
  }
  EXPECT_FALSE(nobody->list(kKey, "", 1).ok());
  const auto user = etcd.client([](EtcdOptions& options) {
    options.user = "root";
    options.password = "secret";
  });
  EXPECT_TRUE(user->list(kKey, "", 1).ok());
  const auto wrong = etcd.client([](EtcdOptions& options) {
    options.user = "root";
    options.password = "guess";
  });
  EXPECT_FALSE(wrong->list(kKey, "", 1).ok());
}

TEST(EtcdClient, WithoutAnEtcdItSaysWhereWithinItsTime) {
  const auto options = parseEtcdStore("etcd:http://127.0.0.1:1,http://127.0.0.1:2");
  const auto kv = EtcdClient::open(*options);
  ASSERT_TRUE(kv.ok());
  const auto listed = (*kv)->list(kKey, "", 1);
  EXPECT_EQ(listed.error().code, ErrorCode::Unavailable);
  EXPECT_NE(listed.error().message.find("127.0.0.1:"), std::string::npos);
}

// Namespaces are entered before any thread.
const testing::Before before("etcd_client", [](char**) { return Network::enter(); });

}  // namespace
}  // namespace qgpu::e2e::etcd_client_test
