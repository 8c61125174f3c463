#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "services/kubernetes/client/credentials.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::kube_credentials_test {
namespace {

struct KubeCredentialsFiles : ::testing::Test {
  KubeCredentialsFiles() { std::filesystem::create_directory(account); }

  std::string write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    return path;
  }
  void giveAccount() {
    write(account + "/token", "abc\n");
    write(account + "/ca.crt", "pem");
    write(account + "/namespace", "kube-system\n");
  }
  KubePlatform pod() const { return {"", "10.96.0.1", "443", account}; }
  std::string config(const std::string& cluster, const std::string& user) {
    return write(folder + "/config",
                 "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
                 "contexts:\n- name: there\n  context: {cluster: no, user: no}\n"
                 "- name: here\n  context: {cluster: c, user: u, namespace: web}\n"
                 "clusters:\n- name: c\n  cluster:\n" +
                     cluster + "users:\n- name: u\n  user:\n" + user);
  }
  std::string refused(const std::string& cluster, const std::string& user) {
    const auto read = readKubeconfig(config(cluster, user));
    return read.ok() ? "" : read.error().message;
  }

  const testing::TempFolder made;
  const std::string folder = made.path();
  const std::string account = folder + "/account";
};

constexpr const char* kCluster = "    server: https://api.example.org:6443\n";

TEST_F(KubeCredentialsFiles, APodHasItsServiceAccount) {
  giveAccount();
  EXPECT_TRUE(pod().present());
  const auto found = findCredentials(pod());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->host, "10.96.0.1");
  EXPECT_EQ(found->port, "443");
  EXPECT_EQ(found->nameSpace, "kube-system");
  EXPECT_EQ(found->token.path, account + "/token");
  EXPECT_TRUE(found->tls);
  EXPECT_TRUE(found->warnings.empty());
}

TEST_F(KubeCredentialsFiles, WithoutAnyTheErrorNamesBoth) {
  EXPECT_FALSE(pod().present());
  const auto found = findCredentials(pod());
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("KUBECONFIG is not set"), std::string::npos);
  EXPECT_NE(found.error().message.find(account), std::string::npos);
}

TEST_F(KubeCredentialsFiles, AKubeconfigThatIsNotThereYieldsToTheServiceAccount) {
  giveAccount();
  KubePlatform around = pod();
  around.kubeconfig = "/etc/kubernetes/none.conf";
  const auto found = findCredentials(around);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->source, "service account");
  ASSERT_EQ(found->warnings.size(), 1u);
  EXPECT_NE(found->warnings[0].find("/etc/kubernetes/none.conf"), std::string::npos);
  around.serviceHost.clear();
  EXPECT_FALSE(findCredentials(around).ok());
  EXPECT_TRUE(around.present()) << "who names a file wants it used";
}

TEST_F(KubeCredentialsFiles, AKubeconfigIsReadByItsCurrentContext) {
  giveAccount();
  KubePlatform around = pod();
  around.kubeconfig = config(
      "    server: https://[fd00::1]:6443/k8s/\n"
      "    certificate-authority: pki/ca.crt\n"
      "    tls-server-name: kubernetes.default.svc\n",
      "    client-certificate-data: Y2VydA==\n"
      "    client-key-data: a2V5\n");
  const auto found = findCredentials(around);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->host, "fd00::1");
  EXPECT_EQ(found->port, "6443");
  EXPECT_EQ(found->prefix, "/k8s");
  EXPECT_EQ(found->serverName, "kubernetes.default.svc");
  EXPECT_EQ(found->ca.path, folder + "/pki/ca.crt");
  EXPECT_EQ(found->certificate.text, "cert");
  EXPECT_EQ(found->key.text, "key");
  EXPECT_EQ(found->nameSpace, "web");
}

TEST_F(KubeCredentialsFiles, TokensAreFilesOrTexts) {
  auto found = readKubeconfig(config(kCluster, "    tokenFile: t\n    token: other\n"));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->token.path, folder + "/t");
  found = readKubeconfig(config(kCluster, "    token: abc\n"));
  EXPECT_EQ(found->token.text, "abc");
  EXPECT_EQ(found->token.path, "");
}

TEST_F(KubeCredentialsFiles, SkippingVerificationIsWarnedOf) {
  const auto found =
      readKubeconfig(config("    server: https://10.0.0.1:6443\n"
                            "    insecure-skip-tls-verify: true\n",
                            "    token: abc\n"));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(found->unverified);
  ASSERT_EQ(found->warnings.size(), 1u);
  EXPECT_NE(found->warnings[0].find("insecure-skip-tls-verify"), std::string::npos);
}

TEST_F(KubeCredentialsFiles, WhatCantBeUsedIsNamed) {
  EXPECT_NE(refused(kCluster, "    exec: {command: aws}\n").find("(exec)"), std::string::npos);
  EXPECT_NE(refused(kCluster, "    auth-provider: {name: gcp}\n").find("(auth-provider)"),
            std::string::npos);
  EXPECT_NE(refused(kCluster, "    username: a\n").find("passwords"), std::string::npos);
  EXPECT_NE(refused(kCluster, "    client-key: a\n").find("belong together"), std::string::npos);
  EXPECT_NE(
      refused(kCluster, "    client-key-data: '*'\n").find("client-key-data: it is no base64"),
      std::string::npos);
  for (const char* server : {"api:6443", "https://", "https://a:0", "https://a b", "https://u@h"}) {
    EXPECT_NE(refused(std::string("    server: '") + server + "'\n", "    token: a\n")
                  .find("write https://HOST:PORT"),
              std::string::npos)
        << server;
  }
  const auto none = readKubeconfig(write(folder + "/x", "kind: Config\n"));
  EXPECT_NE(none.error().message.find("current-context is not set"), std::string::npos);
  const auto list = readKubeconfig(write(folder + "/x", "current-context: gone\ncontexts: []\n"));
  EXPECT_NE(list.error().message.find("contexts has no \"gone\""), std::string::npos);
  for (const char* text : {"", "[1, 2]", "a: b: c", "{", "just words"}) {
    EXPECT_FALSE(readKubeconfig(write(folder + "/x", text)).ok()) << text;
  }
  EXPECT_FALSE(readKubeconfig(folder).ok());
  EXPECT_FALSE(readKubeconfig(folder + "/none").ok());
}

}  // namespace
}  // namespace qgpu::kube_credentials_test
