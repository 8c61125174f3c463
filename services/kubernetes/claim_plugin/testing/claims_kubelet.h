#pragma once
// A kubelet for tests, as far as drivers of claims meet it: it finds the socket of who registers in
// its folder, asks who that is, and has claims prepared and taken back, over real gRPC.

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace qgpu::testing {

class ClaimsKubelet {
 public:
  // `dir`: what --kubelet-dir names; its folder of registrations is made here.
  explicit ClaimsKubelet(std::string dir);
  ~ClaimsKubelet();
  ClaimsKubelet(const ClaimsKubelet&) = delete;
  ClaimsKubelet& operator=(const ClaimsKubelet&) = delete;

  struct Info {
    std::string type, name, endpoint;
    std::vector<std::string> versions;
  };
  // Of the driver `name`, whose socket is there, asked and told that it is known. False: nobody
  // answers.
  bool find(const std::string& name, Info& info);

  // What it is told first of the health of devices; empty: nobody answers.
  std::map<std::string, bool> health();

  struct Device {
    std::string request, pool, device, share;
  };
  struct Prepared {
    std::string error;  // of the claim, or of the call; empty: it is prepared
    std::vector<Device> devices;
    std::vector<std::string> cdiDevices;  // of all of them
  };
  // Of the driver that was found last.
  Prepared prepare(const std::string& nameSpace, const std::string& name, const std::string& uid);
  std::string unprepare(const std::string& nameSpace, const std::string& name,
                        const std::string& uid);  // the error; empty: none

 private:
  std::string dir_;
  std::string endpoint_;
};

}  // namespace qgpu::testing
