// The packages of `./dev release`: what is in them, and a life of them in a clean root with a
// systemd of its own: installed, upgraded in place under a running program, not downgraded, removed
// and purged. QGPU_UPGRADES says how often they are upgraded meanwhile (`./dev soak packages`).

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <signal.h>
#include <sstream>

#include "tests/deploy/documents.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::packages_test {
namespace {

using namespace std::chrono_literals;
using testing::Child;
using testing::eventually;
using testing::Finished;
using testing::readText;
using testing::shell;
using testing::sourcePath;
using testing::TempFolder;
using Json = nlohmann::json;

namespace fs = std::filesystem;

constexpr const char* kPackages[] = {"libqgpu", "qgpu-manager", "qgpu-scheduler", "qgpuctl"};
constexpr const char* kPython = "python3-qgpu";  // of any machine, and nothing is linked
constexpr const char* kEpoch = "1700000000";
constexpr auto kPatience = 120s;  // for what takes a moment on an idle machine

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::set<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> out;
  for (std::string line; std::getline(in, line);) out.insert(line);
  return out;
}

// Debian packages of what was built, of the versions 1.0, 1.1, ... in a folder each.
class Packed {
 public:
  explicit Packed(std::size_t versions) {
    std::string all;
    for (std::size_t i = 0; i < versions; ++i) {
      all += sourcePath("deploy/packaging/pack.sh") + " " + QGPU_BUILD + " " + folder(i) + " " +
             version(i) + " DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=zstd >" + folder(i) +
             ".log 2>&1 || cat " + folder(i) + ".log" + (i % 2 == 0 ? " & " : "; wait; ");
    }
    const Finished packed = shell(all + "wait", {{"SOURCE_DATE_EPOCH", kEpoch}});
    EXPECT_EQ(packed.output, "");
  }

  static std::string version(std::size_t i) { return "1." + std::to_string(i); }
  std::string folder(std::size_t i) const { return folder_ / version(i); }
  std::string file(const std::string& package, std::size_t i) const {
    const std::string machine = package == kPython ? "all" : "amd64";
    return folder(i) + "/" + package + "_" + version(i) + "_" + machine + ".deb";
  }

 private:
  TempFolder folder_;
};

std::string field(const std::string& deb, const std::string& name) {
  return shell("dpkg-deb -f " + deb + " " + name).output;
}

std::set<std::string> filesOf(const std::string& deb) {
  return lines(
      shell("dpkg-deb --fsys-tarfile " + deb + " | tar -t | grep -v '/$' | cut -c 2-").output);
}

std::size_t upgrades() {
  const char* times = std::getenv("QGPU_UPGRADES");
  return times == nullptr ? 1 : std::strtoul(times, nullptr, 10);
}

struct Packages : ::testing::Test {
  // Packed once for all of these; a suite's, so that it ends before the program does.
  static void SetUpTestSuite() { packed = std::make_unique<Packed>(1 + upgrades()); }
  static void TearDownTestSuite() { packed.reset(); }
  static inline std::unique_ptr<Packed> packed;
};

TEST_F(Packages, HaveEachInstalledFileOnceAndWhatBelongsToIt) {
  const TempFolder folder;
  const Finished installed =
      shell(std::string(QGPU_CMAKE) + " --install " + QGPU_BUILD + " --prefix /usr",
            {{"DESTDIR", folder.path()}});
  ASSERT_EQ(installed.status, 0) << installed.output;
  std::map<std::string, std::string> packageOf;
  for (const char* package : kPackages) {
    for (const std::string& file : filesOf(packed->file(package, 0))) {
      EXPECT_TRUE(packageOf.emplace(file, package).second) << file << " is in two packages";
    }
    const std::string documents = std::string("/usr/share/doc/") + package;
    EXPECT_EQ(packageOf[documents + "/copyright"], package);
    EXPECT_EQ(packageOf[documents + "/changelog.gz"], package);
  }
  const std::string site = "/usr/share/zsh/site-functions/";
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (!entry.is_regular_file()) continue;
    std::string file = entry.path().string().substr(folder.path().size());
    if (file == "/usr/bin/qgpu-demo") continue;
    if (file.starts_with(site)) {
      file = "/usr/share/zsh/vendor-completions/" + file.substr(site.size());
    }
    EXPECT_TRUE(packageOf.contains(file)) << file << " is installed, and in no package";
  }
  EXPECT_EQ(packageOf["/usr/lib/libqgpu.so"], "libqgpu");
  EXPECT_EQ(packageOf["/usr/share/man/man1/qgpuctl.1"], "qgpuctl");
  EXPECT_EQ(packageOf["/usr/share/bash-completion/completions/qgpuctl"], "qgpuctl");
  for (const std::string daemon : {"qgpu-manager", "qgpu-scheduler"}) {
    EXPECT_EQ(packageOf["/etc/default/" + daemon], daemon);
    EXPECT_EQ(packageOf["/usr/lib/systemd/system/" + daemon + ".service"], daemon);
    EXPECT_EQ(packageOf["/usr/share/doc/" + daemon + "/examples/" + daemon + ".toml"], daemon);
    EXPECT_EQ(packageOf["/usr/lib/sysusers.d/" + daemon + ".conf"], daemon);
    EXPECT_EQ(shell("dpkg-deb -I " + packed->file(daemon, 0) + " conffiles").output,
              "/etc/default/" + daemon + "\n");
  }
}

TEST_F(Packages, DependOnWhatTheyLinkAndTheDaemonOnItsOwnLibrary) {
  for (const char* package : kPackages) {
    const std::string deb = packed->file(package, 0);
    EXPECT_EQ(field(deb, "Version"), "1.0\n");
    EXPECT_TRUE(has(field(deb, "Depends"), "libc6 (>=")) << package;
    const std::string odd = "dpkg-deb -c " + deb + " | grep -v ' root/root .* 2023-11-14 ' ; " +
                            "dpkg-deb -c " + deb + " | grep -v '^[d-]rw[x-]r-[x-]r-[x-] '";
    EXPECT_EQ(shell(odd).output, "") << package;
  }
  const std::string manager = field(packed->file("qgpu-manager", 0), "Depends");
  EXPECT_TRUE(has(manager, "libqgpu (= 1.0)")) << manager;
  for (const char* speaksGrpc : {"qgpu-manager", "qgpu-scheduler"}) {
    EXPECT_TRUE(has(field(packed->file(speaksGrpc, 0), "Depends"), "libgrpc++")) << speaksGrpc;
  }
  EXPECT_FALSE(has(field(packed->file("qgpuctl", 0), "Depends"), "libgrpc++"));
}

TEST_F(Packages, OfPythonHasItsModulesTypesAndAnExample) {
  const std::string deb = packed->file(kPython, 0);
  EXPECT_EQ(field(deb, "Depends"), "python3 (>= 3.9)\n");
  EXPECT_EQ(field(deb, "Architecture"), "all\n");
  const auto files = filesOf(deb);
  const std::string modules = "/usr/lib/python3/dist-packages/qgpu/";
  for (const auto& entry : fs::directory_iterator(sourcePath("services/python/qgpu"))) {
    const std::string name = entry.path().filename();
    EXPECT_EQ(files.contains(modules + name), name != "__pycache__") << name;
  }
  EXPECT_TRUE(files.contains("/usr/share/doc/python3-qgpu/examples/share_a_card.ipynb"));
  EXPECT_TRUE(files.contains("/usr/share/doc/python3-qgpu/copyright"));
}

TEST_F(Packages, AreTheSameBytesAgain) {
  const Packed again(1);
  EXPECT_EQ(readText(packed->file(kPython, 0)), readText(again.file(kPython, 0)));
  for (const char* package : kPackages) {
    EXPECT_EQ(readText(packed->file(package, 0)), readText(again.file(package, 0))) << package;
    EXPECT_NE(readText(packed->file(package, 0)), readText(packed->file(package, 1))) << package;
  }
}

std::string hexOf(const std::string& base64) {
  return shell("printf %s '" + base64 + "' | base64 -d | od -An -v -tx1 | tr -d ' \\n'").output;
}

// What the page inside the daemons was bundled from stands in the lock file, and the packages tell
// it with its licence. `of`: the packages of the SPDX file by id.
void checkThePagesPackages(const std::map<std::string, Json>& of,
                           const std::set<std::string>& relations, const Packed& packed) {
  const std::string page = "services/web/page/";
  const Json wanted = Json::parse(readText(sourcePath(page + "package.json")))["dependencies"];
  const Json lock = Json::parse(readText(sourcePath(page + "package-lock.json")))["packages"];
  for (const auto& [name, version] : wanted.items()) {
    const bool bundler = name == "esbuild";
    EXPECT_EQ(of.contains("SPDXRef-npm-" + name), !bundler) << name;
  }
  for (const auto& [id, package] : of) {
    if (!id.starts_with("SPDXRef-npm-")) continue;
    const std::string name = package["name"];
    const Json locked = lock.value("node_modules/" + name, Json());
    ASSERT_TRUE(locked.is_object()) << name << " is not in the lock file";
    EXPECT_EQ(package["versionInfo"], locked["version"]);
    EXPECT_EQ(package["licenseDeclared"], locked["license"]);
    const std::string sum = locked["integrity"];
    EXPECT_EQ(package["checksums"][0]["checksumValue"], hexOf(sum.substr(sum.find('-') + 1)));
    const std::string said = "Contains " + name + " " + package["versionInfo"].get<std::string>();
    for (const std::string daemon : {"qgpu-manager", "qgpu-scheduler"}) {
      EXPECT_TRUE(relations.contains("SPDXRef-" + daemon + " CONTAINS " + id)) << daemon;
      const std::string copyright = shell("dpkg-deb --fsys-tarfile " + packed.file(daemon, 0) +
                                          " | tar -xO ./usr/share/doc/" + daemon + "/copyright")
                                        .output;
      EXPECT_TRUE(copyright.starts_with(readText(sourcePath("LICENSE")))) << copyright;
      EXPECT_TRUE(has(copyright, said) && has(copyright, "Permission is hereby granted")) << said;
    }
  }
}

// Every element that the SPDX file tells a relation of is in it, and none is of another version
// than dpkg knows.
TEST_F(Packages, SayWhatTheyLinkWithItsVersions) {
  std::string line = sourcePath("deploy/packaging/sbom.sh") + " " + QGPU_BUILD + " 1.0 commit";
  for (const char* package : kPackages) line += " " + packed->file(package, 0);
  line += " " + packed->file(kPython, 0);
  const Finished said = shell(line, {{"SOURCE_DATE_EPOCH", kEpoch}});
  const Json document = Json::parse(said.output, nullptr, false);
  ASSERT_TRUE(said.status == 0 && document.is_object()) << said.output;
  EXPECT_EQ(document["spdxVersion"], "SPDX-2.3");
  EXPECT_EQ(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
  std::map<std::string, std::string> versions;
  std::set<std::string> ids = {"SPDXRef-DOCUMENT"};
  std::map<std::string, Json> of;
  for (const Json& package : document["packages"]) {
    const std::string name = package["name"];
    EXPECT_TRUE(ids.insert(package["SPDXID"]).second) << package;
    of[package["SPDXID"]] = package;
    if (name != kPython && std::count(std::begin(kPackages), std::end(kPackages), name) == 0) {
      versions[name] = package["versionInfo"];
    }
  }
  EXPECT_EQ(versions["libuv1"], shell("dpkg-query -W -f '${Version}' libuv1").output);
  std::set<std::string> relations;
  for (const Json& relation : document["relationships"]) {
    const std::string from = relation["spdxElementId"];
    const std::string to = relation["relatedSpdxElement"];
    EXPECT_TRUE(ids.contains(from) && ids.contains(to)) << relation;
    relations.insert(from + " " + relation["relationshipType"].get<std::string>() + " " + to);
  }
  EXPECT_TRUE(relations.contains("SPDXRef-qgpu-manager DYNAMIC_LINK SPDXRef-libuv1"));
  EXPECT_TRUE(relations.contains("SPDXRef-qgpu-manager STATIC_LINK SPDXRef-libcapnp-dev"));
  EXPECT_TRUE(relations.contains("SPDXRef-libcli11-dev BUILD_DEPENDENCY_OF SPDXRef-qgpuctl"));
  EXPECT_TRUE(relations.contains("SPDXRef-libqgpu DYNAMIC_LINK SPDXRef-libc6"));
  if (QGPU_PAGE_IS_THERE) checkThePagesPackages(of, relations, *packed);
}

TEST(PackageScripts, PassShellcheck) {
  const Finished checked =
      shell("find " + sourcePath("deploy/packaging/debian") + " -type f | xargs shellcheck -s sh " +
            sourcePath("deploy/packaging/rpm") + "/* " + sourcePath("tests/deploy/clean_root.sh"));
  EXPECT_EQ(checked.status, 0) << checked.output;
}

// --- the version ---

struct Tagged {
  explicit Tagged(const std::string& heading) {
    folder.write("CHANGELOG.md", "# Changes\n\n## " + heading + "\n\nText.\n\n## 0.0.1\n");
    folder.write("deploy/packaging/version.sh", readText(sourcePath("deploy/packaging/version.sh")),
                 0755);
    git("init -q && git add . && git -c user.name=a -c user.email=b commit -q -m c");
  }
  Finished git(const std::string& line) const {
    return shell("cd " + folder.path() + " && git " + line,
                 {{"GIT_COMMITTER_DATE", "1700000000 +0500"}, {"GIT_CONFIG_GLOBAL", "/dev/null"}});
  }
  Finished version() const { return shell(folder / "deploy/packaging/version.sh"); }

  TempFolder folder;
};

TEST(Version, IsTheChangelogsWithATagAndOnTheWayThereWithout) {
  const Tagged tree("1.2.3");
  const Finished before = tree.version();
  EXPECT_TRUE(before.output.starts_with("1.2.3~20231114221320.")) << before.output;
  const std::string compare = "dpkg --compare-versions 1.2.3 gt " + before.output;
  EXPECT_EQ(shell(compare).status, 0) << compare;
  tree.git("tag v1.2.3");
  EXPECT_EQ(tree.version().output, "1.2.3\n");
}

TEST(Version, OfAnotherTagOrOneThatIsUnreleasedIsRefused) {
  const Tagged other("1.2.3");
  other.git("tag v1.2.4");
  EXPECT_EQ(other.version().status, 1);
  EXPECT_TRUE(has(other.version().output, "the tag v1.2.4, and CHANGELOG.md begins with 1.2.3"))
      << other.version().output;
  const Tagged unreleased("1.2.3, unreleased");
  unreleased.git("tag v1.2.3");
  EXPECT_EQ(unreleased.version().status, 1);
  EXPECT_TRUE(has(unreleased.version().output, "unreleased")) << unreleased.version().output;
}

TEST(Version, IsOneEverywhere) {
  const std::string changes = readText(sourcePath("CHANGELOG.md"));
  const std::size_t at = changes.find("\n## ") + 4;
  const std::string number = changes.substr(at, changes.find_first_of(",\n", at) - at);
  EXPECT_EQ(shell(testing::binary("qgpuctl") + " version").output, "qgpuctl " + number + "\n");
  EXPECT_TRUE(has(readText(sourcePath("deploy/kubernetes/kustomization.yaml")),
                  "newTag: " + number + "\n"));
}

// --- a clean root ---

class CleanRoot {
 public:
  // Of the packages that these need, with a program that keeps a card busy.
  explicit CleanRoot(const Packed& packed) {
    std::string needed = " systemd pocl-opencl-icd ocl-icd-libopencl1 python3";
    for (const char* package : kPackages) {
      const Finished depends = shell("dpkg-deb -f " + packed.file(package, 0) +
                                     " Depends | sed 's/ *([^)]*)//g; s/ *|[^,]*//g; s/,//g'");
      for (const std::string& name : lines(shell("printf '%s\\n' " + depends.output).output)) {
        if (name != "libqgpu") needed += " " + name;
      }
    }
    const Finished made = shell(script("make") + needed);
    EXPECT_EQ(made.status, 0) << made.output;
    fs::copy_file(testing::binary("qgpu-work"), folder_ / "root/opt/qgpu-work");
    boot_ = std::make_unique<Child>(
        std::vector<std::string>{sourcePath("tests/deploy/clean_root.sh"), "boot", root()});
    EXPECT_TRUE(eventually(
        [&] { return init() && has(in("systemctl is-system-running").output, "running"); },
        kPatience))
        << boot_->output() << in("systemctl --failed --no-pager").output;
  }
  ~CleanRoot() {
    if (::testing::Test::HasFailure()) {
      std::cerr << in("journalctl --no-pager -n 100").output << boot_->output() << "\n";
    }
    ::kill(std::stoi(init_), SIGKILL);
    boot_->wait(kPatience);
    const Finished ended = shell(script("end"));
    EXPECT_EQ(ended.status, 0) << ended.output;
  }

  // Why this machine can't have one; empty where it can.
  static std::string why() {
    return shell(sourcePath("tests/deploy/clean_root.sh") + " why").output;
  }

  Finished in(const std::string& line) const {
    return testing::run(entering({"sh", "-c", line}), {}, kPatience);
  }
  std::unique_ptr<Child> start(const std::vector<std::string>& argv) const {
    return std::make_unique<Child>(entering(argv));
  }
  Finished dpkg(const std::string& action, const std::string& what) const {
    return in("DEBIAN_FRONTEND=noninteractive dpkg " + action + " " + what);
  }
  Finished install(const Packed& packed, std::size_t i) const {
    fs::copy(packed.folder(i), folder_ / ("root/root/" + Packed::version(i)),
             fs::copy_options::recursive | fs::copy_options::update_existing);
    return dpkg("-i", "/root/" + Packed::version(i) + "/*.deb");
  }
  std::string versionOf(const std::string& package) const {
    return in("dpkg-query -W -f '${Version}' " + package).output;
  }
  std::string pidOf(const std::string& daemon) const {
    return in("systemctl show -p MainPID --value " + daemon).output;
  }

  // All files but those in which a system keeps its own books.
  std::set<std::string> files() const {
    return lines(shell("cd " + root() +
                       " && find . -path ./root -prune -o -path ./var/log -prune"
                       " -o -path ./var/lib/dpkg -prune -o -path ./var/lib/systemd -prune"
                       " -o -path ./var/cache -prune -o -print")
                     .output);
  }
  std::string root() const { return folder_ / "root"; }

 private:
  std::string script(const std::string& command) const {
    return sourcePath("tests/deploy/clean_root.sh") + " " + command + " " + root();
  }
  // Its first process, as it is called here: the only child of the one that was started.
  bool init() {
    const std::string pid = std::to_string(boot_->pid());
    std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> init_;
    return !init_.empty();
  }
  std::vector<std::string> entering(const std::vector<std::string>& argv) const {
    std::vector<std::string> words = {
        "nsenter", "--target", init_,    "--mount",  "--uts", "--ipc", "--net",
        "--pid",   "--cgroup", "--root", "--wdns=/", "env",   "-i",    "PATH=/usr/sbin:/usr/bin"};
    words.insert(words.end(), argv.begin(), argv.end());
    return words;
  }

  TempFolder folder_;
  std::unique_ptr<Child> boot_;
  std::string init_;
};

// A program on a card, that goes on until it is told to end, and what can be seen of it.
class Tenant {
 public:
  explicit Tenant(const CleanRoot& root) : root_(root) {
    child_ = root.start({"qgpuctl", "run", "--name", "steady", "--", "/opt/qgpu-work",
                         "--mode=steady", "--seconds=0", "--json"});
    EXPECT_TRUE(works()) << child_->output();
    pid_ = root_.in("pidof qgpu-work").output;
    id_ = task()["id"];
  }
  // The same process under the same task, and the card runs its kernels.
  void expectUndisturbed() {
    EXPECT_TRUE(works()) << child_->output();
    EXPECT_EQ(root_.in("pidof qgpu-work").output, pid_);
    EXPECT_EQ(task()["id"], id_);
  }
  void expectRightResults() {
    root_.in("kill -TERM " + pid_);
    EXPECT_EQ(child_->wait(kPatience), 0);
    const std::string said = child_->output();
    const Json report =
        Json::parse(said.substr(std::min(said.find('{'), said.size())), nullptr, false);
    ASSERT_TRUE(report.is_object()) << said;
    EXPECT_EQ(report["checksum_ok"], true) << said;
    EXPECT_GT(report["kernels"], 0u) << said;
  }

 private:
  Json task() const {
    const Json answer = Json::parse(root_.in("qgpuctl -o json tasks").output, nullptr, false);
    if (!answer.is_object() || !answer.contains("tasks")) return Json::object();
    for (const Json& task : answer["tasks"]) {
      if (task["name"] == "steady") return task;
    }
    return Json::object();
  }
  std::uint64_t launches() const { return task().value("launches", std::uint64_t{0}); }
  // More kernels than a full queue has.
  bool works() const {
    std::uint64_t first = 0;
    return eventually(
        [&] {
          const std::uint64_t now = launches();
          if (first == 0) first = now;
          return first != 0 && now > first + 100;
        },
        kPatience);
  }

  const CleanRoot& root_;
  std::unique_ptr<Child> child_;
  std::string pid_;
  Json id_;
};

void expectInstalled(const CleanRoot& root) {
  for (const char* daemon : {"qgpu-manager", "qgpu-scheduler"}) {
    EXPECT_EQ(root.in(std::string("systemctl is-active ") + daemon).output, "active\n");
    EXPECT_EQ(root.in(std::string("systemctl is-enabled ") + daemon).output, "enabled\n");
    EXPECT_EQ(root.in(std::string(daemon) + " --version").status, 0);
  }
  EXPECT_EQ(root.in("getent group qgpu").status, 0);
  EXPECT_TRUE(has(root.in("systemctl show -p NRestarts --value qgpu-manager").output, "0\n"));
  const Finished linked = root.in(
      "ldd /usr/bin/qgpu-manager /usr/bin/qgpu-scheduler /usr/bin/qgpu-kubelet-plugin "
      "/usr/bin/qgpu-suspend-probe /usr/bin/qgpuctl /usr/lib/libqgpu.so");
  EXPECT_FALSE(has(linked.output, "not found")) << linked.output;
}

void upgradeUnder(Tenant& tenant, const CleanRoot& root, const Packed& packed, std::size_t to) {
  const std::string manager = root.pidOf("qgpu-manager");
  const std::string scheduler = root.pidOf("qgpu-scheduler");
  const Finished upgraded = root.install(packed, to);
  EXPECT_EQ(upgraded.status, 0) << upgraded.output;
  EXPECT_EQ(root.versionOf("qgpu-manager"), Packed::version(to));
  EXPECT_NE(root.pidOf("qgpu-manager"), manager) << "the new one has to serve";
  EXPECT_NE(root.pidOf("qgpu-scheduler"), scheduler);
  expectInstalled(root);
  tenant.expectUndisturbed();
}

// What is installed is of version `now`.
void expectNoWayBack(const CleanRoot& root, const Packed& packed, std::size_t now) {
  const std::string manager = root.pidOf("qgpu-manager");
  const Finished refused = root.install(packed, 0);
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(has(refused.output, "qgpu-manager: 1.0 is older than " + Packed::version(now)))
      << refused.output;
  EXPECT_TRUE(has(refused.output, "nothing was changed")) << refused.output;
  for (const char* package : kPackages) {
    EXPECT_EQ(root.versionOf(package), Packed::version(now)) << package;
  }
  EXPECT_EQ(root.pidOf("qgpu-manager"), manager) << "it served all the time";
}

// A guard as a manager with another run dir has it: below the root's bpffs, until it is unloaded.
void pinAGuard(const CleanRoot& root) {
  const Finished pinned = root.in(
      "mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf && "
      "mkdir -p /sys/fs/bpf/qgpu/other && ln -s link /sys/fs/bpf/qgpu/other/qgpu_open");
  ASSERT_EQ(pinned.status, 0) << pinned.output;
}
bool guardIsPinned(const CleanRoot& root) {
  return root.in("test -L /sys/fs/bpf/qgpu/other/qgpu_open").status == 0;
}

// What RPMs run before a version goes, of the manager: "1" for one that is replaced.
void expectRpmsUnloadTheGuardWithTheLastVersion(const CleanRoot& root) {
  std::string script = readText(sourcePath("deploy/packaging/rpm/preun"));
  const std::string name = "@package@";
  script.replace(script.find(name), name.size(), "qgpu-manager");
  std::ofstream(root.root() + "/root/preun") << script;
  pinAGuard(root);
  EXPECT_EQ(root.in("sh /root/preun 1").status, 0);
  EXPECT_TRUE(guardIsPinned(root)) << "an upgrade keeps it";
  EXPECT_EQ(root.in("sh /root/preun 0").status, 0);
  EXPECT_FALSE(guardIsPinned(root));
}

TEST_F(Packages, ComeAndGoUnderARunningProgram) {
  const std::string why = CleanRoot::why();
  if (!why.empty()) GTEST_SKIP() << why;
  const std::size_t last = upgrades();
  const CleanRoot root(*packed);
  const auto before = root.files();

  const Finished installed = root.install(*packed, 0);
  ASSERT_EQ(installed.status, 0) << installed.output;
  expectInstalled(root);
  ASSERT_EQ(root.in("echo QGPU_MANAGER_FLAGS=--mixed >/etc/default/qgpu-manager").status, 0);

  const Finished python = root.in("python3 -m qgpu run --memory 64MiB -- sh -c 'exit 7'");
  EXPECT_EQ(python.status, 7) << python.output;

  ASSERT_NO_FATAL_FAILURE(pinAGuard(root));
  Tenant tenant(root);
  for (std::size_t to = 1; to <= last; ++to) upgradeUnder(tenant, root, *packed, to);
  EXPECT_EQ(root.in("cat /etc/default/qgpu-manager").output, "QGPU_MANAGER_FLAGS=--mixed\n");
  expectNoWayBack(root, *packed, last);
  EXPECT_TRUE(guardIsPinned(root)) << "an upgrade keeps it";
  tenant.expectUndisturbed();
  tenant.expectRightResults();

  EXPECT_EQ(root.dpkg("-r", "qgpu-scheduler").status, 0);
  EXPECT_TRUE(guardIsPinned(root)) << "it is the manager's";
  const std::string all = "qgpu-manager qgpu-scheduler qgpuctl libqgpu python3-qgpu";
  const Finished removed = root.dpkg("-r", all);
  EXPECT_EQ(removed.status, 0) << removed.output;
  EXPECT_FALSE(guardIsPinned(root)) << "it would outlive the product";
  EXPECT_NE(root.in("systemctl is-active qgpu-manager").output, "active\n");
  EXPECT_EQ(root.in("pidof qgpu-manager qgpu-scheduler qgpu-kubelet-plugin").output, "");
  EXPECT_TRUE(fs::exists(root.root() + "/var/lib/qgpu/meta.db")) << "state stays until purged";
  EXPECT_TRUE(fs::exists(root.root() + "/etc/default/qgpu-manager"));
  // Removed first, an older one may be installed: it goes on from the state that it can read.
  const Finished older = root.install(*packed, 0);
  EXPECT_EQ(older.status, 0) << older.output;
  expectInstalled(root);
  expectRpmsUnloadTheGuardWithTheLastVersion(root);

  const Finished purged = root.dpkg("--purge", all);
  EXPECT_EQ(purged.status, 0) << purged.output;
  auto after = root.files();
  for (const char* copy : {"group-", "gshadow-", "passwd-", "shadow-"}) {
    after.erase(std::string("./etc/") + copy);  // systemd-sysusers keeps one of what was before
  }
  for (const std::string& file : after) {
    // The root has Python's own modules as they come in packages, not compiled.
    if (has(file, "__pycache__") && !has(file, "qgpu")) continue;
    EXPECT_TRUE(before.contains(file)) << file << " is left behind";
  }
  EXPECT_EQ(root.in("find /run -name *qgpu*").output, "");
  EXPECT_EQ(root.in("getent group qgpu").status, 0) << "groups stay";
}

}  // namespace
}  // namespace qgpu::packages_test
