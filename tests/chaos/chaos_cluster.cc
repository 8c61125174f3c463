#include "tests/chaos/chaos_cluster.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace qgpu::chaos {
namespace {

using e2e::Network;

constexpr std::uint64_t kEtcdDiskKib = 640 * 1'024;  // its log alone takes 64 MiB at a time
constexpr std::uint64_t kManagerDiskKib = 16 * 1'024;

std::string url(std::size_t host, const char* port) {
  return "https://" + Network::address(host) + ":" + port;
}
std::string rpcOf(std::size_t host) {
  return Network::address(host) + ":12346";
}
std::string joined(std::string (*one)(std::size_t)) {
  std::string all;
  for (std::size_t i = 0; i < kGroup; ++i) all += (i == 0 ? "" : ",") + one(i);
  return all;
}

void must(const std::vector<std::string>& argv) {
  const testing::Finished done = testing::run(argv);
  if (done.status != 0) throw std::runtime_error(argv[0] + ": " + done.output);
}

std::string clockStepper() {
  const std::filesystem::path libraries = std::filesystem::path(testing::library()).parent_path();
  return libraries / "testing" / "libqgpu-chaos-clock.so";
}

void put(const std::string& file, std::int64_t value) {
  std::ofstream(file) << value << "\n";
}

}  // namespace

ChaosCluster::ChaosCluster(std::string folder) : folder_(std::move(folder)) {
  for (const char* name : {"/certs", "/logs", "/faults"}) {
    std::filesystem::create_directories(folder_ + name);
  }
  makeCertificates();
  for (std::size_t i = 0; i < kGroup + kManagers; ++i) {
    disks_.push_back(std::make_unique<crash::Tmpfs>(folder_ + "/disk" + std::to_string(i),
                                                    i < kGroup ? kEtcdDiskKib : kManagerDiskKib));
  }
  for (std::size_t i = 0; i < kGroup; ++i) processes_[i] = etcd(i);
  for (std::size_t i = 0; i < kGroup; ++i) processes_[kFirstScheduler + i] = scheduler(i);
  for (std::size_t i = 0; i < kManagers; ++i) processes_[kFirstManager + i] = manager(i);
  for (const auto& one : processes_) one->launch();
}

void ChaosCluster::makeCertificates() const {
  const std::string ctl = testing::binary("qgpuctl"), dir = folder_ + "/certs";
  must({ctl, "certs", "init", "--dir", dir});
  const auto issue = [&](const std::string& name, const char* role, const std::string& san) {
    std::vector<std::string> argv = {ctl, "certs", "issue", name, "--dir", dir, "--role", role};
    if (!san.empty()) argv.insert(argv.end(), {"--san", san});
    must(argv);
  };
  for (std::size_t i = 0; i < kGroup; ++i) {
    issue("host-" + std::to_string(i), "scheduler", Network::address(i));
  }
  for (std::size_t i = 0; i < kManagers; ++i) issue(nodeName(i), "node", "");
  issue("alice", "admin", "");
}

std::string ChaosCluster::delayFile(std::size_t process) const {
  return folder_ + "/faults/sync" + std::to_string(process);
}
std::string ChaosCluster::clockFile(std::size_t process) const {
  return folder_ + "/faults/clock" + std::to_string(process);
}

std::unique_ptr<Process> ChaosCluster::process(std::size_t host, const std::string& name,
                                               std::vector<std::string> argv) {
  return std::make_unique<Process>(network_.on(host, std::move(argv)), testing::Environment{},
                                   folder_ + "/logs/" + name + ".log");
}

std::unique_ptr<Process> ChaosCluster::etcd(std::size_t i) {
  std::string cluster;
  for (std::size_t n = 0; n < kGroup; ++n) {
    cluster += (n == 0 ? "e" : ",e") + std::to_string(n) + "=" + url(n, "2380");
  }
  const std::string client = url(i, "2379"), peer = url(i, "2380");
  const std::string own = certificate("host-" + std::to_string(i)), ca = certificate("ca.pem");
  put(delayFile(i), 0);
  return process(i, "etcd-" + std::to_string(i),
                 {testing::binary("qgpu-chaos"),
                  "slow-sync",
                  delayFile(i),
                  "etcd",
                  "--name=e" + std::to_string(i),
                  "--data-dir=" + disks_[i]->file("etcd"),
                  "--listen-client-urls=" + client,
                  "--advertise-client-urls=" + client,
                  "--listen-peer-urls=" + peer,
                  "--initial-advertise-peer-urls=" + peer,
                  "--initial-cluster=" + cluster,
                  "--client-cert-auth",
                  "--trusted-ca-file=" + ca,
                  "--cert-file=" + own + ".pem",
                  "--key-file=" + own + ".key",
                  "--peer-client-cert-auth",
                  "--peer-cert-file=" + own + ".pem",
                  "--peer-key-file=" + own + ".key",
                  "--peer-trusted-ca-file=" + ca,
                  "--auto-compaction-mode=revision",
                  "--auto-compaction-retention=1000",
                  "--snapshot-count=10000",
                  "--max-wals=1",
                  "--max-snapshots=1",
                  "--logger=zap",
                  "--log-level=warn"});
}

std::unique_ptr<Process> ChaosCluster::scheduler(std::size_t i) {
  const std::string own = certificate("host-" + std::to_string(i)), ca = certificate("ca.pem");
  const std::string clock = clockFile(kFirstScheduler + i);
  put(clock, 0);
  return process(
      i, "scheduler-" + std::to_string(i),
      {"env", "LD_PRELOAD=" + clockStepper(), "QGPU_CHAOS_CLOCK=" + clock,
       testing::binary("qgpu-scheduler"), "--run-dir=" + folder_ + "/s" + std::to_string(i),
       "--http=127.0.0.1:0", "--rpc=" + rpcOf(i), "--lease=4s",
       "--store=etcd:" + joined([](std::size_t n) { return url(n, "2379"); }), "--store-ca=" + ca,
       "--store-cert=" + own + ".pem", "--store-key=" + own + ".key", "--tls-cert=" + own + ".pem",
       "--tls-key=" + own + ".key", "--tls-ca=" + ca});
}

std::unique_ptr<Process> ChaosCluster::manager(std::size_t i) {
  const std::string own = certificate(nodeName(i));
  const std::string clock = clockFile(kFirstManager + i), delay = delayFile(kFirstManager + i);
  put(clock, 0);
  put(delay, 0);
  return process(
      kGroup + i, "manager-" + std::to_string(i),
      {testing::binary("qgpu-chaos"), "slow-sync", delay, "env", "LD_PRELOAD=" + clockStepper(),
       "QGPU_CHAOS_CLOCK=" + clock, testing::binary("qgpu-manager"),
       "--run-dir=" + folder_ + "/m" + std::to_string(i),
       "--dbfile=" + disks_[kGroup + i]->file("db"), "--http=127.0.0.1:0", "--cards=sim:4x64",
       "--max-tasks-per-card=60", "--nodename=" + nodeName(i), "--scheduler=" + joined(rpcOf),
       "--tls-cert=" + own + ".pem", "--tls-key=" + own + ".key",
       "--tls-ca=" + certificate("ca.pem")});
}

std::vector<std::string> ChaosCluster::ctl(std::vector<std::string> words) const {
  std::vector<std::string> argv = {testing::binary("qgpuctl"),
                                   "--server",
                                   joined(rpcOf),
                                   "--tls-cert",
                                   certificate("alice.pem"),
                                   "--tls-key",
                                   certificate("alice.key"),
                                   "--tls-ca",
                                   certificate("ca.pem"),
                                   "-o",
                                   "json"};
  argv.insert(argv.end(), words.begin(), words.end());
  return network_.on(kHosts, argv);
}

// --- faults ---

crash::Tmpfs& ChaosCluster::disk(std::size_t process) {
  return *disks_.at(process < kGroup ? process : process - kFirstManager + kGroup);
}

void ChaosCluster::begin(const Planned& planned) {
  switch (planned.fault) {
    case Fault::Kill:
      processes_[planned.target]->holdDown(true);
      return processes_[planned.target]->kill();
    case Fault::Pause:
      return processes_[planned.target]->pause();
    case Fault::FillDisk:
      return disk(planned.target).fill(static_cast<std::uint64_t>(planned.amount));
    case Fault::SlowSync:
      return put(delayFile(planned.target), planned.amount);
    case Fault::StepClock:
      return put(clockFile(planned.target), planned.amount);
    default:
      return cut(planned, true);
  }
}

void ChaosCluster::end(const Planned& planned) {
  switch (planned.fault) {
    case Fault::Kill:
      processes_[planned.target]->holdDown(false);
      return processes_[planned.target]->launch();
    case Fault::Pause:
      return processes_[planned.target]->resume();
    case Fault::FillDisk:
      return disk(planned.target).free();
    case Fault::SlowSync:
      return put(delayFile(planned.target), 0);
    case Fault::StepClock:
      return put(clockFile(planned.target), 0);
    default:
      return cut(planned, false);
  }
}

void ChaosCluster::cut(const Planned& planned, bool begins) {
  const std::size_t host = planned.target, other = planned.other;
  if (planned.fault == Fault::CutPair || planned.fault == Fault::CutOneWay) {
    network_.cutBetween(host, other, begins);
    if (planned.fault == Fault::CutPair) network_.cutBetween(other, host, begins);
    return;
  }
  if (!begins) return network_.heal(host);
  switch (planned.fault) {
    case Fault::CutFrom:
      return network_.cut(host, Network::Cut::FromHost);
    case Fault::CutTo:
      return network_.cut(host, Network::Cut::ToHost);
    case Fault::TakeAddress:
      return network_.cut(host, Network::Cut::Taken);
    default:
      return network_.cut(host, Network::Cut::Pulled);
  }
}

// --- processes ---

void ChaosCluster::keepUp(std::int64_t now) {
  for (const auto& one : processes_) one->keepUp(now);
}

void ChaosCluster::stop() {
  for (const auto& one : processes_) one->kill();
}

bool ChaosCluster::allRun() {
  for (const auto& one : processes_) {
    if (!one->alive()) return false;
  }
  return true;
}

std::size_t ChaosCluster::ownEnds() const {
  std::size_t count = 0;
  for (const auto& one : processes_) count += one->ownEnds();
  return count;
}

}  // namespace qgpu::chaos
