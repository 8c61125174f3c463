#pragma once
// The API server's stand-in, served on a thread of its own as a server is: daemons reach it by the
// KUBECONFIG that it writes, with the rights of their account in deploy/kubernetes alone, and tests
// by the calls here, from any thread but the server's own.

#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "runtime/loop.h"
#include "services/kubernetes/client/testing/api_stand_in.h"

namespace qgpu::e2e {

// Of resources, annotations and labels, as the contract has them.
inline constexpr const char* kPrefix = "tke.cloud.tencent.com";

// Of a pod as the API server has it.
bool isOver(const testing::Json& pod);

class ServedApi {
 public:
  using Json = testing::Json;

  ServedApi();
  ~ServedApi();
  ServedApi(const ServedApi&) = delete;
  ServedApi& operator=(const ServedApi&) = delete;

  // `work` runs on the server's thread, between its requests; returns when it is done.
  void with(const std::function<void(testing::ApiStandIn&)>& work);

  // The stand-in's own, see there.
  Json find(const std::string& collection, const std::string& nameSpace, const std::string& name);
  std::vector<Json> all(const std::string& collection);
  void put(const std::string& collection, const Json& object);
  void remove(const std::string& collection, const std::string& nameSpace, const std::string& name);
  // Reads an object, changes it and puts it back, with nobody in between; false: there is none.
  bool change(const std::string& collection, const std::string& nameSpace, const std::string& name,
              const std::function<void(Json&)>& how);
  void cut();
  void restart();
  bool up();
  // The first event of this reason; null: there is none yet.
  Json event(const std::string& reason);

  // Writes what KUBECONFIG names to `path`, for a service account of deploy/kubernetes; `path`.
  std::string kubeconfig(const std::string& path, const std::string& account) const;

 private:
  void serve();

  Loop loop_;
  testing::ApiStandIn* server_ = nullptr;
  unsigned port_ = 0;
  std::promise<void> ready_;
  std::thread thread_;  // last
};

}  // namespace qgpu::e2e
