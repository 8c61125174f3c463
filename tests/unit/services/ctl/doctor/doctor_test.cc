// `doctor` on machines that a test makes below a folder: each way in which an installation breaks,
// and that it says nothing of one that is whole.

#include "services/ctl/doctor/doctor.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <sched.h>
#include <simdjson.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "services/base/wall_time.h"
#include "services/ctl/doctor/bundle.h"
#include "services/ctl/doctor/doctor_look.h"
#include "services/kubernetes/webhook/certificates.h"
#include "tests/testing/certificates.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::ctl::doctor_test {
namespace {

namespace fs = std::filesystem;

// A listening socket; what it leaves when it goes is a stale file.
class Listening {
 public:
  Listening(const std::string& path, int type) : fd_(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
    EXPECT_EQ(::listen(fd_, 8), 0);
  }
  ~Listening() { ::close(fd_); }
  Listening(const Listening&) = delete;

 private:
  const int fd_;
};

// A daemon that says its version to whoever asks for its status.
class Daemon {
 public:
  // `more`: its answers to other commands.
  Daemon(const std::string& path, std::string version, std::map<std::string, std::string> more = {})
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        more_(std::move(more)),
        answer_("{\"ok\":true,\"version\":\"" + std::move(version) + "\"}\n") {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
    EXPECT_EQ(::listen(fd_, 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Daemon() {
    ::shutdown(fd_, SHUT_RDWR);  // accept() ends
    thread_.join();
    ::close(fd_);
  }
  Daemon(const Daemon&) = delete;

 private:
  void serve() const {
    while (true) {
      const int peer = ::accept(fd_, nullptr, nullptr);
      if (peer < 0) return;
      char line[64];
      const ssize_t n = ::read(peer, line, sizeof line);
      if (n > 0) {
        const auto other = more_.find(std::string(line, static_cast<std::size_t>(n) - 1));
        const std::string& answer = other == more_.end() ? answer_ : other->second;
        EXPECT_EQ(::write(peer, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      }
      ::close(peer);
    }
  }
  const int fd_;
  const std::map<std::string, std::string> more_;
  const std::string answer_;
  std::thread thread_;
};

// A port of loopback on which something listens.
class Port {
 public:
  Port() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    socklen_t size = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    number_ = std::to_string(ntohs(address.sin_port));
  }
  ~Port() { ::close(fd_); }
  Port(const Port&) = delete;
  const std::string& number() const { return number_; }

 private:
  const int fd_;
  std::string number_;
};

constexpr const char* kDevices = "/var/lib/kubelet/device-plugins/";
constexpr const char* kManifest = "/etc/kubernetes/manifests/kube-scheduler.yaml";

struct Doctor : ::testing::Test {
  Doctor() {
    options.root = root;
    options.runDir = "/run/qgpu";
    write("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    fs::create_directories(root + "/run/qgpu");
  }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path, std::ios::binary) << text;
  }
  void listen(const std::string& path, int type = SOCK_STREAM) {
    fs::create_directories(fs::path(root + path).parent_path());
    listening.push_back(std::make_unique<Listening>(root + path, type));
  }
  void daemon(const std::string& path, const std::string& version = "1.0") {
    daemons.push_back(std::make_unique<Daemon>(root + path, version));
  }
  // Codes of all findings, but for that of a machine on which no daemon serves.
  std::string codes() const {
    std::string out;
    for (const Finding& finding : examine(options, "1.0").findings) {
      EXPECT_FALSE(finding.what.empty() || finding.fix.empty()) << finding.code;
      if (finding.code == "no-daemon") continue;
      out += (out.empty() ? "" : " ") + finding.code;
    }
    return out;
  }
  std::string whatOf(const std::string& code) const { return partOf(code, &Finding::what); }
  std::string fixOf(const std::string& code) const { return partOf(code, &Finding::fix); }
  std::string partOf(const std::string& code, std::string Finding::*part) const {
    for (const Finding& finding : examine(options, "1.0").findings) {
      if (finding.code == code) return finding.*part;
    }
    return "";
  }
  // A kube-scheduler of kubeadm with this flag, and its configuration on the host.
  void writeScheduler(const std::string& minor, const std::string& flag,
                      const std::string& config) const {
    write(kManifest, "kind: Pod\nspec:\n  containers:\n  - command:\n    - kube-scheduler\n" +
                         (flag.empty() ? "" : "    - " + flag + "=/inside/config\n") +
                         "    image: registry.k8s.io/kube-scheduler:v1." + minor +
                         ".3\n    volumeMounts:\n    - {mountPath: /inside, name: q}\n"
                         "  volumes:\n  - {hostPath: {path: /etc/qgpu}, name: q}\n");
    write("/etc/qgpu/config", config);
  }
  static std::string extenderAt(const std::string& port) {
    return "extenders:\n- urlPrefix: http://127.0.0.1:" + port +
           "/scheduler\n  filterVerb: filter\n  prioritizeVerb: priorities\n  bindVerb: bind\n"
           "  preemptVerb: preempt\n  managedResources:\n"
           "  - name: tke.cloud.tencent.com/qgpu-core\n  - name: "
           "tke.cloud.tencent.com/qgpu-memory\n"
           "  - name: tke.cloud.tencent.com/qgpu-core-greedy\n";
  }
  static std::string configOf(const std::string& version, const std::string& extenders) {
    return "apiVersion: kubescheduler.config.k8s.io/" + version +
           "\nkind: KubeSchedulerConfiguration\n" + extenders;
  }

  const testing::TempFolder machine{"dr"};
  const std::string root = machine.path();
  DoctorOptions options;
  std::vector<std::unique_ptr<Listening>> listening;
  std::vector<std::unique_ptr<Daemon>> daemons;
  Port port;
};

// --- the machine ---

TEST_F(Doctor, SaysOnAPlainMachineOnlyThatNoDaemonServes) {
  const Diagnosis diagnosis = examine(options, "1.0");
  ASSERT_EQ(diagnosis.findings.size(), 1u) << diagnosis.findings[0].what;
  EXPECT_EQ(diagnosis.findings[0].code, "no-daemon");
  ASSERT_EQ(diagnosis.facts.size(), 1u);
  EXPECT_EQ(diagnosis.facts[0].value, "6.1.0-40-amd64");
}

TEST_F(Doctor, KnowsKernelsAndDriversThatAreTooOld) {
  write("/proc/sys/kernel/osrelease", "5.2.21\n");
  EXPECT_EQ(codes(), "kernel-old");
  write("/proc/sys/kernel/osrelease", "5.6.0\n");
  const auto driver = [&](const std::string& version) {
    write("/proc/driver/nvidia/version",
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + version + "  Tue Jun  6\n");
  };
  driver("535.54.03");
  EXPECT_EQ(codes(), "driver-devices");
  write("/dev/nvidiactl", "");
  EXPECT_EQ(codes(), "");
  write("/proc/sys/kernel/osrelease", "5.5.19\n");
  EXPECT_EQ(codes(), "kernel-rm");
  driver("515.43.04");
  EXPECT_EQ(codes(), "driver-rm");
  for (const std::string version : {"450.102.04", "585.10", "615.71", "9999.1"}) {
    driver(version);
    EXPECT_EQ(codes(), "driver-unknown driver-rm") << version;
    for (const char* code : {"driver-unknown", "driver-rm"}) {
      EXPECT_NE(whatOf(code).find("driver " + version + " is "), std::string::npos) << whatOf(code);
      const bool mayBeTried = version == "615.71" || version == "9999.1";
      EXPECT_EQ(whatOf(code).find("unless the manager found") != std::string::npos, mayBeTried);
    }
    EXPECT_NE(fixOf("driver-unknown").find("a driver of 515 to 595"), std::string::npos);
  }
  driver("450.80.02");
  EXPECT_EQ(codes(), "driver-old");
  EXPECT_NE(whatOf("driver-old").find("450.80.02"), std::string::npos);
  fs::remove(root + "/proc/driver/nvidia/version");
  write("/proc/modules", "drm 1 0\nnouveau 1720320 1 - Live\n");
  EXPECT_EQ(codes(), "driver-nouveau");
}

TEST_F(Doctor, ReadsWhatTheKernelItselfSays) {
  EXPECT_NE(firstLine("/proc/sys/kernel/osrelease"), "");
  EXPECT_NE(firstLine("/proc/version"), "");
}

TEST_F(Doctor, SeesFoldersThatOthersMayWriteTo) {
  fs::permissions(root + "/run/qgpu", fs::perms::all);
  EXPECT_EQ(codes(), "folder-open");
  fs::permissions(root + "/run/qgpu", fs::perms::owner_all);
  write("/var/lib/qgpu", "a file");
  EXPECT_EQ(codes(), "folder");
}

TEST_F(Doctor, JudgesRoomOnTheDiskTheClockAndDatabasesThatGrow) {
  Diagnosis diagnosis;
  DoctorContext context{options, diagnosis};
  const auto codesOf = [&](auto judge) {
    diagnosis = {};
    judge();
    std::string all;
    for (const Finding& finding : diagnosis.findings) all += finding.code + " ";
    return all;
  };
  constexpr std::uint64_t kGib = std::uint64_t{1} << 30U;
  const auto disk = [&](std::uint64_t bytes, std::uint64_t files, std::uint64_t wal) {
    return codesOf([&] { judgeDisk(context, "/var/lib/qgpu", {bytes, files, wal}); });
  };
  EXPECT_EQ(disk(50 * kGib, 1000, 4096), "");
  ASSERT_EQ(diagnosis.well.size(), 1u);
  EXPECT_EQ(diagnosis.well[0], "/var/lib/qgpu has 50 GiB left");
  EXPECT_EQ(disk(kGib / 2, 1000, 0), "disk-low ");
  EXPECT_TRUE(diagnosis.findings[0].isWarning());
  EXPECT_EQ(disk(1024, 1000, 0), "disk-full ");
  EXPECT_FALSE(diagnosis.findings[0].isWarning());
  EXPECT_EQ(disk(50 * kGib, 0, 0), "disk-full ");
  EXPECT_EQ(disk(50 * kGib, 1000, kGib), "wal-large ");
  EXPECT_EQ(codesOf([&] { judgeClock(context, true); }), "");
  EXPECT_EQ(codesOf([&] { judgeClock(context, false); }), "clock-unsynced ");
}

TEST_F(Doctor, LooksAtTheDiskOfTheStateAndItsLogs) {
  write("/var/lib/qgpu/meta.db-wal", "");
  fs::resize_file(root + "/var/lib/qgpu/meta.db-wal", 300u << 20U);  // takes no room
  EXPECT_NE(codes().find("wal-large"), std::string::npos);
  EXPECT_NE(whatOf("wal-large").find("300"), std::string::npos);
}

TEST_F(Doctor, SaysWhatIsWellUnlessFindingsAloneAreWanted) {
  const Diagnosis diagnosis{{{"kernel", "6.1"}}, {{"disk-low", "what", "fix"}}, {"all is well"}};
  EXPECT_NE(doctorTable(diagnosis).find("[ok]   all is well\n[warn] disk-low: what"),
            std::string::npos);
  EXPECT_EQ(doctorTable(diagnosis, Telling::Findings),
            "[warn] disk-low: what\n         fix: fix\n");
  EXPECT_NE(doctorJson(diagnosis).find(R"("well":["all is well"])"), std::string::npos);
}

// --- daemons ---

// A manager of which these are the status, the cards and the tasks.
struct DoctorOfNode : Doctor {
  void node(const std::string& status, const std::string& cards = "", const std::string& tasks = "",
            const std::string& events = "") {
    listen("/run/qgpu/attach.sock", SOCK_SEQPACKET);
    std::map<std::string, std::string> more;
    more["status"] = "{\"ok\":true,\"version\":\"1.0\"" + status + "}\n";
    if (!cards.empty()) more["cards"] = "{\"ok\":true,\"cards\":[" + cards + "]}\n";
    more["tasks"] = "{\"ok\":true,\"tasks\":[" + tasks + "]}\n";
    more["events 0"] = "{\"ok\":true,\"events\":[" + events + "]}\n";
    daemons.push_back(std::make_unique<Daemon>(root + "/run/qgpu/manager.sock", "1.0", more));
  }
  bool isWell(const std::string& part) const {
    for (const std::string& well : examine(options, "1.0").well) {
      if (well.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(DoctorOfNode, SaysHowHoldsAreMadeOnEachCardAndWhy) {
  node("", R"({"id":"GPU-1","index":0,"model":"T4","backend":"nvidia","suspend":"rm",)"
           R"("state":"ready"},)"
           R"({"id":"GPU-2","index":1,"model":"T4","backend":"nvidia","suspend":"gate",)"
           R"("suspend_why":"driver 390 is not known","state":"ready"},)"
           R"({"id":"opencl-0","index":2,"model":"cpu","backend":"opencl","suspend":"freeze",)"
           R"("state":"ready"})");
  EXPECT_EQ(codes(), "hold-weak");
  EXPECT_NE(whatOf("hold-weak").find("since driver 390 is not known"), std::string::npos);
  EXPECT_TRUE(isWell("(T4): held by rm"));
  EXPECT_TRUE(isWell("(cpu): held by freeze"));
}

TEST_F(DoctorOfNode, AGateThatSomebodyChoseIsWell) {
  node("", R"({"id":"GPU-2","index":1,"model":"T4","backend":"nvidia","suspend":"gate",)"
           R"("suspend_why":"--suspend=gate","state":"ready"})");
  EXPECT_EQ(codes(), "");
  EXPECT_TRUE(isWell("held by gate"));
}

// --- the newest report of a card ---

struct DoctorOfReport : DoctorOfNode {
  // A manager of version 1.0 with one card, whose newest report is `text`.
  void reported(const std::string& text) {
    write("/proc/sys/kernel/osrelease", "6.1.0\n");
    if (!text.empty()) write("/srv/report.json", text);
    node("", R"({"id":"sim-0","index":0,"backend":"sim","suspend":"gate","state":"ready",)"
             R"("report":"/srv/report.json"})");
  }
  static std::string report(const std::string& card, const std::string& kernel,
                            const std::string& version) {
    prove::Report made;
    made.head.card = card;
    made.head.model = "T4";
    made.head.driver = "535.1";
    made.head.kernel = kernel;
    made.head.version = version;
    made.head.date = rfc3339(unixMsNow() - std::int64_t{3} * 86'400'000);
    made.promises.resize(2);
    made.promises[0].verdict = prove::Verdict::Proven;
    return prove::jsonOf(made);
  }
};

TEST_F(DoctorOfReport, SaysHowOldItIsAndOfWhat) {
  reported(report("sim-0", "6.1.0", "1.0"));
  EXPECT_EQ(codes(), "");
  EXPECT_TRUE(
      isWell("its report is 3 days old, of T4, driver 535.1, with 1 of 2 promises not "
             "proven"));
}

TEST_F(DoctorOfReport, IsDoubtfulOnceKernelOrVersionIsAnother) {
  reported(report("sim-0", "5.10.0", "0.9"));
  EXPECT_EQ(codes(), "report-stale");
  EXPECT_NE(whatOf("report-stale").find("kernel 5.10.0 is 6.1.0, qgpu 0.9 is 1.0"),
            std::string::npos);
  EXPECT_FALSE(examine(options, "1.0").somethingBroken());
}

TEST_F(DoctorOfReport, OfAnotherCardIsStaleToo) {
  reported(report("sim-7", "6.1.0", "1.0"));
  EXPECT_EQ(codes(), "report-stale");
}

TEST_F(DoctorOfReport, ThatIsGoneOrDamagedIsDoubtful) {
  reported("");
  EXPECT_EQ(codes(), "report-unreadable");
  EXPECT_NE(whatOf("report-unreadable").find("/srv/report.json can't be read"), std::string::npos);
}

TEST_F(DoctorOfReport, OfANewerSchemaSaysSo) {
  reported(R"({"kind":"qgpu-report","schema":9})");
  EXPECT_NE(whatOf("report-unreadable").find("schema 9"), std::string::npos);
}

TEST_F(DoctorOfReport, ThatNobodyMadeIsNoFinding) {
  node("", R"({"id":"sim-0","index":0,"backend":"sim","suspend":"gate","state":"ready"})");
  EXPECT_EQ(codes(), "");
}

TEST_F(DoctorOfNode, SaysWhyCardsTakeNoTasks) {
  node("", R"({"id":"a","index":0,"suspend":"gate","state":"cordoned"},)"
           R"({"id":"b","index":1,"suspend":"gate","state":"quarantined"})");
  EXPECT_EQ(codes(), "card-cordoned card-quarantined");
}

TEST_F(DoctorOfNode, SaysWhereThereIsNoCard) {
  node("", " ");
  EXPECT_EQ(codes(), "no-cards");
}

TEST_F(DoctorOfNode, SaysHowRealTimeStorageAndClusterStand) {
  node(R"(,"realtime":"slice: SCHED_FIFO is not permitted; root or CAP_SYS_NICE gives it",)"
       R"("storage":"disk I/O error","cluster":"no scheduler: refused")");
  EXPECT_EQ(codes(), "realtime storage-failed cluster-away");
}

struct DoctorOfRealtime : DoctorOfNode,
                          ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(DoctorOfRealtime, SaysWhatGivesItWhereItWasRefused) {
  const auto [told, remedy] = GetParam();
  node(std::string(R"(,"realtime":"nice: )") + told + R"(","storage":"ok")");
  EXPECT_NE(fixOf("realtime").find(remedy), std::string::npos) << fixOf("realtime");
}
INSTANTIATE_TEST_SUITE_P(
    Reasons, DoctorOfRealtime,
    ::testing::Values(std::pair("SCHED_FIFO is not permitted", "has CAP_SYS_NICE"),
                      std::pair("kernel.sched_rt_runtime_us is -1", "sysctl -w"),
                      std::pair("refused in spite of CAP_SYS_NICE", "cpu.rt_runtime_us")));

TEST_F(DoctorOfNode, SaysWhatOfThatIsWell) {
  node(R"(,"realtime":"fifo","storage":"ok","cluster":"joined: term 3")");
  EXPECT_EQ(codes(), "");
  EXPECT_TRUE(isWell("SCHED_FIFO"));
  EXPECT_TRUE(isWell("database takes changes"));
  EXPECT_TRUE(isWell("joined: term 3"));
  EXPECT_TRUE(isWell("0 tasks"));
}

TEST_F(DoctorOfNode, NamesTasksThatAreQuarantinedOrWereRefusedMemory) {
  node("", "",
       R"({"id":2,"name":"big","processes":1},)"
       R"({"id":3,"name":"stuck","processes":1,"quarantined":true,"note":"kernel runs on"})",
       R"({"seq":1,"kind":"memory-refused","task":1,"text":"ended since"},)"
       R"({"seq":2,"kind":"memory-refused","task":2,"text":"refused 3 times"})");
  EXPECT_EQ(codes(), "memory-refused task-quarantined");
  EXPECT_EQ(whatOf("memory-refused"), "task 2 (big): refused 3 times");
  EXPECT_NE(whatOf("task-quarantined").find("kernel runs on"), std::string::npos);
}

TEST_F(Doctor, TellsStaleSocketsFromThoseThatLive) {
  daemon("/run/qgpu/manager.sock");
  listen("/run/qgpu/attach.sock", SOCK_SEQPACKET);
  EXPECT_EQ(codes(), "");
  listen("/run/qgpu/scheduler.sock");
  listening.pop_back();
  EXPECT_EQ(codes(), "socket-stale");
  EXPECT_NE(whatOf("socket-stale").find("scheduler.sock"), std::string::npos);
  fs::remove(root + "/run/qgpu/scheduler.sock");
  fs::remove(root + "/run/qgpu/attach.sock");
  EXPECT_EQ(codes(), "attach-closed");
}

TEST_F(Doctor, ComparesVersions) {
  daemon("/run/qgpu/scheduler.sock", "0.9");
  EXPECT_EQ(codes(), "versions-differ");
  EXPECT_EQ(whatOf("versions-differ"), "qgpu-scheduler is 0.9, this qgpuctl 1.0");
  daemon("/run/qgpu/manager.sock", "1.0");
  listen("/run/qgpu/attach.sock", SOCK_SEQPACKET);
  EXPECT_EQ(codes(), "versions-differ");
}

TEST_F(Doctor, TellsOfTasksThatWereNeverAttachedAndStillHaveNoProcess) {
  listen("/run/qgpu/attach.sock", SOCK_SEQPACKET);
  const auto event = [](int seq, const std::string& kind, int task) {
    return "{\"seq\":" + std::to_string(seq) + ",\"kind\":\"" + kind +
           "\",\"task\":" + std::to_string(task) + ",\"text\":\"no process of it\"}";
  };
  std::map<std::string, std::string> more;
  more["events 0"] = "{\"ok\":true,\"events\":[" + event(3, "task-unattached", 1) + "," +
                     event(4, "task-unattached", 2) + "," + event(5, "task-bound", 3) + "]}\n";
  more["events 5"] = "{\"ok\":true,\"events\":[" + event(6, "task-unattached", 4) + "]}\n";
  more["tasks"] =
      "{\"ok\":true,\"tasks\":[{\"id\":1,\"name\":\"late\",\"processes\":1},"
      "{\"id\":2,\"name\":\"web/own\",\"processes\":0},"
      "{\"id\":3,\"name\":\"new\",\"processes\":0}]}\n";
  daemons.push_back(std::make_unique<Daemon>(root + "/run/qgpu/manager.sock", "1.0", more));
  EXPECT_EQ(codes(), "task-unattached");
  EXPECT_EQ(whatOf("task-unattached"), "task 2 (web/own): no process of it");
}

TEST_F(Doctor, TellsOfTasksOfWhichAProcessHasACardOpenAndIsNotAttached) {
  listen("/run/qgpu/attach.sock", SOCK_SEQPACKET);
  const auto event = [](int seq, int task, const std::string& what) {
    return "{\"seq\":" + std::to_string(seq) +
           ",\"kind\":\"task-unheld\",\"task\":" + std::to_string(task) + ",\"text\":\"" + what +
           "\"}";
  };
  std::map<std::string, std::string> more;
  more["events 0"] = "{\"ok\":true,\"events\":[" + event(1, 1, "ended since") + "," +
                     event(2, 2, "process 5") + "," + event(3, 2, "process 6") + "]}\n";
  more["tasks"] = "{\"ok\":true,\"tasks\":[{\"id\":2,\"name\":\"web\",\"processes\":1}]}\n";
  daemons.push_back(std::make_unique<Daemon>(root + "/run/qgpu/manager.sock", "1.0", more));
  EXPECT_EQ(codes(), "task-unheld");
  EXPECT_EQ(whatOf("task-unheld"), "task 2 (web): process 6");
}

TEST_F(Doctor, LooksAtTheCertificatesThatTheDaemonsAreGiven) {
  const auto now = unixMsNow() / 1000;
  const auto certificate = [&](std::int64_t made, const std::string& name) {
    const auto set = renewed({}, {name}, made);
    EXPECT_TRUE(set.ok());
    write("/etc/qgpu/cert.pem", (*set)->cert);
    write("/etc/qgpu/key.pem", (*set)->key);
  };
  const auto flags = [&](const std::string& rpc) {
    write("/etc/default/qgpu-scheduler",
          "QGPU_SCHEDULER_FLAGS=\"--rpc=" + rpc +
              " --tls-cert=/etc/qgpu/cert.pem --tls-key=/etc/qgpu/key.pem\"\n");
  };
  flags("0.0.0.0:12346");
  EXPECT_EQ(codes(), "certificate");
  certificate(now, "host.example.org");
  EXPECT_EQ(codes(), "");
  flags("host.example.org:12346");
  EXPECT_EQ(codes(), "");
  flags("other.example.org:12346");
  EXPECT_EQ(codes(), "certificate-name");
  flags("0.0.0.0:12346");
  certificate(now - kServerSeconds + 3 * kDaySeconds, "host.example.org");
  EXPECT_EQ(codes(), "certificate-ends");
  certificate(now - kServerSeconds - 1, "host.example.org");
  EXPECT_EQ(codes(), "certificate-expired");
  const std::string other = renewed({}, {"x"}, now)->value().key;
  certificate(now + 3 * kDaySeconds, "host.example.org");
  EXPECT_EQ(codes(), "certificate-early");
  certificate(now, "host.example.org");
  write("/etc/qgpu/key.pem", other);
  EXPECT_EQ(codes(), "certificate-key");
}

TEST_F(Doctor, SaysWhereANodesCertificateIsOfNoUseToIt) {
  testing::Certificates made(root + "/etc/qgpu");
  fs::create_directories(root + "/etc/qgpu");
  made.makeCa("ca");
  made.make("ca", "node-1", "", "/OU=qgpu-node");
  made.make("ca", "operator", "DNS:node-1", "/OU=qgpu-admin");
  const auto flags = [&](const std::string& pair, const std::string& node) {
    write("/etc/default/qgpu-manager", "QGPU_MANAGER_FLAGS=\"--nodename=" + node +
                                           " --tls-cert=/etc/qgpu/" + pair +
                                           ".pem --tls-key=/etc/qgpu/" + pair + ".key\"\n");
  };
  flags("node-1", "node-1");
  EXPECT_EQ(codes(), "certificate-ends") << "it is for two days";
  flags("node-1", "node-2");
  EXPECT_EQ(codes(), "certificate-ends certificate-name");
  flags("operator", "node-1");
  EXPECT_EQ(codes(), "certificate-ends certificate-role");
}

TEST_F(Doctor, LooksAtTheCertificatesOfAConfigFileAndAtOneThatIsSaid) {
  testing::Certificates made(root + "/etc/qgpu");
  fs::create_directories(root + "/etc/qgpu");
  made.makeCa("ca");
  made.makeCa("other");
  made.make("ca", "node-1", "", "/OU=qgpu-node");
  write("/etc/default/qgpu-manager", "QGPU_MANAGER_FLAGS=\"--config=/etc/qgpu/manager.toml\"\n");
  const std::string pair =
      "tls-cert = \"/etc/qgpu/node-1.pem\"\ntls-key = \"/etc/qgpu/node-1.key\"\n";
  write("/etc/qgpu/manager.toml", pair + "nodename = \"node-2\"\n");
  EXPECT_EQ(codes(), "certificate-ends certificate-name");
  write("/etc/qgpu/manager.toml", pair + "tls-ca = \"/etc/qgpu/other.pem\"\nnodename=\"node-1\"");
  EXPECT_EQ(codes(), "certificate-ends certificate-ca");
  write("/etc/qgpu/manager.toml", pair + "nodename = node-1\n");
  EXPECT_EQ(codes(), "config");
  EXPECT_NE(whatOf("config").find("line 3"), std::string::npos) << whatOf("config");
  fs::remove(root + "/etc/default/qgpu-manager");
  EXPECT_EQ(codes(), "");
  options.cert = "/etc/qgpu/node-1.pem";
  options.key = "/etc/qgpu/ca.key";
  options.ca = "/etc/qgpu/ca.pem";
  EXPECT_EQ(codes(), "certificate-ends certificate-key");
}

TEST_F(Doctor, MarksWhatIsWellAndHowBadTheRestIs) {
  daemon("/run/qgpu/manager.sock");
  const Diagnosis diagnosis = examine(options, "1.0");
  const std::string table = doctorTable(diagnosis);
  EXPECT_NE(table.find("[ok]   qgpu-manager 1.0 answers on /run/qgpu/manager.sock\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("[fail] attach-closed: "), std::string::npos) << table;
  EXPECT_NE(doctorJson(diagnosis).find(R"("level":"fail")"), std::string::npos);
  EXPECT_TRUE((Finding{"certificate-ends", "", ""}).isWarning());
  EXPECT_TRUE((Finding{"driver-unknown", "", ""}).isWarning());
}

// --- the report ---

TEST_F(Doctor, AReportHasWhatDaemonsAnswerAndNoSecretOfIt) {
  const std::string token = "0123456789abcdef0123456789abcdef";
  const std::string recent = std::to_string(unixMsNow() - 60'000);
  std::map<std::string, std::string> more;
  more["tasks"] = R"({"ok":true,"tasks":[{"id":7,"name":"train","token":"short","env":)"
                  R"({"PASSWORD":"hunter2"},"note":")" +
                  token + "\"}]}\n";
  more["events 0"] = R"({"ok":true,"events":[{"seq":1,"unix_ms":5,"kind":"task-bound"},)"
                     R"({"seq":2,"unix_ms":)" +
                     recent + R"(,"kind":"task-ended"}]})" + "\n";
  more["events 2"] = "{\"ok\":true,\"events\":[]}\n";
  daemons.push_back(std::make_unique<Daemon>(root + "/run/qgpu/manager.sock", "1.0", more));
  write("/proc/version", "Linux version 6.1.0 (someone)\n");
  write("/proc/modules", "drm 1 0\nnvidia_uvm 4 0\nnvidia 9 1\n");
  const std::string report = reportOf(options, examine(options, "1.0"), "1.0");
  for (const char* part :
       {"A report of qgpuctl 1.0", "[fail] attach-closed", "Linux version 6.1.0", "nvidia_uvm 4 0",
        R"("id":7,"name":"train")", "\"token\":\"(left out)\"", "\"env\":\"(left out)\"",
        "task-ended", "== qgpu-manager: configuration\n(not known",
        "== qgpu-scheduler\n(does not"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << "\n" << report;
  }
  for (const std::string& secret : {token, std::string("short"), std::string("hunter2"),
                                    std::string("task-bound"), std::string("drm 1 0")}) {
    EXPECT_EQ(report.find(secret), std::string::npos) << secret;
  }
}

TEST(Report, LeavesOutPrivateKeysAndWhatLooksLikeAToken) {
  const std::string key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----\n";
  EXPECT_EQ(withoutSecrets("a\n" + key + "b\n"), "a\n(left out)\nb\n");
  EXPECT_EQ(withoutSecrets("x -----BEGIN EC PRIVATE KEY-----\nMIGH"), "x (left out)\n");
  const std::string token(32, 'A');
  EXPECT_EQ(withoutSecrets("QGPU_TOKEN=" + token + "\n"), "QGPU_TOKEN=(left out)\n");
  const std::string uuid = "GPU-8f3d2a1b-0000-1111-2222-333344445555 deadbeef\n";
  EXPECT_EQ(withoutSecrets(uuid), uuid);
}

TEST(Report, IsANewFileForItsUserAlone) {
  const testing::TempFolder folder{"rp"};
  const std::string path = folder.path() + "/report";
  const mode_t before = ::umask(0);
  EXPECT_TRUE(writeReport(path, "a").ok());
  ::umask(before);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(writeReport(path, "b").error().code, ErrorCode::AlreadyExists);
  fs::create_symlink("nowhere", folder.path() + "/link");
  EXPECT_FALSE(writeReport(folder.path() + "/link", "b").ok());
  EXPECT_EQ(writeReport(folder.path() + "/none/report", "b").error().code, ErrorCode::Unavailable);
}

TEST(Report, FetchesAPageOfMetrics) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 2), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread server([fd] {
    for (const std::string page :
         {"HTTP/1.1 200 OK\r\na: b\r\n\r\nqgpu_up 1\n", "HTTP/1.1 404 Not Found\r\n\r\nno\n"}) {
      const int peer = ::accept(fd, nullptr, nullptr);
      char line[512];
      EXPECT_GT(::read(peer, line, sizeof line), 0);
      EXPECT_EQ(::write(peer, page.data(), page.size()), static_cast<ssize_t>(page.size()));
      ::close(peer);
    }
  });
  const std::string at = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const auto page = fetch(at, "/metrics", seconds(10));
  EXPECT_TRUE(page.ok() && *page == "qgpu_up 1\n");
  EXPECT_FALSE(fetch(at, "/metrics", seconds(10)).ok());
  server.join();
  ::close(fd);
  EXPECT_FALSE(fetch(at, "/metrics", seconds(10)).ok());
  EXPECT_FALSE(fetch("", "/metrics", seconds(10)).ok());
}

// As the pod of the scheduler has them, which runs as no root.
TEST_F(Doctor, FollowsALinkToADaemonsSocket) {
  fs::create_directories(root + "/run/qgpu/scheduler");
  daemon("/run/qgpu/scheduler/scheduler.sock");
  fs::create_symlink("scheduler/scheduler.sock", root + "/run/qgpu/scheduler.sock");
  fs::create_symlink("scheduler/scheduler.rpc", root + "/run/qgpu/scheduler.rpc");
  EXPECT_EQ(codes(), "") << "the second leads nowhere, as after a stop";
}

// --- kubelet ---

TEST_F(Doctor, FindsASecondPluginByItsSocketOrByWhatKubeletKnows) {
  listen(std::string(kDevices) + "kubelet.sock");
  EXPECT_EQ(codes(), "");
  listen(std::string(kDevices) + "nvidia-gpu.sock");
  EXPECT_EQ(codes(), "second-plugin");
  listening.pop_back();
  EXPECT_EQ(codes(), "") << "left by a plugin that is gone";
  write(std::string(kDevices) + "kubelet_internal_checkpoint",
        R"({"Data":{"RegisteredDevices":{"nvidia.com/gpu":["GPU-1","GPU-2"]}},"Checksum":1})");
  EXPECT_EQ(codes(), "second-plugin");
  EXPECT_NE(whatOf("second-plugin").find("2 nvidia.com/gpu"), std::string::npos);
}

TEST_F(Doctor, FollowsOurPluginFromTheManagerToKubelet) {
  listen(std::string(kDevices) + "kubelet.sock");
  daemon("/run/qgpu/manager.sock");
  listen("/run/qgpu/attach.sock", SOCK_SEQPACKET);
  EXPECT_EQ(codes(), "plugin-missing");
  listen(std::string(kDevices) + "qgpu-memory-12-1.sock");
  EXPECT_EQ(codes(), "");
  write(std::string(kDevices) + "kubelet_internal_checkpoint",
        R"({"Data":{"RegisteredDevices":{"tke.cloud.tencent.com/qgpu-core":["a"]}}})");
  EXPECT_EQ(codes(), "plugin-not-registered");
  write(std::string(kDevices) + "kubelet_internal_checkpoint",
        R"({"Data":{"RegisteredDevices":{"tke.cloud.tencent.com/qgpu-memory":["a"]}}})");
  EXPECT_EQ(codes(), "");
  listening.erase(listening.begin());
  EXPECT_EQ(codes(), "kubelet-down");
}

// --- kube-scheduler ---

TEST_F(Doctor, MissesTheExtenderWhereKubeSchedulerHasNoConfiguration) {
  writeScheduler("28", "", "");
  EXPECT_EQ(codes(), "extender-not-registered");
  writeScheduler("28", "--config", configOf("v1", "extenders: []\n"));
  EXPECT_EQ(codes(), "extender-not-registered");
  writeScheduler("28", "--config", configOf("v1", extenderAt(port.number())));
  EXPECT_EQ(codes(), "");
}

TEST_F(Doctor, ReadsPoliciesOfOldVersionsToo) {
  writeScheduler("18", "--policy-config-file",
                 "kind: Policy\napiVersion: v1\n" + extenderAt(port.number()));
  EXPECT_EQ(codes(), "");
  writeScheduler("23", "--policy-config-file",
                 "kind: Policy\napiVersion: v1\n" + extenderAt(port.number()));
  EXPECT_EQ(codes(), "extender-generation");
}

TEST_F(Doctor, NoticesAConfigurationOfAnotherGeneration) {
  writeScheduler("29", "--config", configOf("v1beta3", extenderAt(port.number())));
  EXPECT_EQ(codes(), "extender-generation");
  writeScheduler("24", "--config", configOf("v1", extenderAt(port.number())));
  EXPECT_EQ(codes(), "extender-generation");
  writeScheduler("24", "--config", configOf("v1beta3", extenderAt(port.number())));
  EXPECT_EQ(codes(), "");
}

TEST_F(Doctor, NamesWhatAnExtenderLacks) {
  std::string extender = extenderAt(port.number());
  extender.replace(extender.find("  bindVerb: bind\n"), 17, "");
  extender.replace(extender.find("  - name: tke.cloud.tencent.com/qgpu-core-greedy\n"), 49, "");
  writeScheduler("28", "--config", configOf("v1", extender));
  EXPECT_EQ(codes(), "extender-incomplete");
  const std::string what = whatOf("extender-incomplete");
  EXPECT_NE(what.find("bindVerb"), std::string::npos) << what;
  EXPECT_NE(what.find("qgpu-core-greedy"), std::string::npos) << what;
  EXPECT_EQ(what.find("filterVerb"), std::string::npos) << what;
}

TEST_F(Doctor, AsksWhetherSomebodyListensWhereKubeSchedulerAsks) {
  std::string closed;
  { closed = Port().number(); }
  writeScheduler("28", "--config", configOf("v1", extenderAt(closed)));
  EXPECT_EQ(codes(), "extender-unreachable");
}

TEST_F(Doctor, TakesAConfigurationByNameAndSaysWhereAFileIsWrong) {
  options.kubeScheduler = "/etc/own.yaml";
  EXPECT_EQ(codes(), "scheduler-file");
  write("/etc/own.yaml", configOf("v1", extenderAt(port.number())));
  EXPECT_EQ(codes(), "");
  write("/etc/own.yaml", "a: 1\na: 2\n");
  EXPECT_EQ(codes(), "scheduler-file");
  EXPECT_NE(whatOf("scheduler-file").find("line 2"), std::string::npos);
  write("/etc/own.yaml", "kind: Deployment\n");
  EXPECT_EQ(codes(), "scheduler-file");
}

// --- as a program ---

int runDoctor(std::vector<std::string> arguments, std::string& output) {
  arguments.insert(arguments.begin(), QGPUCTL);
  const testing::Finished done = testing::run(arguments);
  output = done.output;
  return done.status;
}

TEST_F(Doctor, EndsWithThreeWhereSomethingIsBrokenAndShowsTheFix) {
  std::string output;
  EXPECT_EQ(runDoctor({"doctor", "--root", root}, output), 3);
  EXPECT_NE(output.find("no-daemon: "), std::string::npos) << output;
  EXPECT_NE(output.find("  fix: "), std::string::npos) << output;
  EXPECT_EQ(runDoctor({"-o", "json", "doctor", "--root", root}, output), 3);
  simdjson::dom::parser parser;
  std::string_view code;
  ASSERT_EQ(parser.parse(output).at_pointer("/findings/0/code").get(code), simdjson::SUCCESS)
      << output;
  EXPECT_EQ(code, "no-daemon");
  EXPECT_EQ(runDoctor({"doctor", "--root", root + "/none"}, output), 2);
}

TEST_F(Doctor, WarningsAloneAreNoFailure) {
  Diagnosis diagnosis{{}, {{"clock-unsynced", "nobody sets the clock", "set it"}}};
  EXPECT_FALSE(diagnosis.somethingBroken());
  EXPECT_TRUE(doctorJson(diagnosis).starts_with("{\"ok\":true,")) << doctorJson(diagnosis);
  diagnosis.findings.push_back({"disk-full", "no room", "make some"});
  EXPECT_TRUE(diagnosis.somethingBroken());
  EXPECT_TRUE(doctorJson(diagnosis).starts_with("{\"ok\":false,"));
}

TEST_F(Doctor, EndsWithNoughtWhereItOnlyWarns) {
  daemon("/run/qgpu/scheduler.sock");  // of another version than this program
  std::string output;
  EXPECT_EQ(runDoctor({"doctor", "--root", root, "--run-dir", "/run/qgpu"}, output), 0) << output;
  EXPECT_NE(output.find("[warn] versions-differ"), std::string::npos) << output;
  EXPECT_EQ(output.find("[fail]"), std::string::npos) << output;
}

TEST_F(Doctor, LooksInTheFolderOfTheSocketThatIsNamed) {
  daemon("/run/qgpu/manager.sock");
  std::string output;
  runDoctor({"--socket", root + "/run/qgpu/manager.sock", "doctor"}, output);
  EXPECT_EQ(output.find("no-daemon"), std::string::npos) << output;
  EXPECT_NE(output.find("versions-differ: qgpu-manager is 1.0"), std::string::npos) << output;
}

TEST_F(Doctor, FindsNothingInADiagnosisWithoutFindings) {
  const Diagnosis well{{{"kernel", "6.1"}}, {}};
  EXPECT_NE(doctorTable(well).find("nothing found"), std::string::npos);
  EXPECT_EQ(doctorJson(well),
            "{\"ok\":true,\"facts\":[{\"name\":\"kernel\",\"value\":\"6.1\"}],\"well\":[],"
            "\"findings\":[]}\n");
}

}  // namespace
}  // namespace qgpu::ctl::doctor_test
