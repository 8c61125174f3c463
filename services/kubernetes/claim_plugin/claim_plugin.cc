#include "services/kubernetes/claim_plugin/claim_plugin.h"

#include <algorithm>
#include <filesystem>
#include <sys/stat.h>

#include "services/base/kj_time.h"
#include "services/kubernetes/claims/resource_slice.h"
#include "services/kubernetes/device_plugin/cdi_spec.h"
#include "services/kubernetes/device_plugin/placeholders.h"
#include "services/kubernetes/pods/container_runtime.h"

namespace qgpu {
namespace {

namespace fs = std::filesystem;

constexpr auto kLook = 1 * kj::SECONDS;
constexpr Nanos kTick = millis(1);
constexpr mode_t kForUs = 0700;
constexpr mode_t kForTenants = 0755;

bool isSocket(const std::string& path) {
  struct stat file {};
  return ::lstat(path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode);
}

// Of a claim's uid, which comes from outside: what may be a part of a path.
bool isPlain(const std::string& uid) {
  return !uid.empty() && uid.size() <= 64 && std::all_of(uid.begin(), uid.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Error oddUid(const ClaimName& claim) {
  return fail(ErrorCode::InvalidArgument,
              "claim " + claim.text() + " has the uid '" + claim.uid + "', which is none");
}

Error noCdi(const std::string& runtime) {
  return fail(ErrorCode::Unsupported,
              runtime +
                  " gives containers no CDI devices, so they would run without quota and "
                  "turns; containerd 2 does, and 1.7 with enable_cdi = true");
}

std::string cdiFile(const std::string& uid) {
  return "qgpu.io-claim-" + uid + ".json";
}

Status makeFolder(const std::string& path, mode_t mode) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) fs::permissions(path, static_cast<fs::perms>(mode), error);
  return error ? Status(fail(ErrorCode::Unavailable, path + ": " + error.message())) : ok();
}

}  // namespace

ClaimPlugin::ClaimPlugin(Loop& loop, kj::Network& network, kj::Timer& timer, Log& log,
                         ClaimPluginConfig config)
    : loop_(loop),
      timer_(timer),
      log_(log),
      config_(std::move(config)),
      sockets_{config_.kubeletDir + "/plugins_registry/" + kClaimDriver + "-reg.sock",
               config_.kubeletDir + "/plugins/" + kClaimDriver + "/dra.sock"},
      files_(config_.files),
      retired_(loop),
      link_(
          network, timer, ManagerLinkConfig{.socket = config_.manager},
          [this](const NodeNow& node) { onNode(node); }, [](const std::string&) {}),
      tasks_(std::in_place, static_cast<kj::TaskSet::ErrorHandler&>(*this)) {}

void ClaimPlugin::start() {
  if (const Status published = files_.publish(); !published) {
    log_.error("library", {{"why", published.error().message}});
  }
  link_.start();
  tasks_->add(lookAgain());
}

void ClaimPlugin::stop(std::function<void()> over) {
  over_ = std::move(over);
  tasks_.reset();
  if (server_) retired_.add(std::move(server_));
  waitForEnd();
}

void ClaimPlugin::waitForEnd() {
  if (retired_.size() == 0) return over_();
  loop_.after(kTick, [this] { waitForEnd(); });
}

void ClaimPlugin::taskFailed(kj::Exception&& exception) {
  log_.error("unexpected", {{"why", exception.getDescription().cStr()}});
}

void ClaimPlugin::onNode(const NodeNow& node) {
  if (!tasks_ || node_ == node) return;
  node_ = node;
  look();
  tellHealth();
}

void ClaimPlugin::tellHealth() {
  if (!server_ || !node_) return;
  std::vector<DeviceHealth> devices;
  for (const PluginCard& card : node_->cards)
    devices.push_back({deviceName(card.id), card.healthy});
  server_->publish(devices);
  healthTold_ = timer_.now();
}

// Claims that were prepared are taken back also after the node's cards are given otherwise, so a
// server that was there once stays.
void ClaimPlugin::look() {
  if (!tasks_) return;
  const bool here = isSocket(sockets_.driver) && isSocket(sockets_.registration);
  if (server_ && !here) retired_.add(std::move(server_));
  std::error_code error;
  const bool prepared = fs::exists(files_.claims(), error);
  if (server_ || !node_ || !(node_->claims || prepared)) return;
  Status made = makeFolder(config_.kubeletDir + "/plugins/" + kClaimDriver, kForTenants);
  if (made) {
    auto opened = ClaimServer::open(loop_, *this, sockets_, config_.pool);
    if (opened) {
      server_ = std::move(*opened);
      failure_.clear();
      tellHealth();
      log_.info("claims-served", {{"socket", sockets_.driver}});
      return;
    }
    made = opened.error();
  }
  if (failure_ == made.error().message) return;
  failure_ = made.error().message;
  log_.warn("claims-not-served", {{"why", failure_}});
}

kj::Promise<void> ClaimPlugin::lookAgain() {
  look();
  if (timer_.now() - healthTold_ > toKj(kHealthTold / 3)) tellHealth();
  return timer_.afterDelay(kLook).then([this] { return lookAgain(); });
}

void ClaimPlugin::onRegistered(bool registered, const std::string& why) {
  if (registered) {
    log_.info("registered", {{"driver", kClaimDriver}});
  } else {
    log_.warn("not-registered", {{"driver", kClaimDriver}, {"why", why}});
  }
}

// --- claims ---

kj::Promise<Result<ClaimPreparer::Devices>> ClaimPlugin::prepare(ClaimName claim) {
  if (!isPlain(claim.uid)) return Result<Devices>(oddUid(claim));
  if (node_ && !takesCdiDevices(node_->runtime)) return Result<Devices>(noCdi(node_->runtime));
  auto asked = link_.prepareClaim(claim.nameSpace, claim.name, claim.uid);
  return asked.then([this, claim](Result<std::vector<ManagerLink::ClaimPart>> parts) {
    Result<Devices> devices = parts ? give(claim, *parts) : Result<Devices>(parts.error());
    if (devices) {
      log_.info("claim-prepared", {{"claim", claim.text()}, {"uid", claim.uid}});
    } else {
      log_.warn("claim-not-prepared", {{"claim", claim.text()}, {"why", devices.error().message}});
    }
    return devices;
  });
}

Result<ClaimPreparer::Devices> ClaimPlugin::give(const ClaimName& claim,
                                                 const std::vector<ManagerLink::ClaimPart>& parts) {
  const std::string home = files_.claims() + "/" + claim.uid;
  if (Status made = makeFolder(files_.claims(), kForUs); !made) return made.error();
  std::vector<CdiDevice> spec;
  Devices devices;
  for (const ManagerLink::ClaimPart& part : parts) {
    const std::string number = std::to_string(spec.size());
    const std::string folder = home + "/" + number;
    Result<ContainerSetup> setup = ContainerSetup();
    if (part.admin) {
      setup = files_.adminSetup(*node_, part.grant.cards);
    } else {
      Status written = makeFolder(folder, kForTenants);
      if (written) written = writeGrant(folder, part.grant);
      if (!written) return written.error();
      setup = files_.claimSetup(folder, *node_, part.grant.cards);
    }
    if (!setup) return setup.error();
    std::vector<std::string> names;
    if (cdiOffers(*setup)) {
      const std::string name = claim.uid + "-" + number;
      names.push_back(std::string(kClaimCdiKind) + "=" + name);
      spec.push_back({name, std::move(*setup)});
    }
    for (const ManagerLink::ClaimPart::Device& device : part.devices) {
      devices.push_back({part.request, {device.name, device.share}, names});
      names.clear();  // once a request
    }
  }
  if (!spec.empty()) {
    const CdiFile file(config_.cdiDir, cdiFile(claim.uid));
    if (Status s = file.write(cdiDocument(kClaimCdiKind, spec, QGPU_VERSION)); !s) {
      return s.error();
    }
  }
  return devices;
}

kj::Promise<Status> ClaimPlugin::unprepare(ClaimName claim) {
  if (!isPlain(claim.uid)) return Status(oddUid(claim));
  return link_.unprepareClaim(claim.uid).then([this, claim](Status ended) {
    if (!ended) {
      log_.warn("claim-not-taken-back", {{"claim", claim.text()}, {"why", ended.error().message}});
      return ended;
    }
    CdiFile(config_.cdiDir, cdiFile(claim.uid)).remove();
    std::error_code error;
    fs::remove_all(files_.claims() + "/" + claim.uid, error);
    log_.info("claim-taken-back", {{"claim", claim.text()}, {"uid", claim.uid}});
    return ended;
  });
}

}  // namespace qgpu
