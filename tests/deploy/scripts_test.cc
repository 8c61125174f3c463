// The scripts of deploy/ on folders made for the test and with a kubectl that is a script: it keeps
// a cluster of files and writes down what it was told to change. What runs twice changes nothing
// the second time.

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <sys/stat.h>

#include "tests/deploy/documents.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::scripts_test {
namespace {

using testing::Document;
using testing::Finished;
using testing::parseDocuments;
using testing::readText;
using testing::shell;
using testing::sourcePath;
using testing::TempFolder;

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Scripts, PassShellcheck) {
  std::string scripts;
  std::size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(sourcePath("deploy"))) {
    if (entry.path().extension() != ".sh") continue;
    scripts += " " + entry.path().string();
    ++count;
    EXPECT_NE(entry.status().permissions() & fs::perms::owner_exec, fs::perms::none)
        << entry.path();
    EXPECT_TRUE(readText(entry.path().string()).starts_with("#!/bin/sh\n")) << entry.path();
  }
  EXPECT_GE(count, 4u);
  const Finished checked = shell("shellcheck -s sh" + scripts);
  EXPECT_EQ(checked.status, 0) << checked.output;
}

// --- register.sh ---

constexpr const char* kManifest = R"(apiVersion: v1
kind: Pod
metadata:
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=true
    image: registry.k8s.io/kube-scheduler:v1.VERSION
    name: kube-scheduler
    volumeMounts:
    - mountPath: /etc/kubernetes/scheduler.conf
      name: kubeconfig
      readOnly: true
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/scheduler.conf
      type: FileOrCreate
    name: kubeconfig
)";

std::string manifestOf(const std::string& version) {
  std::string text = kManifest;
  return text.replace(text.find("VERSION"), 7, version);
}

class ControlPlane {
 public:
  explicit ControlPlane(const std::string& manifest)
      : manifest_(folder_.write("manifests/kube-scheduler.yaml", manifest, 0600)) {}

  Finished run(const std::string& options = "") const {
    return shell(sourcePath("deploy/kubernetes/kube-scheduler/register.sh") + " " +
                 this->options() + options);
  }
  std::string options() const {
    return "--manifest " + manifest_ + " --folder " + folder_ / "qgpu" + " ";
  }
  std::string manifest() const { return readText(manifest_); }
  void rewrite(const std::string& manifest) const {
    folder_.write("manifests/kube-scheduler.yaml", manifest, 0600);
  }
  std::string config(const std::string& name) const { return readText(folder_ / ("qgpu/" + name)); }
  bool hasFolder() const { return fs::exists(folder_ / "qgpu"); }
  // What kubelet would start as pods.
  std::size_t manifests() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_ / "manifests"), fs::directory_iterator()));
  }
  std::string folder() const { return folder_ / "qgpu"; }

 private:
  TempFolder folder_;
  std::string manifest_;
};

TEST(Register, PutsTheExtenderIntoAStaticPodOfKubeadm) {
  const ControlPlane machine(manifestOf("28.3"));
  const Finished result = machine.run();
  ASSERT_EQ(result.status, 0) << result.output;
  const Document pod = parseDocuments(machine.manifest()).at(0);
  EXPECT_EQ(pod.text("/spec/containers/0/command/0"), "kube-scheduler");
  EXPECT_EQ(pod.text("/spec/containers/0/command/1"),
            "--config=" + machine.folder() + "/kube-scheduler.yaml");
  EXPECT_EQ(pod.text("/spec/containers/0/volumeMounts/0/mountPath"), machine.folder());
  EXPECT_EQ(pod.text("/spec/containers/0/volumeMounts/0/name"), "qgpu");
  EXPECT_EQ(pod.text("/spec/containers/0/volumeMounts/1/name"), "kubeconfig");
  EXPECT_EQ(pod.text("/spec/volumes/0/hostPath/path"), machine.folder());
  EXPECT_EQ(pod.text("/spec/volumes/0/name"), "qgpu");
  EXPECT_EQ(machine.config("kube-scheduler.yaml"),
            readText(sourcePath("deploy/kubernetes/kube-scheduler/config-v1.yaml")));
  EXPECT_EQ(machine.manifests(), 1u) << "kubelet would start a second kube-scheduler";
}

TEST(Register, TakesTheConfigurationOfTheVersion) {
  const std::pair<const char*, const char*> kRows[] = {
      {"14.10", "policy.json"},        {"18.0", "policy.json"},
      {"19.1", "config-v1beta1.yaml"}, {"21.14", "config-v1beta1.yaml"},
      {"22.0", "config-v1beta2.yaml"}, {"23.17", "config-v1beta3.yaml"},
      {"24.1", "config-v1beta3.yaml"}, {"25.0", "config-v1.yaml"},
      {"33.1", "config-v1.yaml"},
  };
  for (const auto& [version, source] : kRows) {
    const ControlPlane machine(manifestOf(version));
    const Finished result = machine.run();
    ASSERT_EQ(result.status, 0) << version << ": " << result.output;
    const bool policy = std::string(source) == "policy.json";
    EXPECT_EQ(machine.config(policy ? "policy.json" : "kube-scheduler.yaml"),
              readText(sourcePath("deploy/kubernetes/kube-scheduler/" + std::string(source))))
        << version;
    EXPECT_EQ(has(machine.manifest(), "--use-legacy-policy-config=true"), policy) << version;
  }
}

TEST(Register, ChangesNothingTheSecondTime) {
  const ControlPlane machine(manifestOf("28.3"));
  ASSERT_EQ(machine.run().status, 0);
  const std::string first = machine.manifest();
  const Finished second = machine.run();
  EXPECT_EQ(second.status, 0);
  EXPECT_TRUE(has(second.output, "nothing to do")) << second.output;
  EXPECT_EQ(machine.manifest(), first);
}

TEST(Register, SaysWhatItWouldDoAndDoesNotDoIt) {
  const ControlPlane machine(manifestOf("28.3"));
  const Finished result = machine.run("--dry-run");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(has(result.output, "- --config=" + machine.folder())) << result.output;
  EXPECT_EQ(machine.manifest(), manifestOf("28.3"));
  EXPECT_FALSE(machine.hasFolder());
}

TEST(Register, RemovesWhatItPutIn) {
  const ControlPlane machine(manifestOf("28.3"));
  ASSERT_EQ(machine.run().status, 0);
  EXPECT_EQ(machine.run("--remove --dry-run").status, 0);
  EXPECT_NE(machine.manifest(), manifestOf("28.3"));
  const Finished removed = machine.run("--remove");
  EXPECT_EQ(removed.status, 0) << removed.output;
  EXPECT_EQ(machine.manifest(), manifestOf("28.3"));
  EXPECT_FALSE(machine.hasFolder());
  EXPECT_EQ(machine.run("--remove").status, 0) << "once more";
}

TEST(Register, LeavesToAPersonWhatItDoesNotUnderstand) {
  std::string configured = manifestOf("28.3");
  configured.insert(configured.find("    - --leader-elect"), "    - --config=/etc/own.yaml\n");
  std::string noVolumes = manifestOf("28.3");
  noVolumes.replace(noVolumes.find("  volumes:"), 10, "  volumez:");
  std::string noVersion = manifestOf("28.3");
  noVersion.replace(noVersion.find("v1.28.3"), 7, "latest");
  for (const std::string& manifest : {configured, noVolumes, noVersion, manifestOf("13.1")}) {
    const ControlPlane machine(manifest);
    const Finished result = machine.run();
    EXPECT_EQ(result.status, 3) << result.output;
    EXPECT_TRUE(has(result.output, "nothing was changed")) << result.output;
    EXPECT_TRUE(has(result.output, "config-v1.yaml")) << result.output;
    EXPECT_EQ(machine.manifest(), manifest);
    EXPECT_FALSE(machine.hasFolder());
  }
  const Finished none = shell(sourcePath("deploy/kubernetes/kube-scheduler/register.sh") +
                              " --manifest /nonexistent/kube-scheduler.yaml");
  EXPECT_EQ(none.status, 3);
}

TEST(Register, NoticesAnUpgradeThatNeedsAnotherConfiguration) {
  const ControlPlane machine(manifestOf("18.0"));
  ASSERT_EQ(machine.run().status, 0);
  std::string upgraded = machine.manifest();
  upgraded.replace(upgraded.find("v1.18.0"), 7, "v1.28.0");
  machine.rewrite(upgraded);
  const Finished result = machine.run();
  EXPECT_EQ(result.status, 3);
  EXPECT_TRUE(has(result.output, "--remove first")) << result.output;
}

// --- install.sh and uninstall.sh ---

// Answers questions from files in $CLUSTER, changes them, and writes each change to $CLUSTER/log.
constexpr const char* kKubectl = R"SH(#!/bin/sh
set -eu
case "$*" in
  kustomize*) cat "$CLUSTER/objects"; exit ;;
  'apply -f -') cat >"$CLUSTER/applied"; echo "$*" >>"$CLUSTER/log"; exit ;;
  'get --raw /version') cat "$CLUSTER/version"; exit ;;
  'get --raw /apis/resource.k8s.io/v1') [ -e "$CLUSTER/claims" ]; exit ;;
  'get resourceclaims '*) cat "$CLUSTER/claims"; exit ;;
  *' get secret '*' -o name') [ ! -e "$CLUSTER/secret" ] || echo secret/of-the-extender; exit ;;
  *' get secret '*) cat "$CLUSTER/secret/$(echo "$*" | sed 's/.*index .data "//;s/".*//')"; exit ;;
  *' get deployment '*) [ ! -e "$CLUSTER/release" ] || cat "$CLUSTER/release"; exit ;;
  *' get service '*) [ ! -e "$CLUSTER/service" ] || cat "$CLUSTER/service"; exit ;;
  *' create secret '*) echo "create secret" >>"$CLUSTER/log"; mkdir "$CLUSTER/secret"
      for word in "$@"; do case "$word" in
        --from-file=*) cp "${word#*=}" "$CLUSTER/secret" ;; esac; done; exit ;;
  *' delete secret '*) echo "delete secret" >>"$CLUSTER/log"; rm -rf "$CLUSTER/secret"; exit ;;
  'get node '*) ;;
  'get nodes '*) ls "$CLUSTER/labels" | while read -r node; do
      ! grep -q '^qgpu-device-enable=' "$CLUSTER/labels/$node" || echo "$node"; done; exit ;;
  'get pods '*) cat "$CLUSTER/pods"; : >"$CLUSTER/pods.asked"
      [ ! -e "$CLUSTER/pods.next" ] || mv "$CLUSTER/pods.next" "$CLUSTER/pods"; exit ;;
  *' get pods -l app=qgpu-manager '*) cat "$CLUSTER/managers"; exit ;;
  *' exec '*) echo "$*" >>"$CLUSTER/log"
      case "$*" in *"exec $(cat "$CLUSTER/dead") "*) exit 1 ;; esac; exit ;;
  *wait*) exit 1 ;;
  *) echo "$*" >>"$CLUSTER/log" ;;
esac
set_line() { grep -v "^$2=" "$1" >"$1.new" || true; [ -z "$3" ] || echo "$2=$3" >>"$1.new"
  mv "$1.new" "$1"; }
change() { file=$1; shift; for word in "$@"; do case "$word" in
    *=*) set_line "$file" "${word%%=*}" "${word#*=}" ;;
    *-) set_line "$file" "${word%-}" '' ;; esac; done; }
verb=$1; shift
[ "${1:-}" != --overwrite ] || shift
case "$verb" in
  get) node=$2; [ -e "$CLUSTER/labels/$node" ] || { echo "no node $node" >&2; exit 1; }
    case "$4" in
      *allocatable*) cat "$CLUSTER/regular/$node" 2>/dev/null || true ;;
      *unschedulable*) grep -q '^closed=true' "$CLUSTER/annotations/$node" && printf true || true ;;
      *labels*|*annotations*)
        key=$(printf %s "$4" | sed 's/jsonpath={.metadata.[a-z]*\.//;s/}$//;s/\\//g')
        sed -n "s|^$key=||p" "$CLUSTER/labels/$node" "$CLUSTER/annotations/$node" | tr -d '\n' ;;
    esac ;;
  label) shift; node=$1; shift; change "$CLUSTER/labels/$node" "$@" ;;
  annotate) shift; node=$1; shift; change "$CLUSTER/annotations/$node" "$@" ;;
  cordon) set_line "$CLUSTER/annotations/$1" closed true ;;
  uncordon) set_line "$CLUSTER/annotations/$1" closed '' ;;
  apply|delete) ;;
  *) echo "stand-in: $verb is not known" >&2; exit 1 ;;
esac
)SH";

class Cluster {
 public:
  explicit Cluster(const std::string& minor = "28") {
    kubectl_ = folder_.write("kubectl", kKubectl, 0755);
    folder_.write("version", "{\n  \"major\": \"1\",\n  \"minor\": \"" + minor + "+\"\n}\n");
    folder_.write("objects",
                  "  - image: qgpu/manager:0.1.0\n    imagePullPolicy: IfNotPresent\n"
                  "  - image: qgpu/scheduler:0.1.0\n    imagePullPolicy: IfNotPresent\n");
    folder_.write("pods", "");
    folder_.write("managers", "");
    folder_.write("dead", "nobody");
    folder_.write("log", "");
    for (const char* node : {"n1", "n2"}) {
      folder_.write("labels/" + std::string(node), "");
      folder_.write("annotations/" + std::string(node), "");
    }
  }
  Finished run(const std::string& line) const {
    return shell(sourcePath("deploy/kubernetes/" + line),
                 {{"KUBECTL", kubectl_},
                  {"HELM", folder_ / "bin/helm"},
                  {"CLUSTER", folder_.path()},
                  {"POLL", "0"},
                  {"PATH", folder_ / "bin" + ":" + std::getenv("PATH")}});
  }
  std::string log() const { return readText(folder_ / "log"); }
  std::string applied() const { return readText(folder_ / "applied"); }
  void forget() const { folder_.write("log", ""); }
  std::string labels(const std::string& node) const {
    return readText(folder_ / ("labels/" + node));
  }
  std::string annotations(const std::string& node) const {
    return readText(folder_ / ("annotations/" + node));
  }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
  std::string kubectl_;
};

TEST(Install, AppliesLabelsAndSaysWhatIsLeft) {
  const Cluster cluster;
  const Finished result = cluster.run("install.sh --preloaded --no-register --node n1 --mixed n2");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(cluster.labels("n1"), "qgpu-device-enable=enable\n");
  EXPECT_EQ(cluster.labels("n2"), "qgpu-device-enable=enable\nmixed-qgpu-enable=enable\n");
  EXPECT_TRUE(has(cluster.log(), "apply -f -\n"));
  EXPECT_TRUE(has(cluster.log(), "deploy/kubernetes/webhook.yaml"));
  EXPECT_TRUE(has(cluster.log(), "deploy/kubernetes/mutating-webhook.yaml"));
  EXPECT_TRUE(has(result.output, "examples/ordinary.yaml")) << result.output;
}

// A plain name would be pulled from a public registry, and end in ImagePullBackOff or worse.
TEST(Install, WantsToKnowWhereTheImagesAre) {
  const Cluster cluster;
  const Finished unsaid = cluster.run("install.sh --no-register");
  EXPECT_EQ(unsaid.status, 1);
  EXPECT_TRUE(has(unsaid.output, "--registry PREFIX") && has(unsaid.output, "--preloaded"))
      << unsaid.output;
  for (const char* wrong : {"--registry 'a b'", "--registry x/", "--registry x --preloaded"}) {
    EXPECT_EQ(cluster.run(std::string("install.sh --no-register ") + wrong).status, 1) << wrong;
  }
  EXPECT_EQ(cluster.log(), "");
}

TEST(Install, NamesTheImagesOfARegistry) {
  const Cluster cluster;
  const std::string line = "install.sh --no-register --registry registry.example.org:5000/team";
  ASSERT_EQ(cluster.run(line).status, 0);
  EXPECT_TRUE(has(cluster.applied(), "image: registry.example.org:5000/team/qgpu/manager:0.1.0\n"));
  EXPECT_TRUE(has(cluster.applied(), "image: registry.example.org:5000/team/qgpu/scheduler:0.1.0"));
  EXPECT_FALSE(has(cluster.applied(), "image: qgpu/")) << cluster.applied();
  EXPECT_TRUE(has(cluster.applied(), "imagePullPolicy: IfNotPresent"));
  const Finished dry = cluster.run(line + " --dry-run");
  EXPECT_TRUE(has(dry.output, "image: registry.example.org:5000/team/qgpu/manager")) << dry.output;
}

TEST(Install, PullsNothingWhereTheImagesAreOnTheNodes) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --no-register --preloaded").status, 0);
  EXPECT_TRUE(has(cluster.applied(), "image: qgpu/manager:0.1.0\n"));
  EXPECT_TRUE(has(cluster.applied(), "imagePullPolicy: Never"));
  EXPECT_FALSE(has(cluster.applied(), "IfNotPresent")) << cluster.applied();
}

TEST(Install, MakesTheCertificatesOfTheExtenderOnce) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register").status, 0);
  const std::string files = cluster.folder() / "secret/";
  const std::string verify = "openssl verify -CAfile " + files + "ca.crt -purpose ";
  EXPECT_EQ(shell(verify + "sslserver -verify_hostname qgpu-scheduler.kube-system.svc " + files +
                  "tls.crt")
                .status,
            0);
  EXPECT_EQ(shell(verify + "sslclient " + files + "client.crt").status, 0);
  EXPECT_NE(shell(verify + "sslserver " + files + "client.crt").status, 0) << "it is no server's";
  EXPECT_FALSE(fs::exists(files + "ca.key")) << "nobody signs more of them";
  const std::string before = readText(files + "tls.crt");
  cluster.forget();
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register").status, 0);
  EXPECT_EQ(readText(files + "tls.crt"), before);
  EXPECT_FALSE(has(cluster.log(), "secret")) << cluster.log();
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --new-certificates").status, 0);
  EXPECT_NE(readText(files + "tls.crt"), before);
  EXPECT_TRUE(has(cluster.log(), "delete secret\ncreate secret\n")) << cluster.log();
}

// kube-scheduler of a machine on which no qgpu-scheduler may be.
TEST(Register, AsksTheServiceWithTheCertificatesOfTheInstaller) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register").status, 0);
  cluster.folder().write("service", "10.96.7.8");
  for (const std::string version : {"28.3", "22.0", "18.0"}) {
    const ControlPlane machine(manifestOf(version));
    const auto run = [&] {
      return cluster.run("kube-scheduler/register.sh --remote " + machine.options());
    };
    const Finished result = run();
    ASSERT_EQ(result.status, 0) << result.output;
    const bool old = version == "18.0";
    const Document config =
        parseDocuments(machine.config(old ? "policy.json" : "kube-scheduler.yaml")).at(0);
    const std::string extender = "/extenders/0/";
    EXPECT_EQ(config.text(extender + "urlPrefix"), "https://10.96.7.8:12345/scheduler");
    EXPECT_EQ(config.at(extender + (old ? "enableHttps" : "enableHTTPS")), "true");
    EXPECT_EQ(config.text(extender + "bindVerb"), "bind");
    const std::string tls = extender + "tlsConfig/";
    EXPECT_EQ(config.text(tls + "serverName"), "qgpu-scheduler.kube-system.svc");
    for (const auto& [key, file] : std::map<std::string, std::string>{
             {"caFile", "ca.crt"}, {"certFile", "client.crt"}, {"keyFile", "client.key"}}) {
      EXPECT_EQ(config.text(tls + key), machine.folder() + "/" + file);
      EXPECT_EQ(machine.config(file), readText(cluster.folder() / ("secret/" + file)));
    }
    const Finished again = run();
    EXPECT_TRUE(has(again.output, "registered already")) << again.output;
    ASSERT_EQ(machine.run("--remove").status, 0);
    EXPECT_FALSE(machine.hasFolder()) << "keys are not left behind";
  }
}

TEST(Register, AKeyIsNobodyElsesFromItsFirstByteOn) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register").status, 0);
  cluster.folder().write("service", "10.96.7.8");
  cluster.folder().write("bin/chmod",
                         "#!/bin/sh\nstat -c %a \"$2\" >>\"$CLUSTER/born\"\n"
                         "exec /bin/chmod \"$@\"\n",
                         0755);
  const ControlPlane machine(manifestOf("28.3"));
  const std::string line = "kube-scheduler/register.sh --remote " + machine.options();
  const mode_t before = ::umask(022);
  const Finished result = cluster.run(line);
  ::umask(before);
  ASSERT_EQ(result.status, 0) << result.output;
  std::istringstream born(readText(cluster.folder() / "born"));
  std::size_t files = 0;
  for (std::string mode; born >> mode; ++files) EXPECT_EQ(mode, "600");
  EXPECT_GE(files, 3u);
}

TEST(Register, SaysWhatIsMissingForAnotherMachine) {
  const Cluster cluster;
  const ControlPlane machine(manifestOf("28.3"));
  const Finished result = cluster.run("kube-scheduler/register.sh --remote " + machine.options());
  EXPECT_EQ(result.status, 3) << result.output;
  EXPECT_TRUE(has(result.output, "run install.sh first")) << result.output;
  EXPECT_FALSE(machine.hasFolder());
}

TEST(Install, LabelsNothingTheSecondTime) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --mixed n1").status, 0);
  const std::string before = cluster.labels("n1");
  cluster.forget();
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --mixed n1").status, 0);
  EXPECT_EQ(cluster.labels("n1"), before);
  EXPECT_FALSE(has(cluster.log(), "label")) << cluster.log();
}

TEST(Install, ChangesNothingInADryRun) {
  const Cluster cluster;
  const Finished result = cluster.run("install.sh --preloaded --no-register --node n1 --dry-run");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(has(result.output, "label --overwrite node n1 qgpu-device-enable=enable"));
  EXPECT_EQ(cluster.log(), "");
}

TEST(Install, RefusesBeforeItChangesAnything) {
  const Cluster cluster;
  cluster.folder().write("regular/n2", "8");
  const Finished regular = cluster.run("install.sh --preloaded --no-register --node n1 --node n2");
  EXPECT_EQ(regular.status, 1);
  EXPECT_TRUE(has(regular.output, "n2 offers 8 nvidia.com/gpu")) << regular.output;
  const Finished stranger = cluster.run("install.sh --preloaded --no-register --node n3");
  EXPECT_EQ(stranger.status, 1);
  EXPECT_TRUE(has(stranger.output, "no node n3")) << stranger.output;
  EXPECT_EQ(cluster.run("install.sh --whatever").status, 2);
  EXPECT_EQ(cluster.log(), "");

  const Cluster before16("15");
  ASSERT_EQ(before16.run("install.sh --preloaded --no-register").status, 0);
  EXPECT_TRUE(has(before16.log(), "deploy/kubernetes/webhook-v1beta1.yaml")) << before16.log();
  EXPECT_FALSE(has(before16.log(), "mutating")) << before16.log();
  const Cluster without;
  ASSERT_EQ(without.run("install.sh --preloaded --no-register --no-webhook").status, 0);
  EXPECT_FALSE(has(without.log(), "webhook")) << without.log();

  const Cluster old("13");
  const Finished refused = old.run("install.sh --preloaded --no-register");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(has(refused.output, "1.13 is too old")) << refused.output;
}

TEST(Uninstall, ClosesTheNodesWaitsRemovesAndOpensThemAgain) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --node n1 --mixed n2").status, 0);
  cluster.folder().write("annotations/n2", "closed=true\n");  // by a person
  cluster.folder().write("pods", "default/train\n");
  cluster.folder().write("pods.next", "");
  cluster.forget();
  const Finished result = cluster.run("uninstall.sh --no-register --timeout 1");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(has(result.output, "waiting for these pods to end: default/train")) << result.output;
  EXPECT_EQ(cluster.labels("n1") + cluster.labels("n2"), "");
  EXPECT_EQ(cluster.annotations("n1"), "");
  EXPECT_EQ(cluster.annotations("n2"), "closed=true\n") << "it was a person who closed it";
  const std::string log = cluster.log();
  EXPECT_LT(log.find("cordon n1"), log.find("delete")) << log;
  for (const char* one : {"validatingwebhookconfiguration", "mutatingwebhookconfiguration"}) {
    EXPECT_LT(log.find(one), log.find("delete --ignore-not-found -k")) << one;
  }
  EXPECT_LT(log.find("delete"), log.find("uncordon n1")) << log;
}

// What is pinned in a node's kernel would stay there. A manager whose pod does not run is no reason
// to stay installed.
TEST(Uninstall, UnloadsTheGuardOfEachNodeBeforeItsManagerGoes) {
  const Cluster cluster;
  cluster.folder().write("managers", "qgpu-manager-a n1\nqgpu-manager-b n2\n");
  cluster.folder().write("dead", "qgpu-manager-a");
  const Finished dry = cluster.run("uninstall.sh --no-register --dry-run");
  EXPECT_TRUE(has(dry.output, "exec qgpu-manager-b -c qgpu-manager")) << dry.output;
  EXPECT_EQ(cluster.log(), "");
  const Finished result = cluster.run("uninstall.sh --no-register");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(has(result.output, "a guard on n1, if there is one, stays")) << result.output;
  EXPECT_FALSE(has(result.output, "a guard on n2")) << result.output;
  const std::string log = cluster.log();
  const std::size_t unloaded = log.find(
      "exec qgpu-manager-b -c qgpu-manager -- env HOST=/proc/1/root "
      "/usr/bin/unload-guard.sh\n");
  EXPECT_LT(unloaded, log.find("delete --ignore-not-found -k")) << log;
}

TEST(Uninstall, RemovesNothingWhilePodsUseCards) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --node n1").status, 0);
  cluster.folder().write("pods", "default/train\n");
  const Finished result = cluster.run("uninstall.sh --no-register --timeout 0");
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(has(result.output, "default/train")) << result.output;
  EXPECT_FALSE(has(cluster.log(), "delete")) << cluster.log();
  // And goes on later, with the node that it closed itself.
  cluster.folder().write("pods", "");
  ASSERT_EQ(cluster.run("uninstall.sh --no-register").status, 0);
  EXPECT_EQ(cluster.annotations("n1"), "");
}

TEST(Installer, GivesCardsByClaimsWhereTheClusterHasPartsOfDevices) {
  const Cluster old("35");
  const Finished refused = old.run("install.sh --preloaded --no-register --node n1 --claims n1");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(has(refused.output, "--claims needs Kubernetes 1.36")) << refused.output;
  EXPECT_EQ(old.labels("n1"), "");

  const Cluster cluster("36");
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --node n1 --claims n1").status, 0);
  EXPECT_TRUE(has(cluster.labels("n1"), "qgpu.io/claims=enable")) << cluster.labels("n1");
  EXPECT_TRUE(has(cluster.log(), "device-classes.yaml")) << cluster.log();
}

TEST(Uninstall, WaitsForPodsThatHaveCardsByClaimsAndTakesTheirSlices) {
  const Cluster cluster("36");
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --node n1 --claims n1").status, 0);
  cluster.folder().write("pods", "");
  cluster.folder().write("claims", "default/claimant\n");
  const Finished result = cluster.run("uninstall.sh --no-register --timeout 0");
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(has(result.output, "default/claimant")) << result.output;
  cluster.folder().write("claims", "");
  ASSERT_EQ(cluster.run("uninstall.sh --no-register").status, 0);
  EXPECT_TRUE(has(cluster.log(), "resourceslices --field-selector spec.driver=qgpu.io"))
      << cluster.log();
  EXPECT_TRUE(has(cluster.log(), "resourceclaimtemplates --all-namespaces -l app=qgpu-scheduler"))
      << cluster.log();
  EXPECT_FALSE(has(cluster.labels("n1"), "claims")) << cluster.labels("n1");
}

// Helm keeps a record of what it installed, and would go on to think that it is there.
TEST(Uninstall, LetsHelmRemoveWhatHelmInstalled) {
  const Cluster cluster;
  cluster.folder().write("pods", "");
  cluster.folder().write("release", "gpus");
  const Finished missing = cluster.run("uninstall.sh --no-register");
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(has(missing.output, "set HELM")) << missing.output;
  EXPECT_EQ(cluster.log(), "") << "nothing was changed";
  cluster.folder().write("bin/helm", "#!/bin/sh\necho \"helm $*\" >>\"$CLUSTER/log\"\n", 0755);
  const Finished dry = cluster.run("uninstall.sh --no-register --dry-run");
  EXPECT_TRUE(has(dry.output, "bin/helm uninstall gpus")) << dry.output;
  EXPECT_FALSE(has(cluster.log(), "helm")) << cluster.log();
  const Finished result = cluster.run("uninstall.sh --no-register");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(has(cluster.log(), "helm uninstall gpus --namespace kube-system\n")) << cluster.log();
}

TEST(Uninstall, ChangesNothingInADryRunNorTheSecondTime) {
  const Cluster cluster;
  ASSERT_EQ(cluster.run("install.sh --preloaded --no-register --node n1").status, 0);
  cluster.folder().write("pods", "default/train\n");
  cluster.forget();
  const Finished dry = cluster.run("uninstall.sh --no-register --dry-run");
  EXPECT_EQ(dry.status, 0) << dry.output;
  EXPECT_TRUE(has(dry.output, "would wait for: default/train")) << dry.output;
  EXPECT_EQ(cluster.log(), "");
  EXPECT_TRUE(has(cluster.labels("n1"), "qgpu-device-enable"));

  cluster.folder().write("pods", "");
  ASSERT_EQ(cluster.run("uninstall.sh --no-register").status, 0);
  cluster.forget();
  ASSERT_EQ(cluster.run("uninstall.sh --no-register").status, 0);
  EXPECT_FALSE(has(cluster.log(), "node")) << cluster.log();
}

// --- the guard in the kernel ---

// Managers' folders of pins and another's are below a root of the test's, on what `mount` makes.
// Says how the script ended and what is left there.
Finished unloadGuard(const std::string& mount) {
  const TempFolder root;
  const std::string folder = root / "sys/fs/bpf";
  fs::create_directories(folder);
  return shell("unshare -m sh -ec '" + mount + " " + folder + "; cd " + folder +
               "; mkdir -p qgpu/run_qgpu qgpu/srv_other others; ln -s link qgpu/run_qgpu/pin;"
               " code=0; HOST=" +
               root.path() + " " + sourcePath("deploy/image/unload-guard.sh") +
               " || code=$?; echo $code: *'");
}

TEST(UnloadGuard, TakesTheFoldersOfAllManagersAndNothingBeside) {
  const std::string mount = "mount -t bpf bpf";
  const Finished result = unloadGuard(mount);
  if (has(result.output, "denied") || has(result.output, "not permitted")) {
    GTEST_SKIP() << result.output;
  }
  EXPECT_TRUE(has(result.output, "0: ") && has(result.output, "others")) << result.output;
  EXPECT_FALSE(has(result.output, "qgpu")) << result.output;
}

TEST(UnloadGuard, LeavesAFolderThatIsOnNoBpffsAlone) {
  const Finished result = unloadGuard("true");
  if (has(result.output, "unshare failed")) GTEST_SKIP() << result.output;
  EXPECT_TRUE(has(result.output, "sys/fs/bpf/qgpu is on no bpffs")) << result.output;
  EXPECT_TRUE(has(result.output, "1: others qgpu\n")) << result.output;
}

TEST(UnloadGuard, IsDoneWhereThereIsNone) {
  const TempFolder root;
  EXPECT_EQ(shell(sourcePath("deploy/image/unload-guard.sh"), {{"HOST", root.path()}}).status, 0);
}

// --- the init container ---

class Node {
 public:
  Node() {
    for (const char* path : {"etc", "var/lib/kubelet/device-plugins", "dev"}) {
      fs::create_directories(root_ / path);
    }
  }
  Finished install(const std::string& release = "5.10.0-35-amd64") const {
    return shell(sourcePath("deploy/image/install.sh"),
                 {{"HOST", root_.path()},
                  {"TOLD", root_ / "told"},
                  {"RELEASE", release},
                  {"PATH", tools_.path() + ":" + std::getenv("PATH")}});
  }
  // What was run with the node's root as its own, and by `status`, how it ended.
  void letChrootEndWith(int status) const {
    tools_.write("log", "");
    tools_.write(
        "chroot",
        "#!/bin/sh\necho \"$@\" >>" + tools_ / "log" + "\nexit " + std::to_string(status) + "\n",
        0755);
  }
  std::string ranThere() const { return readText(tools_ / "log"); }
  std::string told() const { return readText(root_ / "told"); }
  std::string modeOf(const std::string& path) const {
    return shell("stat -c %a " + root_ / path).output;
  }
  const TempFolder& root() const { return root_; }

 private:
  TempFolder root_;
  TempFolder tools_;
};

TEST(Installer, MakesFoldersOnce) {
  const Node node;
  const Finished first = node.install();
  ASSERT_EQ(first.status, 0) << first.output;
  EXPECT_EQ(node.modeOf("var/lib/qgpu"), "700\n");
  EXPECT_EQ(node.modeOf("run/qgpu"), "755\n");
  EXPECT_TRUE(has(first.output, "made /var/lib/qgpu"));
  const Finished second = node.install();
  EXPECT_EQ(second.status, 0);
  EXPECT_FALSE(has(second.output, "made") || has(second.output, "now")) << second.output;
}

// Hosts whose root and /usr are read-only have no other place to write to.
TEST(Installer, WritesNowhereButIntoItsOwnFolders) {
  const Node node;
  node.root().write("usr/lib64/libcuda.so.1", "cuda");
  node.root().write("usr/bin/nvidia-smi", "tool");
  node.root().write("dev/nvidia0", "");
  fs::create_directories(node.root() / "run");
  const auto look = [&](const std::string& what) {
    return shell("cd " + node.root().path() + " && " + what).output;
  };
  const std::string files = "find dev etc usr var/lib/kubelet -printf '%p %m %T@ %C@\\n' | sort";
  const std::string folders = "ls -d * */*", had = look(folders);
  const std::string before = look(files);
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(look(files), before);
  std::string expected = had;
  EXPECT_EQ(look(folders), expected.insert(expected.find("run\n") + 4, "run/qgpu\n"));
  EXPECT_EQ(look("ls var/lib var/lib/qgpu"), "var/lib:\nkubelet\nqgpu\n\nvar/lib/qgpu:\nkubelet\n");
}

// --- the scheduler's init container ---

class SchedulerNode {
 public:
  SchedulerNode() {
    for (const char* path : {"var/lib/qgpu", "run/qgpu"}) fs::create_directories(root_ / path);
  }
  Finished prepare() const {
    const std::string me = shell("echo $(id -u):$(id -g)").output;
    const std::string owner = me == "0:0\n" ? "65532:65532" : me.substr(0, me.size() - 1);
    return shell(sourcePath("deploy/image/scheduler-folders.sh"),
                 {{"HOST", root_.path()}, {"OWNER", owner}});
  }
  std::string ownerOf(const std::string& path) const {
    return shell("stat -c %u " + root_ / path).output;
  }
  const TempFolder& root() const { return root_; }

 private:
  TempFolder root_;
};

TEST(SchedulerFolders, AreTheSchedulersAndKeepWhatRootLeft) {
  const SchedulerNode node;
  node.root().write("var/lib/qgpu/scheduler.db", "old", 0600);
  node.root().write("var/lib/qgpu/scheduler.db-wal", "log", 0600);
  node.root().write("var/lib/qgpu/meta.db", "the manager's", 0600);
  for (int times = 0; times < 2; ++times) {
    const Finished result = node.prepare();
    ASSERT_EQ(result.status, 0) << result.output;
    EXPECT_EQ(has(result.output, "took over"), times == 0) << result.output;
    EXPECT_EQ(readText(node.root() / "var/lib/qgpu/scheduler/scheduler.db"), "old");
    EXPECT_EQ(readText(node.root() / "var/lib/qgpu/scheduler/scheduler.db-wal"), "log");
    EXPECT_EQ(readText(node.root() / "var/lib/qgpu/meta.db"), "the manager's");
  }
  const std::string user = node.ownerOf("var/lib/qgpu/scheduler");
  EXPECT_EQ(node.ownerOf("var/lib/qgpu/scheduler/scheduler.db"), user);
  EXPECT_EQ(node.ownerOf("run/qgpu/scheduler"), user);
  EXPECT_EQ(fs::read_symlink(node.root() / "run/qgpu/scheduler.sock"), "scheduler/scheduler.sock");
  if (shell("id -u").output != "0\n") return;
  EXPECT_EQ(user, "65532\n");
  EXPECT_EQ(node.ownerOf("var/lib/qgpu"), "0\n") << "the manager's stays root's";
  EXPECT_EQ(node.ownerOf("run/qgpu"), "0\n");
}

TEST(SchedulerFolders, FollowNoLink) {
  const SchedulerNode node;
  fs::create_directory_symlink("/etc", node.root() / "var/lib/qgpu/scheduler");
  const Finished result = node.prepare();
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.output, "/var/lib/qgpu/scheduler is no folder")) << result.output;
}

// --- the manager's ---

TEST(Installer, ClosesWhatOthersCouldWriteTo) {
  const Node node;
  fs::create_directories(node.root() / "run/qgpu");
  fs::permissions(node.root() / "run/qgpu", fs::perms::all);
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(node.modeOf("run/qgpu"), "755\n");
}

TEST(Installer, SaysInOneLineWhyANodeCantServe) {
  const Node node;
  for (const char* release : {"4.19.0-18-amd64", "5.2.21", "3.10.0-1160.el7"}) {
    EXPECT_EQ(node.install(release).status, 1) << release;
    EXPECT_TRUE(has(node.told(), std::string("kernel ") + release + " is too old")) << node.told();
  }
  for (const char* release : {"5.3.0", "6.1.0-40-amd64", "10.0"}) {
    EXPECT_EQ(node.install(release).status, 0) << release;
  }
  EXPECT_TRUE(has(node.install("rolling").output, "can't be read"));

  const Node linked;
  fs::create_directories(linked.root() / "run");
  fs::create_directory_symlink("/tmp", linked.root() / "run/qgpu");
  EXPECT_EQ(linked.install().status, 1);
  EXPECT_TRUE(has(linked.told(), "/run/qgpu is a link")) << linked.told();

  const Node elsewhere;
  fs::remove_all(elsewhere.root() / "var/lib/kubelet");
  EXPECT_EQ(elsewhere.install().status, 1);
  EXPECT_TRUE(has(elsewhere.told(), "--root-dir")) << elsewhere.told();

  const TempFolder empty;
  const Finished nothing =
      shell(sourcePath("deploy/image/install.sh"), {{"HOST", empty.path()}, {"TOLD", "/dev/null"}});
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(has(nothing.output, "mount the host path /")) << nothing.output;
}

TEST(Installer, WarnsOfASecondDevicePluginAndOfNoCard) {
  const Node node;
  EXPECT_TRUE(has(node.install().output, "no /dev/nvidia*"));
  node.root().write("dev/nvidia0", "");
  node.root().write("var/lib/kubelet/device-plugins/nvidia-gpu.sock", "");
  const Finished result = node.install();
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(has(result.output, "nvidia-gpu.sock")) << result.output;
  EXPECT_FALSE(has(result.output, "no /dev/nvidia*")) << result.output;
}

TEST(Installer, FindsTheDriverOfAHostWithoutGlibcOfItsOwn) {
  const Node node;
  node.root().write("usr/local/glibc/usr/lib/libcuda.so.580.105.08", "cuda");
  fs::create_symlink("libcuda.so.580.105.08", node.root() / "usr/local/glibc/usr/lib/libcuda.so.1");
  node.root().write("usr/local/bin/nvidia-smi", "tool");
  ASSERT_EQ(node.install().status, 0);
  const std::string copies = "var/lib/qgpu/kubelet/driver/";
  EXPECT_EQ(readText(node.root() / (copies + "libcuda.so.1")), "cuda");
  EXPECT_EQ(readText(node.root() / (copies + "nvidia-smi")), "tool");
}

TEST(Installer, CopiesTheNodesDriverAndFollowsItsUpgrade) {
  const Node node;
  const std::string copies = "var/lib/qgpu/kubelet/driver/";
  node.root().write("usr/lib/x86_64-linux-gnu/libcuda.so.535.54", "cuda 535");
  node.root().write("usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.535.54", "compiler");
  node.root().write("opt/driver/libnvidia-ml.so.1", "nvml");
  fs::create_symlink("libcuda.so.535.54", node.root() / "usr/lib/x86_64-linux-gnu/libcuda.so.1");
  fs::create_directories(node.root() / "usr/lib64");
  fs::create_symlink("/opt/driver/libnvidia-ml.so.1", node.root() / "usr/lib64/libnvidia-ml.so.1");
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(readText(node.root() / (copies + "libcuda.so.1")), "cuda 535");
  EXPECT_EQ(readText(node.root() / (copies + "libnvidia-ml.so.1")), "nvml");
  EXPECT_TRUE(fs::exists(node.root() / (copies + "libnvidia-gpucomp.so.535.54")));
  EXPECT_FALSE(has(node.install().output, "copied")) << "the second time";

  // A running program has the old file: it must stay as it is.
  fs::create_hard_link(node.root() / (copies + "libcuda.so.1"), node.root() / "mapped");
  node.root().write("usr/lib/x86_64-linux-gnu/libcuda.so.535.54", "cuda 550");
  fs::remove(node.root() / "usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.535.54");
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(readText(node.root() / (copies + "libcuda.so.1")), "cuda 550");
  EXPECT_EQ(readText(node.root() / "mapped"), "cuda 535");
  EXPECT_FALSE(fs::exists(node.root() / (copies + "libnvidia-gpucomp.so.535.54")));
}

// ffmpeg, DALI and TorchCodec load them by these names.
TEST(Installer, CopiesWhatProgramsDecodeAndEncodeVideoWith) {
  const Node node;
  const std::string home = "usr/lib/x86_64-linux-gnu/", copies = "var/lib/qgpu/kubelet/driver/";
  node.root().write(home + "libcuda.so.1", "cuda");
  const std::vector<std::string> video = {"libnvcuvid.so", "libnvidia-encode.so",
                                          "libnvidia-opticalflow.so"};
  for (const std::string& name : video) {
    node.root().write(home + name + ".580.105.08", name);
    fs::create_symlink(name + ".580.105.08", node.root() / (home + name + ".1"));
  }
  ASSERT_EQ(node.install().status, 0);
  for (const std::string& name : video) {
    EXPECT_EQ(readText(node.root() / (copies + name + ".1")), name);
  }
}

// A runtime of NVIDIA's brings nothing to the manager, and only those pods have it that ask for it
// or whose node has it as the default.
TEST(Installer, CopiesTheDriverWhateverContainerRuntimesAreKnown) {
  const Node node;
  node.root().write("usr/lib64/libcuda.so.1", "cuda");
  node.root().write("usr/bin/nvidia-smi", "tool");
  node.root().write("etc/containerd/config.toml",
                    "BinaryName = \"/usr/bin/nvidia-container-runtime\"\n");
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(readText(node.root() / "var/lib/qgpu/kubelet/driver/libcuda.so.1"), "cuda");
  EXPECT_EQ(readText(node.root() / "var/lib/qgpu/kubelet/driver/nvidia-smi"), "tool");
}

TEST(Installer, CopiesTheDriverOfADriverContainerAndNeverPartsOfTwo) {
  const Node node;
  const std::string copies = "var/lib/qgpu/kubelet/driver/";
  const std::string container = "run/nvidia/driver/usr/lib/x86_64-linux-gnu/";
  node.root().write("usr/bin/nvidia-smi", "left over");
  node.root().write(container + "libcuda.so.570.1", "cuda 570");
  fs::create_symlink("/usr/lib/x86_64-linux-gnu/libcuda.so.570.1",
                     node.root() / (container + "libcuda.so.1"));
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(readText(node.root() / (copies + "libcuda.so.1")), "cuda 570");
  EXPECT_FALSE(fs::exists(node.root() / (copies + "nvidia-smi")));
  node.root().write("run/nvidia/driver/usr/bin/nvidia-smi", "tool 570");
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(readText(node.root() / (copies + "nvidia-smi")), "tool 570");
}

TEST(Installer, MakesTheDeviceFilesOfEachCard) {
  const Node node;
  node.letChrootEndWith(0);
  ASSERT_EQ(node.install().status, 0);
  EXPECT_EQ(node.ranThere(), "") << "a node without nvidia-modprobe";
  node.root().write("usr/bin/nvidia-modprobe", "", 0755);
  for (const char* minor : {"0", "3"}) {
    node.root().write(std::string("proc/driver/nvidia/gpus/0000:3") + minor + ":00.0/information",
                      std::string("IRQ:   \t\t 52\nDevice Minor: \t ") + minor + "\n");
  }
  ASSERT_EQ(node.install().status, 0);
  const std::string run = node.root().path() + "/ /usr/bin/nvidia-modprobe ";
  EXPECT_EQ(node.ranThere(),
            run + "-c 255\n" + run + "-c 0\n" + run + "-c 3\n" + run + "-u -c 0\n");

  node.letChrootEndWith(1);
  const Finished failed = node.install();
  EXPECT_EQ(failed.status, 0) << failed.output;
  EXPECT_TRUE(has(failed.output, "nvidia-modprobe could not")) << failed.output;
}

}  // namespace
}  // namespace qgpu::scripts_test
