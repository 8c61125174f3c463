#pragma once
// Certificates that follow their files: when those change they are read again, and connections that
// begin later use them; those that live keep what they began with. Files that are broken, or half
// replaced, change nothing, which is told once in the log, and in metrics for as long as it is so.

#include <functional>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/units.h"
#include "services/base/net/tls.h"

namespace qgpu {

class LiveTls final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr Nanos kLookEvery = seconds(10);

  // Agrees with nobody until the files were read.
  explicit LiveTls(TlsFiles files, TlsPeers peers = TlsPeers::Certified);
  LiveTls(const LiveTls&) = delete;
  LiveTls& operator=(const LiveTls&) = delete;
  ~LiveTls() noexcept;

  // Reads the files now. InvalidArgument as openTls(); what was in use stays so then.
  Status read();

  struct Listener {
    std::function<void(kj::TlsContext&)> changed;     // use this one from now on
    std::function<void(const std::string&)> refused;  // once for each reason
  };
  // Looks at the files from now on. `timer` outlives this.
  void follow(kj::Timer& timer, Listener listener, Nanos every = kLookEvery);

  const TlsFiles& files() const { return files_; }
  const TlsTexts& texts() const { return texts_; }  // that are in use
  // Lives as long as this.
  kj::TlsContext& now() { return *contexts_.back(); }
  bool opened() const { return contexts_.size() > 1; }
  // Why the files as they are now are not in use; empty where they are.
  const std::string& trouble() const { return trouble_; }
  // Prometheus text.
  std::string metrics() const;

 private:
  void look();
  kj::Promise<void> lookOn(kj::Timer& timer, Nanos every);
  void taskFailed(kj::Exception&& exception) override;

  const TlsFiles files_;
  const TlsPeers peers_;
  TlsTexts texts_;  // what is in use
  std::string trouble_;
  std::vector<kj::Own<kj::TlsContext>> contexts_;  // the last is in use, connections keep theirs
  Listener listener_;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
