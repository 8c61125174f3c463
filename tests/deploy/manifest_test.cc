// deploy/kubernetes against the table of the contract, and against what it says about itself:
// selectors that match, mounts that have a volume, roles that are bound.

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "services/cards/opencl/probe.h"
#include "services/kubernetes/bridge/role_label.h"
#include "services/kubernetes/claims/claim_document.h"
#include "services/kubernetes/pods/pod_rules.h"
#include "services/kubernetes/webhook/webhook_keeper.h"
#include "tests/deploy/documents.h"

namespace qgpu::manifest_test {
namespace {

using testing::below;
using testing::Document;
using testing::find;
using testing::manifests;
using testing::readDocuments;
using testing::readText;
using testing::sourcePath;

constexpr const char* kPod = "/spec/template/spec";

// --- the table of the contract ---

TEST(Manifests, HaveEveryObjectOfTheContractInItsNamespace) {
  const auto all = manifests();
  const std::pair<const char*, bool> kKinds[] = {// true: it belongs to a namespace
                                                 {"ServiceAccount", true},
                                                 {"ClusterRole", false},
                                                 {"ClusterRoleBinding", false}};
  for (const std::string name : {"qgpu-manager", "qgpu-scheduler"}) {
    for (const auto& [kind, inNamespace] : kKinds) {
      const Document& object = find(all, kind, name);
      EXPECT_EQ(object.text("/metadata/namespace"), inNamespace ? "kube-system" : "")
          << kind << " " << name;
    }
  }
  for (const auto& [kind, name] :
       {std::pair("DaemonSet", "qgpu-manager"), std::pair("Deployment", "qgpu-scheduler"),
        std::pair("Service", "qgpu-scheduler")}) {
    EXPECT_EQ(find(all, kind, name).text("/metadata/namespace"), "kube-system") << kind;
  }
}

TEST(Manifests, NameNothingTwice) {
  std::set<std::string> seen;
  for (const Document& object : manifests()) {
    const std::string key = object.text("/apiVersion") + " " + object.kind() + " " + object.name();
    EXPECT_TRUE(seen.insert(key).second) << key;
  }
  EXPECT_GE(seen.size(), 9u);
}

struct Workload {
  const char* kind;
  const char* name;
  const char* image;
  const char* memory;
  const char* cpuRequest;
};
constexpr Workload kWorkloads[] = {
    {"DaemonSet", "qgpu-manager", "qgpu/manager", "300Mi", "200m"},
    {"Deployment", "qgpu-scheduler", "qgpu/scheduler", "800Mi", "1"},
};

TEST(Manifests, AskForWhatTheContractSays) {
  const auto all = manifests();
  for (const Workload& workload : kWorkloads) {
    const Document& object = find(all, workload.kind, workload.name);
    const std::string container = std::string(kPod) + "/containers/0";
    EXPECT_EQ(object.text(container + "/image"), workload.image);
    EXPECT_EQ(object.text(container + "/resources/limits/memory"), workload.memory);
    EXPECT_EQ(object.text(container + "/resources/requests/memory"), workload.memory);
    EXPECT_EQ(object.text(container + "/resources/limits/cpu"), "1");
    EXPECT_EQ(object.text(container + "/resources/requests/cpu"), workload.cpuRequest);
    EXPECT_EQ(object.at(std::string(kPod) + "/hostNetwork"), "true") << workload.name;
    EXPECT_EQ(object.text(std::string(kPod) + "/serviceAccountName"), workload.name);
    std::set<std::string> tolerated;
    for (const std::string& one : below(object, std::string(kPod) + "/tolerations")) {
      tolerated.insert(object.text(one + "/key") + " " + object.text(one + "/operator") + " " +
                       object.text(one + "/effect"));
    }
    EXPECT_EQ(tolerated,
              (std::set<std::string>{"node-role.kubernetes.io/master Exists NoSchedule",
                                     "node-role.kubernetes.io/control-plane Exists NoSchedule"}));
  }
}

TEST(Manifests, StartTheSchedulerAsItsUsersKnowIt) {
  const auto all = manifests();
  const Document& object = find(all, "Deployment", "qgpu-scheduler");
  const std::string container = std::string(kPod) + "/containers/0";
  EXPECT_EQ(object.text(container + "/command/0"), "qgpu-scheduler");
  EXPECT_EQ(object.text(container + "/command/1"), "--priority=binpack");
  EXPECT_EQ(object.at(container + "/env/0"), R"({"name":"PORT","value":"12345"})");
  EXPECT_EQ(object.at("/spec/replicas"), "1");
  const Document& service = find(all, "Service", "qgpu-scheduler");
  EXPECT_EQ(service.at("/spec/ports/0"),
            R"({"port":12345,"name":"http","protocol":"TCP","targetPort":12349})");
}

// Only what gives it its folders is root's, for a moment, and may do nothing else.
TEST(Manifests, RunTheSchedulerAsNoRoot) {
  const Document object = find(manifests(), "Deployment", "qgpu-scheduler");
  const std::string pod = kPod;
  EXPECT_EQ(object.at(pod + "/securityContext"),
            R"({"runAsNonRoot":true,"runAsUser":65532,"runAsGroup":65532,"fsGroup":65532})");
  const std::string container = pod + "/containers/0";
  for (const char* field : {"runAsUser", "runAsNonRoot", "privileged"}) {
    EXPECT_EQ(object.at(container + "/securityContext/" + field), "") << field;
  }
  EXPECT_EQ(object.at(container + "/securityContext/capabilities"), R"({"drop":["ALL"]})");
  const std::string init = pod + "/initContainers/0";
  EXPECT_EQ(object.at(init + "/command"), R"(["/usr/bin/scheduler-folders.sh"])");
  EXPECT_EQ(object.at(init + "/securityContext/capabilities"),
            R"({"drop":["ALL"],"add":["CHOWN","DAC_OVERRIDE","FOWNER"]})");
  const std::string script = readText(sourcePath("deploy/image/scheduler-folders.sh"));
  EXPECT_NE(script.find("OWNER=${OWNER:-65532:65532}"), std::string::npos);
  // What it writes to is its own; a default would be another user's.
  const std::string command = object.at(container + "/command");
  for (const char* flag : {"--dbfile=/var/lib/qgpu/scheduler.db", "--run-dir=/run/qgpu"}) {
    EXPECT_NE(command.find(flag), std::string::npos) << command;
  }
  std::map<std::string, std::string> paths;
  for (const std::string& one : below(object, pod + "/volumes")) {
    paths[object.text(one + "/name")] = object.text(one + "/hostPath/path");
  }
  EXPECT_EQ(paths["state"], "/var/lib/qgpu/scheduler");
  EXPECT_EQ(paths["run"], "/run/qgpu/scheduler");
  for (const std::string& one : below(object, container + "/volumeMounts")) {
    EXPECT_FALSE(object.text(one + "/name").starts_with("host-")) << "the init container's alone";
  }
}

TEST(Manifests, StartTheManagerAsItsUsersKnowIt) {
  const auto all = manifests();
  const Document& object = find(all, "DaemonSet", "qgpu-manager");
  const std::string pod = kPod;
  EXPECT_EQ(object.at(pod + "/nodeSelector"), R"({"qgpu-device-enable":"enable"})");
  EXPECT_EQ(object.at(pod + "/hostPID"), "true");
  EXPECT_EQ(object.text(pod + "/initContainers/0/name"), "qgpu-installer");
  EXPECT_EQ(object.at(pod + "/initContainers/0/command"), R"(["/usr/bin/install.sh"])");
  EXPECT_EQ(object.at(pod + "/initContainers/0/securityContext/privileged"), "true");
  EXPECT_EQ(object.at(pod + "/initContainers/0/volumeMounts"),
            R"([{"name":"host-root","mountPath":"/host"}])");
  const std::string command = object.at(pod + "/containers/0/command");
  EXPECT_TRUE(command.starts_with(R"~(["/usr/bin/qgpu-manager","--nodename=$(NODE_NAME)",)~"
                                  R"~("--dbfile=/host/var/lib/qgpu/meta.db")~"))
      << command;
  EXPECT_EQ(object.at(pod + "/containers/0/securityContext/privileged"), "true");
  std::set<std::string> mounts;
  for (const std::string& one : below(object, pod + "/containers/0/volumeMounts")) {
    mounts.insert(object.text(one + "/name") + " " + object.text(one + "/mountPath"));
  }
  for (const char* mount : {"device-plugin /var/lib/kubelet/device-plugins",
                            "pod-resources /var/lib/kubelet/pod-resources",
                            "state /host/var/lib/qgpu", "host-dev /host/dev", "run /run/qgpu"}) {
    EXPECT_TRUE(mounts.contains(mount)) << mount;
  }
  for (const std::string& one : below(object, pod + "/volumes")) {
    const std::string path = object.text(one + "/hostPath/path");
    EXPECT_NE(path, "/var") << "its own folder of it is enough";
    EXPECT_EQ(path == "/", object.text(one + "/name") == "host-root") << path;
  }
}

// A container runtime of NVIDIA's brings the driver to those that ask for it by these.
TEST(Manifests, LetTheManagerHaveTheDriverByARuntimeOfNvidiasToo) {
  const std::string variables =
      find(manifests(), "DaemonSet", "qgpu-manager").at(std::string(kPod) + "/containers/0/env");
  for (const char* one : {R"({"name":"NVIDIA_VISIBLE_DEVICES","value":"all"})",
                          R"({"name":"NVIDIA_DRIVER_CAPABILITIES","value":"compute,utility"})"}) {
    EXPECT_NE(variables.find(one), std::string::npos) << variables;
  }
}

// --- the oldest Kubernetes ---

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// What 1.14 knows; kubectl refuses an object with another field there.
const std::set<std::string> kOldPod = words(
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig "
    "dnsPolicy enableServiceLinks hostAliases hostIPC hostNetwork hostPID hostname "
    "imagePullSecrets initContainers nodeName nodeSelector priority priorityClassName "
    "readinessGates restartPolicy runtimeClassName schedulerName securityContext "
    "serviceAccount serviceAccountName shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations volumes");
const std::set<std::string> kOldContainer = words(
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports "
    "readinessProbe resources securityContext stdin stdinOnce terminationMessagePath "
    "terminationMessagePolicy tty volumeDevices volumeMounts workingDir");
const std::set<std::string> kOldProbe = words(
    "exec failureThreshold httpGet initialDelaySeconds periodSeconds successThreshold "
    "tcpSocket timeoutSeconds");

// The keys below a pointer that are not among those known.
std::vector<std::string> strange(const Document& object, const std::string& pointer,
                                 const std::set<std::string>& known) {
  std::vector<std::string> out = below(object, pointer);
  std::erase_if(
      out, [&](const std::string& one) { return known.contains(one.substr(pointer.size() + 1)); });
  return out;
}

TEST(Manifests, HaveNoFieldThatTheOldestKubernetesLacks) {
  std::size_t containers = 0;
  for (const Document& object : manifests()) {
    std::vector<std::string> wrong = strange(object, kPod, kOldPod);
    const auto look = [&](const std::string& pointer, const std::set<std::string>& known) {
      for (const std::string& one : strange(object, pointer, known)) wrong.push_back(one);
    };
    for (const char* list : {"/initContainers", "/containers"}) {
      for (const std::string& container : below(object, kPod + std::string(list))) {
        ++containers;
        look(container, kOldContainer);
        look(container + "/livenessProbe", kOldProbe);
        look(container + "/readinessProbe", kOldProbe);
      }
    }
    for (const std::string& one : wrong) ADD_FAILURE() << object.name() << ": " << one;
  }
  EXPECT_GE(containers, 3u);
}

// Its test of NVIDIA's cards, a minute for each whose driver hangs, ends before it is killed.
TEST(Manifests, LetTheManagerStart) {
  const auto all = manifests();
  const Document& object = find(all, "DaemonSet", "qgpu-manager");
  const std::string container = std::string(kPod) + "/containers/0";
  EXPECT_GE(std::stoi(object.at(container + "/livenessProbe/initialDelaySeconds")), 15 * 60);
  EXPECT_EQ(object.at(container + "/readinessProbe/httpGet"),
            object.at(container + "/livenessProbe/httpGet"));
}

// --- what must hold together ---

TEST(Manifests, SelectWhatTheyLabel) {
  const auto all = manifests();
  for (const Workload& workload : kWorkloads) {
    const Document& object = find(all, workload.kind, workload.name);
    EXPECT_EQ(object.at("/spec/selector/matchLabels"),
              R"({"app":")" + std::string(workload.name) + "\"}");
    EXPECT_EQ(object.text("/spec/template/metadata/labels/app"), workload.name);
  }
}

// All replicas of the scheduler are ready; its Service leads to the one whose label says so.
TEST(Manifests, LeadToTheSchedulerThatActs) {
  const auto all = manifests();
  const std::string acts =
      std::string(R"({"app":"qgpu-scheduler",")") + RoleLabel::kLabel + R"(":"leads"})";
  EXPECT_EQ(find(all, "Service", "qgpu-scheduler").at("/spec/selector"), acts);
  const Document& object = find(all, "Deployment", "qgpu-scheduler");
  EXPECT_EQ(object.at("/spec/template/metadata/labels"), acts)
      << "one alone needs no right to change it";
  const std::string variables = object.at(std::string(kPod) + "/containers/0/env");
  for (const char* one :
       {R"("name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}})",
        R"("name":"POD_NAMESPACE","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}})"}) {
    EXPECT_NE(variables.find(one), std::string::npos) << variables;
  }
}

TEST(Manifests, HaveAVolumeForEachMountAndAMountForEachVolume) {
  const auto all = manifests();
  for (const Workload& workload : kWorkloads) {
    const Document& object = find(all, workload.kind, workload.name);
    std::set<std::string> volumes;
    std::set<std::string> mounted;
    for (const std::string& one : below(object, std::string(kPod) + "/volumes")) {
      volumes.insert(object.text(one + "/name"));
    }
    for (const char* list : {"/containers", "/initContainers"}) {
      for (const std::string& one : below(object, std::string(kPod) + list)) {
        for (const std::string& mount : below(object, one + "/volumeMounts")) {
          mounted.insert(object.text(mount + "/name"));
        }
      }
    }
    EXPECT_EQ(volumes, mounted) << workload.name;
  }
}

TEST(Manifests, BindRolesThatAreThereToAccountsThatAreThere) {
  const auto all = manifests();
  std::size_t bindings = 0;
  for (const Document& object : all) {
    if (!object.kind().ends_with("RoleBinding")) continue;
    ++bindings;
    find(all, object.text("/roleRef/kind"), object.text("/roleRef/name"));
    EXPECT_EQ(object.text("/roleRef/apiGroup"), "rbac.authorization.k8s.io") << object.name();
    for (const std::string& subject : below(object, "/subjects")) {
      EXPECT_EQ(object.text(subject + "/namespace"), "kube-system") << object.name();
      find(all, "ServiceAccount", object.text(subject + "/name"));
    }
  }
  EXPECT_GE(bindings, 4u);
}

// --- rights ---

// Of the rights that users know those that are used; nothing else stands in the roles of these
// names. That they are used, and are enough, is shown by tests/e2e/kube_rights_test.
TEST(Manifests, GiveInTheKnownRolesNothingButKnownRights) {
  const auto all = manifests();
  EXPECT_EQ(find(all, "ClusterRole", "qgpu-scheduler").at("/rules"),
            R"([{"apiGroups":[""],"resources":["nodes"],"verbs":["list","watch"]},)"
            R"({"apiGroups":[""],"resources":["events"],"verbs":["create","patch"]},)"
            R"({"apiGroups":[""],"resources":["pods"],"verbs":["get","list","watch"]},)"
            R"({"apiGroups":[""],"resources":["pods/binding"],"verbs":["create"]}])");
  EXPECT_EQ(find(all, "ClusterRole", "qgpu-manager").at("/rules"),
            R"([{"apiGroups":[""],"resources":["nodes","pods"],"verbs":["list","watch"]},)"
            R"({"apiGroups":[""],"resources":["events"],"verbs":["create","patch"]},)"
            R"({"apiGroups":[""],"resources":["nodes/status"],"verbs":["patch"]},)"
            R"({"apiGroups":["resource.k8s.io"],"resources":["resourceslices"],)"
            R"("verbs":["get","list","create","update","delete"]},)"
            R"({"apiGroups":["resource.k8s.io"],"resources":["resourceclaims"],"verbs":["get"]}])");
}

bool holds(const Document& role, const std::string& rule, const char* list,
           const std::string& word) {
  for (const std::string& one : below(role, rule + "/" + list)) {
    if (role.text(one) == word || role.text(one) == "*") return true;
  }
  return false;
}

bool allows(const Document& role, const std::string& group, const std::string& resource,
            const std::string& name, const std::string& verb) {
  for (const std::string& rule : below(role, "/rules")) {
    const bool named = role.at(rule + "/resourceNames").empty() ||
                       (!name.empty() && holds(role, rule, "resourceNames", name));
    if (named && holds(role, rule, "apiGroups", group) && holds(role, rule, "verbs", verb) &&
        holds(role, rule, "resources", resource)) {
      return true;
    }
  }
  return false;
}

// By any role that is bound to the account; a Role counts, as all of it is in kube-system.
bool mayDo(const std::vector<Document>& all, const std::string& account, const std::string& group,
           const std::string& resource, const std::string& name, const std::string& verb) {
  for (const Document& binding : all) {
    if (!binding.kind().ends_with("RoleBinding")) continue;
    if (binding.text("/subjects/0/name") != account) continue;
    const Document& role = find(all, binding.text("/roleRef/kind"), binding.text("/roleRef/name"));
    if (allows(role, group, resource, name, verb)) return true;
  }
  return false;
}

struct Right {
  const char* account;
  const char* group;
  const char* resource;
  const char* name;  // empty: any
  std::vector<const char*> verbs;
};
const Right kNeeded[] = {
    {"qgpu-scheduler", "", "nodes", "", {"list", "watch"}},
    {"qgpu-scheduler", "", "nodes/status", "", {"patch"}},
    {"qgpu-scheduler", "", "pods", "", {"get", "list", "watch"}},
    {"qgpu-scheduler", "", "pods/status", "", {"patch"}},
    {"qgpu-scheduler", "", "pods/binding", "", {"create"}},
    {"qgpu-scheduler", "", "pods/eviction", "", {"create"}},
    {"qgpu-scheduler", "", "events", "", {"create", "patch"}},
    {"qgpu-scheduler", "coordination.k8s.io", "leases", "", {"create"}},
    {"qgpu-scheduler", "coordination.k8s.io", "leases", "qgpu-scheduler", {"get", "update"}},
    {"qgpu-scheduler", "", "secrets", "qgpu-scheduler-webhook", {"get", "patch"}},
    {"qgpu-scheduler",
     "admissionregistration.k8s.io",
     "validatingwebhookconfigurations",
     "qgpu-scheduler",
     {"get", "patch"}},
    {"qgpu-scheduler",
     "admissionregistration.k8s.io",
     "mutatingwebhookconfigurations",
     "qgpu-scheduler",
     {"get", "patch"}},
    {"qgpu-scheduler", "", "namespaces", "", {"get"}},
    {"qgpu-scheduler", "resource.k8s.io", "resourceclaimtemplates", "", {"create"}},
    {"qgpu-manager", "", "nodes", "", {"list", "watch"}},
    {"qgpu-manager", "", "pods", "", {"list", "watch"}},
    {"qgpu-manager", "", "nodes/status", "", {"patch"}},
    {"qgpu-manager", "", "events", "", {"create", "patch"}},
};

TEST(Manifests, LetTheDaemonsDoWhatTheyDo) {
  const auto all = manifests();
  for (const Right& right : kNeeded) {
    for (const char* verb : right.verbs) {
      EXPECT_TRUE(mayDo(all, right.account, right.group, right.resource, right.name, verb))
          << right.account << " " << verb << " " << right.resource << " " << right.name;
    }
  }
  // The check itself: rights that nobody gave.
  EXPECT_FALSE(mayDo(all, "qgpu-scheduler", "", "secrets", "", "get"));
  EXPECT_FALSE(mayDo(all, "qgpu-scheduler", "", "secrets", "", "create"));
  EXPECT_FALSE(mayDo(all, "qgpu-scheduler", "", "pods", "", "patch"));
  EXPECT_FALSE(mayDo(all, "qgpu-manager", "", "secrets", "", "list"));
  EXPECT_FALSE(mayDo(all, "qgpu-manager", "", "pods", "", "patch"));
  EXPECT_FALSE(mayDo(all, "qgpu-scheduler", "", "nodes", "", "delete"));
  EXPECT_FALSE(mayDo(all, "qgpu-scheduler", "coordination.k8s.io", "leases", "other", "update"));
  EXPECT_FALSE(mayDo(all, "qgpu-manager", "apps", "daemonsets", "", "get"));
}

// --- the webhook ---

TEST(Manifests, LeadTheApiServerToTheWebhook) {
  const auto all = manifests();
  const Document& scheduler = find(all, "Deployment", "qgpu-scheduler");
  EXPECT_EQ(scheduler.text(std::string(kPod) + "/containers/0/command/2"),
            "--webhook=0.0.0.0:12348");
  EXPECT_EQ(find(all, "Service", "qgpu-scheduler").at("/spec/ports/1"),
            R"({"port":443,"name":"webhook","protocol":"TCP","targetPort":12348})");
  const WebhookNames names;
  std::set<std::string> seen;
  for (const Document& object : all) {
    const std::string kind = object.kind();
    if (!kind.ends_with("WebhookConfiguration")) continue;
    EXPECT_EQ(object.name(), names.configuration);
    for (const std::string& webhook : below(object, "/webhooks")) {
      const std::string name = object.text(webhook + "/name");
      const auto published =
          std::find_if(std::begin(kPublishedWebhooks), std::end(kPublishedWebhooks),
                       [&](const PublishedWebhook& one) { return one.name == name; });
      ASSERT_NE(published, std::end(kPublishedWebhooks)) << name;
      seen.insert(object.text("/apiVersion") + " " + name);
      std::string collection = kind + "s";
      for (char& c : collection) c = static_cast<char>(std::tolower(c));
      EXPECT_EQ(collection, published->collection);
      const std::string service = webhook + "/clientConfig/service";
      EXPECT_EQ(object.text(service + "/name"), names.service);
      EXPECT_EQ(object.text(service + "/namespace"), names.nameSpace);
      const std::string spaces = webhook + "/namespaceSelector/matchExpressions/";
      if (published->collection == std::string_view(kMutating)) {
        EXPECT_EQ(object.text(service + "/path"), "") << "the scheduler's to write";
        EXPECT_EQ(object.text(webhook + "/failurePolicy"), "Fail");
        EXPECT_EQ(object.at(webhook + "/rules/0/operations"), R"(["CREATE"])");
        continue;
      }
      EXPECT_EQ(object.text(service + "/path"), published->path);
      EXPECT_EQ(object.text(webhook + "/failurePolicy"), "Ignore");
      EXPECT_EQ(object.text(webhook + "/sideEffects"), "None");
      EXPECT_EQ(object.text(spaces + "0/operator"), "NotIn");
      EXPECT_EQ(object.at(webhook + "/rules/0/operations"), R"(["CREATE","UPDATE"])");
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"admissionregistration.k8s.io/v1 by-claims.pods.qgpu.io",
                                         "admissionregistration.k8s.io/v1 claims.qgpu.io",
                                         "admissionregistration.k8s.io/v1 pods.qgpu.io",
                                         "admissionregistration.k8s.io/v1 scheduler.pods.qgpu.io",
                                         "admissionregistration.k8s.io/v1beta1 pods.qgpu.io"}));
}

// Nobody's pods are changed unasked, and a dry run makes nothing.
TEST(Manifests, ChangePodsOfNamespacesThatWantItAlone) {
  const auto all = manifests();
  const Document& changes = find(all, "MutatingWebhookConfiguration", WebhookNames().configuration);
  const std::string spaces = "/namespaceSelector/matchExpressions/0";
  EXPECT_EQ(changes.at("/webhooks/0" + spaces),
            R"({"key":"qgpu.io/claims","operator":"In","values":["enable"]})");
  EXPECT_EQ(changes.text("/webhooks/0/sideEffects"), "NoneOnDryRun");
  EXPECT_EQ(changes.at("/webhooks/1" + spaces),
            R"({"key":"qgpu.io/scheduler-name","operator":"Exists"})");
  EXPECT_EQ(changes.text("/webhooks/1/sideEffects"), "None");
}

// --- kube-scheduler ---

const std::string kFolder = "deploy/kubernetes/kube-scheduler/";

TEST(KubeScheduler, GetsTheSameExtenderInEveryGeneration) {
  const Document policy = readDocuments(sourcePath(kFolder + "policy.json")).at(0);
  for (const std::string version : {"v1beta1", "v1beta2", "v1beta3", "v1"}) {
    const Document config =
        readDocuments(sourcePath(kFolder + "config-" + version + ".yaml")).at(0);
    EXPECT_EQ(config.text("/apiVersion"), "kubescheduler.config.k8s.io/" + version);
    EXPECT_EQ(config.kind(), "KubeSchedulerConfiguration");
    EXPECT_EQ(config.text("/clientConnection/kubeconfig"), "/etc/kubernetes/scheduler.conf");
    EXPECT_EQ(config.at("/leaderElection/leaderElect"), "true");
    for (const char* field :
         {"urlPrefix", "filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb", "weight",
          "nodeCacheCapable", "ignorable", "managedResources"}) {
      const std::string pointer = std::string("/extenders/0/") + field;
      EXPECT_FALSE(policy.at(pointer).empty()) << field;
      EXPECT_EQ(config.at(pointer), policy.at(pointer)) << version << " " << field;
    }
    EXPECT_EQ(config.at("/extenders/0/enableHTTPS"), policy.at("/extenders/0/enableHttps"));
    EXPECT_EQ(config.text("/extenders/0/httpTimeout"), "30s");
    EXPECT_EQ(below(config, "/extenders/0").size(), below(policy, "/extenders/0").size());
  }
  EXPECT_EQ(policy.at("/extenders/0/httpTimeout"), "30000000000");
}

TEST(KubeScheduler, AsksAboutEveryResourceOfOursAtTheContractsAddress) {
  const Document config = readDocuments(sourcePath(kFolder + "config-v1.yaml")).at(0);
  const std::string extender = "/extenders/0";
  EXPECT_EQ(config.text(extender + "/urlPrefix"), "http://127.0.0.1:12345/scheduler");
  EXPECT_EQ(config.text(extender + "/filterVerb"), "filter");
  EXPECT_EQ(config.text(extender + "/prioritizeVerb"), "priorities");
  EXPECT_EQ(config.text(extender + "/bindVerb"), "bind");
  EXPECT_EQ(config.text(extender + "/preemptVerb"), "preempt");
  std::set<std::string> resources;
  for (const std::string& one : below(config, extender + "/managedResources")) {
    resources.insert(config.text(one + "/name"));
  }
  const std::string prefix = kResourcePrefix;
  EXPECT_EQ(resources, (std::set<std::string>{prefix + "/qgpu-core", prefix + "/qgpu-memory",
                                              prefix + "/qgpu-core-greedy"}));
}

// --- examples ---

PodDemands example(const std::string& file) {
  const auto documents = readDocuments(sourcePath("deploy/kubernetes/examples/" + file));
  EXPECT_EQ(documents.size(), 1u) << file;
  const Document& object = documents.at(0);
  const bool isJob = object.kind() == "Job";
  auto pod = readPod(isJob ? object.at("/spec/template") : object.json(), PodRules{});
  EXPECT_TRUE(pod.ok()) << file << ": " << (pod.ok() ? "" : pod.error().message);
  return pod.ok() ? *pod : PodDemands{};
}

TEST(Examples, AreWhatTheirNamesSay) {
  const PodDemands online = example("online.yaml");
  EXPECT_EQ(online.taskClass, TaskClass::Online);
  ASSERT_EQ(online.containers.size(), 1u);
  EXPECT_EQ(online.containers[0].ask.mem, Bytes(std::int64_t{4} << 30));

  const PodDemands offline = example("offline.yaml");
  EXPECT_EQ(offline.taskClass, TaskClass::Offline);
  ASSERT_EQ(offline.containers.size(), 1u);
  EXPECT_EQ(offline.containers[0].ask.share, Permille(600));

  const PodDemands ordinary = example("ordinary.yaml");
  EXPECT_EQ(ordinary.taskClass, TaskClass::Ordinary);
  EXPECT_EQ(ordinary.containers.size(), 2u);

  const PodDemands cards = example("multi-card.yaml");
  ASSERT_EQ(cards.containers.size(), 1u);
  EXPECT_EQ(cards.containers[0].ask.cards, 2u);

  const Document job = readDocuments(sourcePath("deploy/kubernetes/examples/group.yaml")).at(0);
  EXPECT_EQ(example("group.yaml").group, (PodGroup{job.name(), 4}));
  EXPECT_EQ(job.at("/spec/parallelism"), "4");
  EXPECT_EQ(job.at("/spec/completions"), "4");
}

// On what a machine of 16 GiB makes of its CPU.
TEST(Examples, FitOneCardButForTheOneOfWholeCards) {
  for (const char* file : {"online.yaml", "offline.yaml", "ordinary.yaml"}) {
    Bytes all{0};
    for (const ContainerDemand& container : example(file).containers) all += container.ask.mem;
    EXPECT_LE(all, cpuCardBytes(mebibytes(15'900))) << file;
  }
}

TEST(Examples, AreAllLookedAt) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(sourcePath("deploy/kubernetes/examples"))) {
    const std::string name = entry.path().filename().string();
    if (name == "claims.yaml") continue;  // below
    ++files;
    example(name);
  }
  EXPECT_EQ(files, 5u);
}

TEST(Examples, ClaimsNameAClassThatIsInstalledAndATemplateThatIsThere) {
  const auto example = readDocuments(sourcePath("deploy/kubernetes/examples/claims.yaml"));
  ASSERT_EQ(example.size(), 2u);
  EXPECT_EQ(example[1].text("/spec/resourceClaims/0/resourceClaimTemplateName"), example[0].name());
  EXPECT_EQ(example[1].at("/spec/containers/0/resources/claims"), R"([{"name":"gpu"}])");
  std::set<std::string> classes;
  for (const Document& one : readDocuments(sourcePath("deploy/kubernetes/device-classes.yaml"))) {
    EXPECT_EQ(one.kind(), "DeviceClass");
    EXPECT_EQ(one.text("/spec/config/0/opaque/driver"), kClaimDriver);
    simdjson::dom::parser parser;
    for (const std::string& rule : brokenClaimRules(parser.parse(one.at("/spec")))) {
      ADD_FAILURE() << one.name() << ": " << rule;
    }
    EXPECT_EQ(one.text("/spec/config/0/opaque/parameters/class") + ".qgpu.io", one.name());
    classes.insert(one.name());
  }
  EXPECT_EQ(classes,
            (std::set<std::string>{"offline.qgpu.io", "online.qgpu.io", "ordinary.qgpu.io"}));
  EXPECT_TRUE(
      classes.contains(example[0].text("/spec/spec/devices/requests/0/exactly/deviceClassName")));
  simdjson::dom::parser parser;
  EXPECT_TRUE(brokenClaimRules(parser.parse(example[0].at("/spec/spec/devices"))).empty());
}

}  // namespace
}  // namespace qgpu::manifest_test
