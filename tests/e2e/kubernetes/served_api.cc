#include "tests/e2e/kubernetes/served_api.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "runtime/kj/bridge.h"
#include "services/base/yaml.h"

namespace qgpu::e2e {

using testing::ApiStandIn;

namespace {

// The roles that are installed, and no other.
testing::ApiRoles installedRoles() {
  std::vector<testing::Json> documents;
  const std::string folder = std::string(QGPU_SOURCE_ROOT) + "/deploy/kubernetes";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".yaml") continue;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const auto parsed = yamlToJson(text.str());
    EXPECT_TRUE(parsed.ok()) << file.path();
    if (!parsed) continue;
    for (const std::string& one : *parsed) documents.push_back(testing::Json::parse(one));
  }
  return testing::ApiRoles(documents);
}

}  // namespace

bool isOver(const testing::Json& pod) {
  const std::string phase = pod["status"].value("phase", "");
  return phase == "Succeeded" || phase == "Failed";
}

ServedApi::ServedApi() : thread_([this] { serve(); }) {
  ready_.get_future().wait();
}

ServedApi::~ServedApi() {
  loop_.stop();
  thread_.join();
}

void ServedApi::serve() {
  KjBridge kj(loop_);
  ApiStandIn server(kj.io().getNetwork(), kj.timer(), nullptr, kj.waitScope());
  server.roles = installedRoles();
  server_ = &server;
  port_ = server.port();
  ready_.set_value();
  loop_.run();
}

void ServedApi::with(const std::function<void(ApiStandIn&)>& work) {
  std::promise<void> done;
  loop_.post([&] {
    work(*server_);
    done.set_value();
  });
  done.get_future().wait();
}

ServedApi::Json ServedApi::find(const std::string& collection, const std::string& nameSpace,
                                const std::string& name) {
  Json found;
  with([&](ApiStandIn& api) { found = api.find(collection, nameSpace, name); });
  return found;
}

std::vector<ServedApi::Json> ServedApi::all(const std::string& collection) {
  std::vector<Json> found;
  with([&](ApiStandIn& api) { found = api.all(collection); });
  return found;
}

void ServedApi::put(const std::string& collection, const Json& object) {
  with([&](ApiStandIn& api) { api.put(collection, object); });
}

void ServedApi::remove(const std::string& collection, const std::string& nameSpace,
                       const std::string& name) {
  with([&](ApiStandIn& api) { api.remove(collection, nameSpace, name); });
}

bool ServedApi::change(const std::string& collection, const std::string& nameSpace,
                       const std::string& name, const std::function<void(Json&)>& how) {
  bool found = false;
  with([&](ApiStandIn& api) {
    Json object = api.find(collection, nameSpace, name);
    found = !object.is_null();
    if (!found) return;
    how(object);
    api.put(collection, object);
  });
  return found;
}

void ServedApi::cut() {
  with([](ApiStandIn& api) { api.cut(); });
}

void ServedApi::restart() {
  with([](ApiStandIn& api) { api.restart(); });
}

bool ServedApi::up() {
  bool is = false;
  with([&](ApiStandIn& api) { is = api.up(); });
  return is;
}

ServedApi::Json ServedApi::event(const std::string& reason) {
  for (const Json& one : all("events")) {
    if (one["reason"] == reason) return one;
  }
  return nullptr;
}

std::string ServedApi::kubeconfig(const std::string& path, const std::string& account) const {
  std::ofstream(path) << "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                         "contexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: "
                         "k, cluster: {server: "
                         "'http://127.0.0.1:"
                      << port_ << "'}}]\nusers: [{name: u, user: {token: " << account << "}}]\n";
  return path;
}

}  // namespace qgpu::e2e
