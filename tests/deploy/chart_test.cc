// deploy/kubernetes as a chart: what helm makes of it is what install.sh applies, field for field;
// values go where they belong, and wrong ones are refused. What needs helm is skipped where neither
// PATH nor the build folder has it (`./dev test` fetches it); the rest always runs.

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/deploy/documents.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::chart_test {
namespace {

using testing::Document;
using testing::Finished;
using testing::parseDocuments;
using testing::readDocuments;
using testing::readText;
using testing::shell;
using testing::sourcePath;
using testing::TempFolder;
using Json = nlohmann::json;
using Pointer = Json::json_pointer;

// By "Kind name", so that the order in which they stand does not matter.
using Objects = std::map<std::string, Json>;

constexpr const char* kExtenderSecret = "Secret qgpu-scheduler-extender";
const std::string kChart = "deploy/kubernetes";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Objects objectsOf(const std::vector<Document>& documents) {
  Objects objects;
  for (const Document& one : documents) {
    if (one.kind().empty()) continue;
    const std::string key = one.kind() + " " + one.name();
    EXPECT_TRUE(objects.emplace(key, Json::parse(one.json())).second) << key << " is there twice";
  }
  return objects;
}

Json at(const Objects& objects, const std::string& key, const std::string& pointer) {
  const auto found = objects.find(key);
  EXPECT_NE(found, objects.end()) << "there is no " << key;
  if (found == objects.end()) return {};
  return found->second.value(Pointer(pointer), Json());
}

Json yamlFile(const std::string& relative) {
  return Json::parse(readDocuments(sourcePath(relative)).at(0).json());
}

// --- without helm ---

TEST(ChartFiles, AreOfTheVersionOfTheRelease) {
  const Json chart = yamlFile(kChart + "/Chart.yaml");
  const std::string version = chart["version"];
  EXPECT_EQ(chart["appVersion"], version);
  EXPECT_TRUE(has(readText(sourcePath("CHANGELOG.md")), "\n## " + version)) << version;
  for (const Json& image : yamlFile(kChart + "/kustomization.yaml")["images"]) {
    EXPECT_EQ(image["newTag"], version) << image;
  }
}

// Each value has a place in the schema that says what it is, and each place a value; nothing else
// is taken. `global` is helm's own.
void compareWithSchema(const Json& values, Json schema, const Json& root, const std::string& path) {
  if (schema.contains("$ref")) {
    schema = root.at(Pointer(schema["$ref"].get<std::string>().substr(1)));
  }
  EXPECT_TRUE(schema.contains("description")) << path;
  if (!schema.contains("properties") || values.empty()) return;
  EXPECT_EQ(schema["additionalProperties"], false) << path;
  for (const auto& [key, value] : values.items()) {
    if (!schema["properties"].contains(key)) {
      ADD_FAILURE() << path << "." << key << " is not in values.schema.json";
      continue;
    }
    compareWithSchema(value, schema["properties"][key], root, path + "." + key);
  }
  for (const auto& [key, unused] : schema["properties"].items()) {
    EXPECT_TRUE(values.contains(key) || key == "global") << path << "." << key << " has no value";
  }
}

TEST(ChartFiles, DescribeEachValueInTheSchemaAndTakeNoOther) {
  const Json schema = Json::parse(readText(sourcePath(kChart + "/values.schema.json")));
  compareWithSchema(yamlFile(kChart + "/values.yaml"), schema, schema, "values");
}

// --- with helm ---

std::string helm() {
  if (shell("helm version").status == 0) return "helm";
  const std::string fetched = std::string(QGPU_BUILD) + "/helm/helm";
  return std::filesystem::exists(fetched) ? fetched : "";
}

// Has folders of its own: what a user keeps there is none of a test's.
Finished runHelm(const std::string& line) {
  const TempFolder home;
  return shell(helm() + " " + line, {{"HELM_CACHE_HOME", home / "cache"},
                                     {"HELM_CONFIG_HOME", home / "config"},
                                     {"HELM_DATA_HOME", home / "data"}});
}

class Chart : public ::testing::Test {
 protected:
  void SetUp() override {
    if (helm().empty()) GTEST_SKIP() << "no helm is here";
  }

  static Finished render(const std::string& options,
                         const std::string& chart = sourcePath(kChart)) {
    const TempFolder folder;
    const std::string file = folder / "rendered.yaml";
    Finished made = runHelm("template qgpu " + chart + " -n kube-system " + options + " >" + file);
    if (made.status == 0) made.output = readText(file);
    return made;
  }
  static Objects rendered(const std::string& options,
                          const std::string& chart = sourcePath(kChart)) {
    const Finished made = render(options, chart);
    EXPECT_EQ(made.status, 0) << made.output;
    return objectsOf(parseDocuments(made.output));
  }
};

// What install.sh would do to a cluster of that version, with kubectl's own kustomize.
Objects installed(const std::string& minor, const std::string& images) {
  const TempFolder folder;
  const std::string kubectl = folder.write("kubectl", R"SH(#!/bin/sh
case "$*" in
  kustomize*) exec kubectl "$@" ;;
  'get --raw /version') echo "{\"minor\":\"$MINOR\"}" ;;
  'apply -f -') { echo ---; cat; } >>"$APPLIED" ;;
  'apply -f '*) { echo ---; cat "$3"; } >>"$APPLIED" ;;
  *' create secret generic '*)
    { echo ---; echo 'kind: Secret'; echo "metadata: {name: $6}"; echo data:; } >>"$APPLIED"
    for word in "$@"; do
      case "$word" in --from-file=*) echo "  ${word##*/}: made" >>"$APPLIED" ;; esac
    done ;;
esac
)SH",
                                           0755);
  const Finished done =
      shell(sourcePath(kChart + "/install.sh") + " --no-register " + images,
            {{"KUBECTL", kubectl}, {"MINOR", minor}, {"APPLIED", folder / "applied"}});
  EXPECT_EQ(done.status, 0) << done.output;
  return objectsOf(parseDocuments(readText(folder / "applied")));
}

void expectSame(Objects chart, Objects script) {
  std::set<std::string> files[2];
  int side = 0;
  for (Objects* objects : {&chart, &script}) {
    for (const auto& [key, unused] : (*objects)[kExtenderSecret]["data"].items()) {
      files[side].insert(key);
    }
    objects->erase(kExtenderSecret);
    ++side;
  }
  EXPECT_EQ(files[0], files[1]) << "of the certificates";
  EXPECT_EQ(files[0].size(), 5u);
  for (const auto& [key, object] : script) {
    if (!chart.contains(key)) {
      ADD_FAILURE() << "the chart has no " << key;
      continue;
    }
    EXPECT_EQ(Json::diff(object, chart[key]), Json::array()) << key;
    chart.erase(key);
  }
  for (const auto& [key, unused] : chart) ADD_FAILURE() << "the chart alone has " << key;
}

TEST_F(Chart, HasFieldForFieldWhatInstallShAppliesToEachVersion) {
  for (const std::string minor : {"15", "28", "36"}) {
    SCOPED_TRACE("1." + minor);
    const std::string version = " --kube-version v1." + minor + ".2";
    expectSame(rendered("--set images.pullPolicy=Never" + version),
               installed(minor, "--preloaded"));
    expectSame(rendered("--set images.registry=registry.example.org/team" + version),
               installed(minor, "--registry registry.example.org/team"));
  }
}

// A digest of kustomization.yaml holds for the chart too, unless the values name another image.
TEST_F(Chart, TakesTheDigestThatKustomizationHas) {
  const TempFolder folder;
  const std::string copy = folder / "chart";
  ASSERT_EQ(shell("cp -RL " + sourcePath(kChart) + " " + copy).status, 0);
  const std::string digest = "sha256:" + std::string(64, 'a');
  ASSERT_EQ(
      shell("sed -i 's/newTag: .*/digest: " + digest + "/' " + copy + "/kustomization.yaml").status,
      0);
  const std::string image = "/spec/template/spec/containers/0/image";
  const std::string options = "--set images.pullPolicy=Never,images.scheduler.tag=v2";
  const Objects all = rendered(options, copy);
  EXPECT_EQ(at(all, "DaemonSet qgpu-manager", image), "qgpu/manager@" + digest);
  EXPECT_EQ(at(all, "Deployment qgpu-scheduler", image), "qgpu/scheduler:v2");
}

TEST_F(Chart, WantsToKnowWhereTheImagesAreAndItsNamespace) {
  const Finished unsaid = render("");
  EXPECT_NE(unsaid.status, 0);
  EXPECT_TRUE(has(unsaid.output, "images.registry=PREFIX")) << unsaid.output;
  const Finished elsewhere = render("--set images.pullPolicy=Never --namespace gpu");
  EXPECT_NE(elsewhere.status, 0);
  EXPECT_TRUE(has(elsewhere.output, "qgpu lives in kube-system")) << elsewhere.output;
}

TEST_F(Chart, RefusesValuesThatItDoesNotKnow) {
  for (const std::string wrong :
       {"manager.polcy=fixed-share", "manager.policy=fair", "memoryUnit=GB", "images.registry=x/",
        "images.manager.digest=1234", "scheduler.replicas=0", "scheduler.args={spread}",
        "manager.limits=1", "deviceClasses=yes", "webhook.enabled=maybe",
        "kubeScheduler.schedulerName=default-scheduler", "monitoring.alert=true",
        "monitoring.runbooks=docs"}) {
    const Finished refused = render("--set images.pullPolicy=Never --set '" + wrong + "'");
    EXPECT_NE(refused.status, 0) << wrong;
    const std::string key = wrong.substr(0, wrong.find('='));
    const std::string last = key.substr(key.rfind('.') + 1);
    EXPECT_TRUE(has(refused.output, last)) << wrong << ": " << refused.output;
  }
}

constexpr const char* kAllValues = R"(
images:
  registry: registry.example.org/team
  pullSecrets: [pull-me]
  manager: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
  scheduler: {repository: other.example.org/s, tag: v9}
resourcePrefix: gpu.example.org
memoryUnit: MiB
manager:
  policy: fixed-share
  args: [--log-level=debug]
  env: [{name: A, value: b}]
  resources: {limits: {memory: 1Gi}}
  nodeSelector: {pool: gpu}
  tolerations: [{key: gpu, operator: Exists}]
  affinity: {podAffinity: {}}
  priorityClassName: mine
  podAnnotations: {note: x}
  podLabels: {team: ml, app: other}
scheduler:
  replicas: 3
  priority: spread
  args: [--lease=20s]
  tolerations: [{operator: Exists}]
  service: {clusterIP: 10.96.0.77}
  certificates: existing
webhook: {enabled: false}
deviceClasses: never
)";

TEST_F(Chart, PutsValuesOverWhatTheManifestsSay) {
  const TempFolder folder;
  const std::string file = folder.write("values.yaml", kAllValues);
  const Objects plain = rendered("--set images.pullPolicy=Never --kube-version v1.36.2");
  const Objects all = rendered("--kube-version v1.36.2 -f " + file);
  const std::string manager = "DaemonSet qgpu-manager";
  const std::string pod = "/spec/template/spec";
  const std::string main = pod + "/containers/0";
  for (const char* list : {"/initContainers/0/image", "/containers/0/image"}) {
    EXPECT_EQ(at(all, manager, pod + list),
              "registry.example.org/team/qgpu/manager@sha256:"
              "0123456789012345678901234567890123456789012345678901234567890123");
  }
  EXPECT_EQ(at(all, manager, pod + "/imagePullSecrets/0/name"), "pull-me");
  Json command = at(plain, manager, main + "/command");
  for (const char* flag : {"--memory-unit=MiB", "--policy=fixed-share",
                           "--resource-prefix=gpu.example.org", "--log-level=debug"}) {
    command.push_back(flag);
  }
  EXPECT_EQ(at(all, manager, main + "/command"), command);
  const std::size_t variables = at(plain, manager, main + "/env").size();
  EXPECT_EQ(at(all, manager, main + "/env/" + std::to_string(variables) + "/name"), "A");
  EXPECT_EQ(at(all, manager, main + "/resources"),
            Json::parse(R"({"limits":{"memory":"1Gi","cpu":"1"},
                            "requests":{"memory":"300Mi","cpu":"200m"}})"));
  EXPECT_EQ(at(all, manager, pod + "/nodeSelector"),
            Json::parse(R"({"qgpu-device-enable":"enable","pool":"gpu"})"));
  EXPECT_EQ(at(all, manager, pod + "/tolerations").size(), 3u);
  EXPECT_TRUE(at(all, manager, pod + "/affinity").contains("podAffinity"));
  EXPECT_EQ(at(all, manager, pod + "/priorityClassName"), "mine");
  EXPECT_EQ(at(all, manager, "/spec/template/metadata/annotations/note"), "x");
  EXPECT_EQ(at(all, manager, "/spec/template/metadata/labels"),
            Json::parse(R"({"app":"qgpu-manager","team":"ml"})"))
      << "what its selector goes by stays";
  const std::string scheduler = "Deployment qgpu-scheduler";
  EXPECT_EQ(at(all, scheduler, main + "/image"), "other.example.org/s:v9");
  EXPECT_EQ(at(all, scheduler, "/spec/replicas"), 3);
  EXPECT_TRUE(has(at(all, scheduler, main + "/command").dump(), R"("--priority=spread")"));
  EXPECT_EQ(at(all, scheduler, pod + "/affinity"), at(plain, scheduler, pod + "/affinity"));
  EXPECT_EQ(at(all, "Service qgpu-scheduler", "/spec/clusterIP"), "10.96.0.77");
  for (const auto& [key, unused] : all) {
    EXPECT_FALSE(has(key, "WebhookConfiguration") || has(key, "DeviceClass") ||
                 key == kExtenderSecret)
        << key;
  }
}

TEST_F(Chart, AGuardHasTheFolderWhereItIsPinnedAndSeesCgroups) {
  const std::string manager = "DaemonSet qgpu-manager";
  const std::string pod = "/spec/template/spec";
  const std::string options = "--set images.pullPolicy=Never,manager.guard=true";
  const Objects all = rendered(options), plain = rendered("--set images.pullPolicy=Never");
  EXPECT_EQ(at(all, manager, pod + "/containers/0/command").back(), "--guard=auto");
  const Json added = Json::diff(plain.at(manager), all.at(manager));
  std::set<std::string> mounts, folders;
  for (const Json& one : added) {
    EXPECT_EQ(one["op"], "add") << one;
    const Json& value = one["value"];
    if (value.contains("mountPath")) {
      EXPECT_EQ(value["readOnly"], value["mountPath"] != "/sys/fs/bpf");
      mounts.insert(value["name"].get<std::string>() + " " + value["mountPath"].get<std::string>());
    } else if (value.contains("hostPath")) {
      folders.insert(value["name"].get<std::string>() + " " +
                     value["hostPath"]["path"].get<std::string>());
    }
  }
  EXPECT_EQ(mounts, (std::set<std::string>{"bpf /sys/fs/bpf", "cgroup /host/sys/fs/cgroup"}));
  EXPECT_EQ(folders, (std::set<std::string>{"bpf /sys/fs/bpf", "cgroup /sys/fs/cgroup"}));
}

TEST_F(Chart, ManagersThatLabelNodesRunWhereOthersFoundCards) {
  const std::string options = "--set images.pullPolicy=Never,manager.labelNodes=true";
  const Objects all = rendered(options + ",manager.nodeSelector.pool=gpu");
  const std::string manager = "DaemonSet qgpu-manager";
  const std::string pod = "/spec/template/spec";
  EXPECT_EQ(at(all, manager, pod + "/containers/0/command").back(), "--label-node");
  EXPECT_EQ(at(all, manager, pod + "/nodeSelector"), Json::parse(R"({"pool":"gpu"})"));
  const Json terms = at(all, manager,
                        pod +
                            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
                            "/nodeSelectorTerms");
  std::set<std::string> asked;
  for (const Json& term : terms) {
    std::string words;
    for (const Json& one : term["matchExpressions"]) {
      words += one["key"].get<std::string>() + " " + one["operator"].get<std::string>() + " " +
               one.value("values", Json::array()).dump() + "; ";
    }
    asked.insert(words);
  }
  const std::string unlabelled = "qgpu-device-enable DoesNotExist []; ";
  EXPECT_EQ(asked,
            (std::set<std::string>{
                R"(qgpu-device-enable In ["enable"]; )",
                unlabelled + R"(nvidia.com/gpu.present In ["true"]; )",
                unlabelled + R"(feature.node.kubernetes.io/pci-10de.present In ["true"]; )",
                unlabelled + R"(feature.node.kubernetes.io/pci-0300_10de.present In ["true"]; )",
                unlabelled + R"(feature.node.kubernetes.io/pci-0302_10de.present In ["true"]; )"}));
  const Objects own =
      rendered(options +
               ",manager.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
               "nodeSelectorTerms[0].matchExpressions[0].key=mine,manager.affinity.nodeAffinity."
               "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
               "matchExpressions[0].operator=Exists");
  EXPECT_EQ(at(own, manager,
               pod + "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
                     "/nodeSelectorTerms")
                .size(),
            1u);
}

// The other generations have the same extender, as KubeScheduler.* of manifest_test shows.
TEST_F(Chart, HasAKubeSchedulerOfItsOwnThatAsksTheExtenderByCertificates) {
  const std::string options = "--set images.pullPolicy=Never,kubeScheduler.enabled=true";
  for (const auto& [version, generation] :
       {std::pair("v1.19.3", "v1beta1"), std::pair("v1.22.0", "v1beta2"),
        std::pair("v1.24.1", "v1beta3"), std::pair("v1.36.2-eks-ab12", "v1")}) {
    SCOPED_TRACE(version);
    const Objects all = rendered(options + " --kube-version " + version);
    const Json text = at(all, "ConfigMap qgpu-kube-scheduler", "/data/config.yaml");
    Json made = Json::parse(parseDocuments(text.get<std::string>()).at(0).json());
    Json file = yamlFile(kChart + "/kube-scheduler/config-" + generation + ".yaml");
    EXPECT_EQ(made["profiles"], Json::parse(R"([{"schedulerName":"qgpu"}])"));
    EXPECT_EQ(made["leaderElection"]["resourceName"], "qgpu-kube-scheduler");
    Json& extender = made["extenders"][0];
    EXPECT_EQ(extender["urlPrefix"], "https://qgpu-scheduler.kube-system.svc:12345/scheduler");
    EXPECT_EQ(extender["tlsConfig"]["serverName"], "qgpu-scheduler.kube-system.svc");
    EXPECT_EQ(extender["enableHTTPS"], true);
    extender.erase("tlsConfig");
    for (const char* field : {"urlPrefix", "enableHTTPS"}) {
      file["extenders"][0].erase(field);
      extender.erase(field);
    }
    EXPECT_EQ(made["extenders"], file["extenders"]);
    EXPECT_EQ(made["apiVersion"], file["apiVersion"]);
    const std::string image =
        at(all, "Deployment qgpu-kube-scheduler", "/spec/template/spec/containers/0/image");
    const std::string tag = version;
    EXPECT_EQ(image, "registry.k8s.io/kube-scheduler:" + tag.substr(0, tag.find('-')));
  }
  const Finished old = render(options + " --kube-version v1.18.9");
  EXPECT_TRUE(has(old.output, "needs Kubernetes 1.19 or later; this is v1.18.9")) << old.output;
}

TEST_F(Chart, TellsItsKubeSchedulerTheNamesThatAreSet) {
  const Objects all = rendered(
      "--set images.pullPolicy=Never,kubeScheduler.enabled=true,resourcePrefix=gpu.example.org,"
      "scheduler.service.clusterIP=fd00::7,kubeScheduler.schedulerName=mine,"
      "kubeScheduler.image.repository=registry.example.org/ks,kubeScheduler.image.tag=v1.30.1");
  const std::string text = at(all, "ConfigMap qgpu-kube-scheduler", "/data/config.yaml");
  for (const char* part : {"gpu.example.org/qgpu-core-greedy", "gpu.example.org/qgpu-memory",
                           "https://[fd00::7]:12345/scheduler", "schedulerName: mine"}) {
    EXPECT_TRUE(has(text, part)) << part << " is not in " << text;
  }
  EXPECT_FALSE(has(text, "tke.cloud.tencent.com")) << text;
  EXPECT_EQ(at(all, "Deployment qgpu-kube-scheduler", "/spec/template/spec/containers/0/image"),
            "registry.example.org/ks:v1.30.1");
}

TEST_F(Chart, MakesCertificatesByWhichBothSidesKnowEachOther) {
  const Objects all = rendered("--set images.pullPolicy=Never");
  const TempFolder folder;
  const Json made = at(all, kExtenderSecret, "/data");
  for (const auto& [name, value] : made.items()) {
    folder.write(name + ".b64", value.get<std::string>());
    shell("base64 -d " + folder / name + ".b64 >" + folder / name);
  }
  const std::string verify = "openssl verify -CAfile " + folder / "ca.crt -purpose ";
  const std::string host = " -verify_hostname qgpu-scheduler.kube-system.svc ";
  EXPECT_EQ(shell(verify + "sslserver" + host + folder / "tls.crt").status, 0);
  EXPECT_EQ(shell(verify + "sslclient " + folder / "client.crt").status, 0);
  EXPECT_NE(shell(verify + "sslserver" + host + folder / "client.crt").status, 0)
      << "it is no server's";
  for (const std::string name : {"tls", "client"}) {
    const std::string file = folder / name;
    const Finished same = shell("test \"$(openssl x509 -pubkey -noout -in " + file +
                                ".crt)\" = \"$(openssl pkey -pubout -in " + file + ".key)\"");
    EXPECT_EQ(same.status, 0) << name;
  }
}

TEST_F(Chart, BringsMonitorsAndAlertsWhereTheyAreWanted) {
  const Objects all = rendered(
      "--set images.pullPolicy=Never,monitoring.podMonitors=true,monitoring.alerts=true,"
      "monitoring.labels.release=prometheus");
  const std::string label = "/metadata/labels/release";
  for (const Document& one : readDocuments(sourcePath("deploy/prometheus/pod-monitor.yaml"))) {
    const std::string key = one.kind() + " " + one.name();
    EXPECT_EQ(at(all, key, "/spec"), Json::parse(one.at("/spec"))) << key;
    EXPECT_EQ(at(all, key, label), "prometheus") << key;
  }
  EXPECT_EQ(at(all, "PrometheusRule qgpu", "/spec"), yamlFile("deploy/prometheus/alerts.yaml"));
  EXPECT_EQ(at(all, "PrometheusRule qgpu", label), "prometheus");
}

TEST_F(Chart, AlertsLeadToThePageThatIsNamed) {
  const std::string page = "https://docs.example.org/monitoring/";
  const std::string options =
      "--set images.pullPolicy=Never,monitoring.alerts=true,"
      "monitoring.runbooks=";
  const std::string spec = at(rendered(options + page), "PrometheusRule qgpu", "/spec").dump();
  EXPECT_TRUE(has(spec, "\"runbook_url\":\"" + page + "#qgpureleaseslow\"")) << spec;
  EXPECT_FALSE(has(spec, "docs/operate/monitoring.md")) << spec;
}

TEST_F(Chart, PassesItsLint) {
  const Finished lint = runHelm("lint --strict " + sourcePath(kChart));
  EXPECT_EQ(lint.status, 0) << lint.output;
  EXPECT_TRUE(has(lint.output, "0 chart(s) failed")) << lint.output;
}

// --- the archive of a release ---

std::string archive(const TempFolder& folder, const std::string& version) {
  const Finished made =
      shell("SOURCE_DATE_EPOCH=1700000000 " + sourcePath("deploy/packaging/chart.sh") + " " +
            folder.path() + " '" + version + "'");
  EXPECT_EQ(made.status, 0) << made.output;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    return entry.path().string();
  }
  return "";
}

TEST(ChartArchive, IsTheSameForTheSameCommitAndNamedAsHelmWantsIt) {
  const TempFolder one;
  const TempFolder other;
  const std::string version = "0.1.0~20261124030507.0123abcd";
  const std::string file = archive(one, version);
  EXPECT_EQ(file, one / "qgpu-0.1.0-20261124030507.g0123abcd.tgz");
  EXPECT_EQ(readText(file), readText(archive(other, version)));
  const std::string chart = shell("tar -xzOf " + file + " qgpu/Chart.yaml").output;
  EXPECT_TRUE(has(chart, "\nversion: 0.1.0-20261124030507.g0123abcd\n")) << chart;
  EXPECT_EQ(shell("tar -tzf " + file + " qgpu/prometheus/alerts.yaml").status, 0);
}

TEST_F(Chart, IsTheSameFromItsArchive) {
  const TempFolder folder;
  const std::string file = archive(folder, "0.1.0");
  const std::string options =
      "--set images.pullPolicy=Never,scheduler.certificates=existing,kubeScheduler.enabled=true,"
      "monitoring.alerts=true";
  EXPECT_EQ(rendered(options, file), rendered(options));
  const TempFolder theirs;
  const Finished packed = runHelm("package -d " + theirs.path() + " " + sourcePath(kChart));
  ASSERT_EQ(packed.status, 0) << packed.output;
  const auto files = [](const std::string& tgz) {
    return shell("tar -tzf " + tgz + " | grep -v '/$' | LC_ALL=C sort").output;
  };
  EXPECT_EQ(files(theirs / "qgpu-0.1.0.tgz"), files(file)) << "as helm itself packs it";
}

}  // namespace
}  // namespace qgpu::chart_test
