// Machines that join by a token: qgpuctl and the daemons as an operator has them, and what somebody
// gets who has no token, or tries more with one than it is for.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "runtime/fd.h"
#include "tests/e2e/harness.h"

namespace qgpu::e2e::join_test {
namespace {

namespace fs = std::filesystem;

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

struct Join : ::testing::Test {
  Join() {
    certs({"init"});
    certs({"issue", "127.0.0.1", "--role", "scheduler"});
    scheduler = std::make_unique<Scheduler>(std::vector<std::string>{
        "--tls-cert=" + at("127.0.0.1.pem"), "--tls-key=" + at("127.0.0.1.key"),
        "--tls-ca=" + at("ca.pem"), "--join=127.0.0.1:0", "--join-ca-key=" + at("ca.key")});
  }
  ~Join() noexcept override = default;

  void certs(std::vector<std::string> words) const {
    words.insert(words.begin(), {binary("qgpuctl"), "certs"});
    words.insert(words.end(), {"--dir", folder / "certs"});
    const Finished done = run(words);
    EXPECT_EQ(done.status, 0) << done.output;
  }
  std::string at(const std::string& name) const { return folder / "certs/" + name; }
  Finished ctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {binary("qgpuctl"), "--socket", scheduler->socket()});
    return run(words);
  }
  // {"id","node","token","door","until_unix_ms"}
  Json invite(const std::string& node) const {
    const Finished made = ctl({"-o", "json", "token", "create", node});
    EXPECT_EQ(made.status, 0) << made.output;
    return Json::parse(made.output, nullptr, false);
  }
  Finished join(const std::string& token, const std::string& node, const std::string& into,
                std::vector<std::string> more = {}) const {
    std::vector<std::string> argv = {
        binary("qgpuctl"), "join", scheduler->door(), "--token",    token,
        "--nodename",      node,   "--dir",           folder / into};
    argv.insert(argv.end(), more.begin(), more.end());
    return run(argv);
  }
  Json tokenOf(const std::string& id) const {
    const Json answer = scheduler->ask("token-list");
    for (const Json& token : answer["tokens"]) {
      if (token["id"] == id) return token;
    }
    return nullptr;
  }
  std::size_t eventsOf(const std::string& kind) const {
    std::size_t count = 0;
    const Json answer = scheduler->ask("events");
    for (const Json& event : answer["events"]) count += event["kind"] == kind ? 1 : 0;
    return count;
  }

  const TempFolder folder{"join"};
  std::unique_ptr<Scheduler> scheduler;
};

TEST_F(Join, AMachineWithATokenBecomesANodeAndTheTokenIsGoodOnce) {
  const Finished told = ctl({"token", "create", "node-7", "--ttl", "10m"});
  ASSERT_EQ(told.status, 0) << told.output;
  EXPECT_HOLDS(told.output, "qgpuctl join " + scheduler->door() + " --nodename node-7 --token ");
  const std::size_t begin = told.output.find("--token ") + 8;
  const std::string token = told.output.substr(begin, told.output.find('\n', begin) - begin);

  const Finished joined = join(token, "node-7", "etc");
  ASSERT_EQ(joined.status, 0) << joined.output << scheduler->log();
  EXPECT_HOLDS(joined.output, "qgpu-manager --config=" + (folder / "etc") + "/manager.toml");
  struct stat key {};
  ASSERT_EQ(::stat((folder / "etc/node.key").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777, 0600u);
  {
    Manager node({"--config=" + (folder / "etc/manager.toml"), "--cards=sim:1x16"});
    EXPECT_TRUE(scheduler->waitFor("node-7", "alive")) << node.log() << scheduler->log();
  }
  const Finished again = join(token, "node-7", "other");
  EXPECT_EQ(again.status, 3) << again.output;
  EXPECT_HOLDS(again.output, "used already");
  EXPECT_FALSE(fs::exists(folder / "other/node.key"));
  EXPECT_EQ(eventsOf("token-created"), 1u);
  EXPECT_EQ(eventsOf("join-granted"), 1u);
  const std::string list = ctl({"token", "list"}).output;
  EXPECT_HOLDS(list, "used");
  EXPECT_EQ(list.find(token.substr(9, 32)), std::string::npos) << "secrets are not kept";
  EXPECT_EQ(scheduler->log().find(token.substr(9, 32)), std::string::npos);
}

TEST_F(Join, ATokenOutlivesTheSchedulersRestart) {
  const Json made = invite("node-7");
  scheduler->kill();
  scheduler->start();
  const Finished joined = join(made["token"], "node-7", "etc");
  EXPECT_EQ(joined.status, 0) << joined.output;
  // Written anew only where that is said, and with another token.
  EXPECT_HOLDS(join(invite("node-7")["token"], "node-7", "etc").output, "--force");
  EXPECT_EQ(join(invite("node-7")["token"], "node-7", "etc", {"--force"}).status, 0);
}

// Whatever is wrong here or there is said before the token is shown, so that it stays good.
TEST_F(Join, WhatIsWrongIsSaidAndTheTokenStaysGood) {
  const Json made = invite("node-7");
  const std::string token = made["token"];
  const auto says = [&](const Finished& done, int status, const std::string& what) {
    EXPECT_EQ(done.status, status) << done.output;
    EXPECT_HOLDS(done.output, what);
  };
  says(join(token.substr(1), "node-7", "a"), 2, "no whole token");
  says(join(token, "no/name", "a"), 2, "--nodename");
  says(join(token, "node-7", "missing/a"), 3, "--dir");
  const std::string otherCa =
      token.substr(0, token.size() - 4) + (token.ends_with("0000") ? "1111" : "0000");
  says(join(otherCa, "node-7", "a"), 3, "another CA");
  const auto at = [&](const std::string& door) {
    return run({binary("qgpuctl"), "join", door, "--token", token, "--dir", folder / "a"});
  };
  says(at("127.0.0.1"), 2, "HOST:PORT");
  says(at("127.0.0.1:1"), 3, "nobody answers");
  Scheduler plain;
  says(at(plain.tcp()), 3, "does not speak TLS");
  says(at(scheduler->tcp()), 3, "");  // wants a certificate
  says(at("localhost" + scheduler->door().substr(scheduler->door().rfind(':'))), 3,
       "not for the name \"localhost\"");
  EXPECT_EQ(tokenOf(made["id"])["tries_left"], 5);
  says(join(token, "node-8", "a"), 3, "is for the node \"node-7\"");
  EXPECT_EQ(tokenOf(made["id"])["tries_left"], 4);
  EXPECT_TRUE(fs::is_empty(folder / "a")) << "nothing was written";
  EXPECT_EQ(join(token, "node-7", "a").status, 0);
}

TEST_F(Join, TokensAreForWhoMayChangeAndOfASchedulerWithADoor) {
  Scheduler without;
  const Finished none =
      run({binary("qgpuctl"), "--socket", without.socket(), "token", "create", "node-7"});
  EXPECT_EQ(none.status, 3);
  EXPECT_HOLDS(none.output, "--join");
  EXPECT_HOLDS(ctl({"token", "create", "no/name"}).output, "no name for a certificate");
  EXPECT_HOLDS(ctl({"token", "create", "node-7", "--ttl", "25h"}).output, "25h");
  const Json made = invite("node-7");
  EXPECT_EQ(ctl({"token", "revoke", made["id"]}).status, 0);
  EXPECT_HOLDS(join(made["token"], "node-7", "etc").output, "no such token");
  const Finished remote =
      run({binary("qgpuctl"), "--server", scheduler->rpc(), "token", "create", "node-7"});
  EXPECT_EQ(remote.status, 3);
  EXPECT_HOLDS(remote.output, "own machine");
}

// --- who speaks to the door without qgpuctl ---

struct Attack : Join {
  // A request for a certificate, by openssl.
  std::string request(const std::string& subject,
                      const std::string& key =
                          "ec -pkeyopt "
                          "ec_paramgen_curve:"
                          "prime256v1",
                      const std::string& names = "") const {
    const Finished made = run({"/bin/sh", "-c",
                               "openssl req -newkey " + key + " -nodes -keyout /dev/null -subj '" +
                                   subject + "' " + names + " 2>/dev/null"});
    EXPECT_EQ(made.status, 0) << made.output;
    return made.output;
  }
  Json bodyOf(const std::string& token, const std::string& node, const std::string& csr) const {
    return {{"id", token.substr(0, 8)},
            {"secret", token.substr(9, 32)},
            {"node", node},
            {"request", csr},
            {"unix", std::time(nullptr)}};
  }
  // The body of the answer, and its status behind it.
  std::string post(const std::string& body) const {
    std::ofstream(folder / "body") << body;
    return run({"/usr/bin/curl", "-sk", "-w", "%{http_code}", "--data-binary",
                "@" + (folder / "body"), "https://" + scheduler->door() + "/join"})
        .output;
  }
};

TEST_F(Attack, AWrongSecretIsToldNothingAndTriedFewTimes) {
  const std::string token = invite("node-7")["token"];
  const std::string csr = request("/CN=node-7");
  Json unknown = bodyOf(token, "node-7", csr);
  unknown["id"] = token.substr(0, 8) == "00000000" ? "11111111" : "00000000";
  const std::string nothing = post(unknown.dump());
  EXPECT_HOLDS(nothing, "403");
  Json guess = bodyOf(token, "node-7", csr);
  guess["secret"] = std::string(32, '0');
  for (int i = 0; i < 7; ++i) EXPECT_EQ(post(guess.dump()), nothing);
  EXPECT_HOLDS(join(token, "node-7", "etc").output, "tried too often");
  EXPECT_EQ(tokenOf(token.substr(0, 8))["state"], "spent");
  EXPECT_GE(eventsOf("join-refused"), 5u);
}

TEST_F(Attack, WhateverARequestAsksItGetsTheRoleAndTheNameOfItsToken) {
  const Json made = invite("node-7");
  const std::string token = made["token"];
  EXPECT_HOLDS(post(bodyOf(token, "node-7", request("/CN=node-8")).dump()), "another name");
  EXPECT_HOLDS(post(bodyOf(token, "node-8", request("/CN=node-8")).dump()), "is for the node");
  EXPECT_HOLDS(post(bodyOf(token, "node-7", request("/CN=node-7", "rsa:2048")).dump()), "P-256");
  std::string bent = request("/CN=node-7");
  bent[bent.size() / 2] = bent[bent.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_HOLDS(post(bodyOf(token, "node-7", bent).dump()), "400");
  EXPECT_EQ(tokenOf(made["id"])["tries_left"], 4) << "what is malformed costs no try";

  const std::string csr =
      request("/OU=qgpu-admin/O=other/CN=node-7", "ec -pkeyopt ec_paramgen_curve:prime256v1",
              "-addext subjectAltName=DNS:node-8,DNS:127.0.0.1 -addext basicConstraints=CA:TRUE");
  const std::string answer = post(bodyOf(token, "node-7", csr).dump());
  ASSERT_NE(answer.find("certificate"), std::string::npos) << answer;
  const Json signedOne = Json::parse(answer.substr(0, answer.size() - 3), nullptr, false);
  std::ofstream(folder / "got.pem") << signedOne["certificate"].get<std::string>();
  const std::string text =
      run({"/usr/bin/openssl", "x509", "-noout", "-text", "-in", folder / "got.pem"}).output;
  EXPECT_HOLDS(text, "OU = qgpu-node, CN = node-7");
  EXPECT_HOLDS(text, "DNS:node-7");
  EXPECT_HOLDS(text, "CA:FALSE");
  for (const char* never : {"qgpu-admin", "node-8", "127.0.0.1", "CA:TRUE", "O = other"}) {
    EXPECT_EQ(text.find(never), std::string::npos) << never << text;
  }
}

TEST_F(Attack, NonsenseIsRefusedAndTheDoorHasNothingElse) {
  const std::string token = invite("node-7")["token"];
  EXPECT_HOLDS(post("{"), "400");
  EXPECT_HOLDS(post("[]"), "400");
  EXPECT_HOLDS(post(std::string(1 << 20, 'x')), "too large");
  Json odd = bodyOf(token, std::string(10'000, 'n'), request("/CN=node-7"));
  EXPECT_HOLDS(post(odd.dump()), "400");
  Json past = bodyOf(token, "node-7", request("/CN=node-7"));
  past["unix"] = std::time(nullptr) - 7200;
  EXPECT_HOLDS(post(past.dump()), "120 minutes behind");
  past["unix"] = INT64_MIN;
  EXPECT_HOLDS(post(past.dump()), "behind");
  const auto get = [&](const std::string& path) {
    return run({"/usr/bin/curl", "-sk", "-w", "%{http_code}",
                "https://" + scheduler->door() + path})
        .output;
  };
  EXPECT_HOLDS(get("/metrics"), "404");
  EXPECT_HOLDS(get("/join"), "405");
  EXPECT_EQ(run({"/usr/bin/curl", "-s", "http://" + scheduler->door() + "/join"}).status, 52)
      << "without TLS there is nothing";
  EXPECT_EQ(join(token, "node-7", "etc").status, 0);
}

// More than the door has places for, in each state: before TLS, and within a request.
TEST_F(Attack, WhoKeepsConnectionsKeepsNobodyOut) {
  const std::string door = scheduler->door();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(door.substr(door.rfind(':') + 1))));
  std::vector<Fd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        ::connect(silent.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
        0);
  }
  const Finished joined = join(invite("node-7")["token"], "node-7", "etc");
  EXPECT_EQ(joined.status, 0) << joined.output;
}

}  // namespace
}  // namespace qgpu::e2e::join_test
