// One row for each rule of the contract and of the seeds about what a pod may ask, with the
// sentence that its author reads; then quantities, init containers, and names.
#include "services/kubernetes/pods/pod_rules.h"

#include <gtest/gtest.h>

#include "services/kubernetes/pods/pod_names.h"
#include "services/kubernetes/pods/quantity.h"

namespace qgpu::pod_rules_test {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// "memory=5 core=30" as a resource list.
std::string resources(const std::string& words) {
  std::string out;
  std::size_t at = 0;
  while (at < words.size()) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    const std::string word = words.substr(at, end - at);
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string name =
        key.find('/') == std::string::npos ? std::string(kResourcePrefix) + "/qgpu-" + key : key;
    out += (out.empty() ? "\"" : ",\"") + name + "\":" + word.substr(equals + 1);
    at = end + 1;
  }
  return "{" + out + "}";
}

std::string container(const std::string& name, const std::string& limits,
                      const std::string& more = "") {
  return R"({"name":")" + name + R"(","resources":{"limits":)" + resources(limits) + "}" + more +
         "}";
}

std::string pod(const std::string& appClass, const std::string& containers,
                const std::string& inits = "") {
  const std::string annotations =
      appClass.empty() ? "null" : R"({"tke.cloud.tencent.com/app-class":")" + appClass + "\"}";
  return R"({"metadata":{"name":"p","namespace":"ns","uid":"u","annotations":)" + annotations +
         R"(},"spec":{"initContainers":[)" + inits + R"(],"containers":[)" + containers + "]}}";
}

struct Row {
  const char* rule;
  std::string json;
  const char* says;  // in the refusal; empty: it is taken
};

std::vector<Row> rows() {
  const auto one = [](const char* appClass, const char* limits) {
    return pod(appClass, container("c", limits));
  };
  const auto both = [](const char* requests, const char* limits) {
    return pod("", R"({"name":"c","resources":{"requests":)" + resources(requests) +
                       R"(,"limits":)" + resources(limits) + "}}");
  };
  return {
      {"an ordinary pod", one("", R"(memory="5" core="30")"), ""},
      {"numbers without quotes", one("", "memory=5 core=30"), ""},
      {"memory has no decimals", one("", R"(memory="1.5" core="30")"), "not a whole number"},
      {"nor as a number", one("", "memory=1.5 core=30"), "decimals are not allowed"},
      {"memory is at least 1", one("", R"(memory="0" core="30")"), "needs"},
      {"memory is not below zero", one("", R"(memory="-1" core="30")"), "below zero"},
      {"the unit is GiB", one("", R"(memory="5Gi" core="30")"), "write 5, not 5Gi"},
      {"core is at least 1", one("", R"(memory="5" core="0")"), "add tke.cloud.tencent.com/qgpu-c"},
      {"core 99 is a part", one("", R"(memory="5" core="99")"), ""},
      {"N*100 is whole cards", one("", R"(core="200")"), ""},
      {"whole cards may name memory", one("", R"(core="100" memory="4")"), ""},
      {"150 is neither", one("", R"(memory="5" core="150")"), "N*100 for N whole cards"},
      {"16 cards are the most", one("", R"(core="1700")"), "at most 16 cards"},
      {"core beyond all cards", one("", R"(core="99999999900")"), "N*100 for N whole cards"},
      {"a part needs memory", one("", R"(core="30")"), "needs tke.cloud.tencent.com/qgpu-memory"},
      {"an ordinary part needs core", one("", R"(memory="5")"), "qgpu-memory without"},
      {"an online pod", one("online", R"(memory="5")"), ""},
      {"online asks no core", one("online", R"(memory="5" core="30")"), "memory only"},
      {"online asks no greedy", one("online", R"(memory="5" core-greedy="30")"), "offline pods"},
      {"online needs memory", one("online", R"(core="30")"), "must not ask for"},
      {"an offline pod", one("offline", R"(memory="5" core-greedy="100")"), ""},
      {"offline asks no core", one("offline", R"(memory="5" core="30")"), "greedy instead"},
      {"offline takes one card", one("offline", R"(memory="5" core-greedy="101")"), "one card"},
      {"offline needs greedy", one("offline", R"(memory="5")"),
       "needs tke.cloud.tencent.com/qgpu-"
       "core-greedy, 1 to 100"},
      {"offline needs memory", one("offline", R"(core-greedy="50")"),
       "needs tke.cloud.tencent."
       "com/qgpu-memory"},
      {"greedy is of offline pods", one("", R"(memory="5" core-greedy="30")"),
       "app-class: offline"},
      {"an unknown class", one("batch", R"(memory="5" core="30")"), "it is online or offline"},
      {"a class alone asks nothing", one("online", ""), ""},
      {"requests alone", both(R"(memory="5" core="30")", ""), "wants limits"},
      {"requests equal limits", both(R"(memory="5" core="30")", R"(memory="5" core="30")"), ""},
      {"requests differ", both(R"(memory="4")", R"(memory="5" core="30")"), "must be equal"},
      {"annotations beside metadata",
       R"({"annotations":{"tke.cloud.tencent.com/app-class":"offline"},"spec":{"containers":[]}})",
       "write them under metadata"},
      {"a misspelt resource", one("", R"(mem="5" core="30")"), "there is no resource"},
      {"whole cards not as nvidia.com/gpu",
       pod("", container("c", R"(memory="5" core="30")") + "," +
                   container("d", R"(nvidia.com/gpu="1")")),
       "serves no nvidia.com/gpu"},
      {"nvidia.com/gpu alone is not ours", one("", R"(nvidia.com/gpu="1")"), ""},
      {"a quantity that is none", one("", R"(memory="five" core="30")"), "is no quantity"},
      {"no quantity at all", one("", "memory=[] core=30"), "it is no quantity"},
      {"a container without a name", pod("", container("", R"(memory="5" core="30")")), "no name"},
      {"no JSON", "{", "no JSON object"},
      {"no pod", "[]", "no JSON object"},
      {"containers are a list", R"({"spec":{"containers":{}}})", "is no list"},
      {"limits are a map", R"({"spec":{"containers":[{"name":"c","resources":{"limits":7}}]}})",
       "limits is no map"},
  };
}

TEST(PodRules, EveryRuleHasItsSentence) {
  for (const Row& row : rows()) {
    const Result<PodDemands> read = readPod(row.json, {});
    const std::string says = row.says;
    if (says.empty()) {
      EXPECT_TRUE(read.ok()) << row.rule << ": " << read.error().message;
    } else {
      ASSERT_FALSE(read.ok()) << row.rule;
      EXPECT_NE(read.error().message.find(says), std::string::npos)
          << row.rule << ": " << read.error().message;
    }
  }
}

TEST(PodRules, ARefusalNamesTheContainer) {
  const auto read = readPod(pod("", container("good", R"(memory="1" core="10")") + "," +
                                        container("bad", R"(memory="1" core="150")")),
                            {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message,
            "container 'bad': tke.cloud.tencent.com/qgpu-core is 150: it is 1 to 99 percent of one "
            "card, or N*100 for N whole cards");
}

TEST(PodRules, ReadsWhatEachContainerAsks) {
  const auto read =
      readPod(pod("", container("a", R"(memory="5" core="30")") + "," + container("none", "") +
                          "," + container("b", R"(core="200")")),
              {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->nameSpace, "ns");
  EXPECT_EQ(read->name, "p");
  EXPECT_EQ(read->uid, "u");
  ASSERT_EQ(read->containers.size(), 2U);
  EXPECT_EQ(read->containers[0].name, "a");
  EXPECT_EQ(read->containers[0].ask.mem, Bytes(5 * kGiB));
  EXPECT_EQ(read->containers[0].ask.share, Permille(300));
  EXPECT_EQ(read->containers[1].ask.cards, 2U);
  EXPECT_TRUE(isWhole(read->containers[1].ask));
}

TEST(PodRules, ClassesDecideWhatIsAsked) {
  const auto online = readPod(pod("online", container("c", R"(memory="5")")), {});
  ASSERT_TRUE(online.ok());
  EXPECT_EQ(online->containers[0].ask.taskClass, TaskClass::Online);
  EXPECT_EQ(online->containers[0].ask.share, Permille(0));
  const auto offline =
      readPod(pod("offline", container("c", R"(memory="5" core-greedy="60")")), {});
  ASSERT_TRUE(offline.ok());
  EXPECT_EQ(offline->containers[0].ask.taskClass, TaskClass::Offline);
  EXPECT_EQ(offline->containers[0].ask.share, Permille(600));
}

std::string ofModels(const std::string& annotation) {
  return R"({"metadata":{"annotations":{"qgpu.io/card-models":)" + annotation +
         R"(}},"spec":{"containers":[)" + container("c", "memory=5 core=30") + "]}}";
}

std::string inGroup(const std::string& annotations, const std::string& labels = "") {
  return R"({"metadata":{"labels":{)" + labels + R"(},"annotations":{)" + annotations +
         R"(}},"spec":{"containers":[)" + container("c", R"(memory="4" core="30")") + "]}}";
}

TEST(PodRules, PodsThatStartTogetherNameTheirGroupAndItsSize) {
  const auto none = readPod(inGroup(""), {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->group, PodGroup());
  const auto named = readPod(inGroup(R"("qgpu.io/group":"train","qgpu.io/group-size":"4")"), {});
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->group, (PodGroup{"train", 4}));
  const std::string key = "leaderworkerset.sigs.k8s.io/group-key";
  const auto labelled =
      readPod(inGroup(R"("qgpu.io/group-size":"256","qgpu.io/group-by":")" + key + "\"",
                      "\"" + key + R"(":"5f3c")"),
              {});
  ASSERT_TRUE(labelled.ok()) << labelled.error().message;
  EXPECT_EQ(labelled->group, (PodGroup{key + "=5f3c", 256}));
}

TEST(PodRules, AGroupThatIsHalfWrittenIsRefusedWithWhatToWrite) {
  const std::string size = R"("qgpu.io/group-size":)";
  const std::string group = R"("qgpu.io/group":)";
  const std::string by = R"("qgpu.io/group-by":)";
  const std::pair<std::string, const char*> cases[] = {
      {group + R"("train")",
       "annotations qgpu.io/group (or qgpu.io/group-by) and "
       "qgpu.io/group-size stand together, and one is missing"},
      {size + R"("4")",
       "annotations qgpu.io/group (or qgpu.io/group-by) and "
       "qgpu.io/group-size stand together, and one is missing"},
      {group + R"("a",)" + by + R"("b",)" + size + R"("4")",
       "annotations qgpu.io/group and qgpu.io/group-by both name its group: write one of them"},
      {group + R"("a",)" + size + R"("0")",
       "annotation qgpu.io/group-size is '0': it is a whole number, 1 to 256"},
      {group + R"("a",)" + size + R"("257")",
       "annotation qgpu.io/group-size is '257': it is a whole number, 1 to 256"},
      {group + R"("a",)" + size + R"("4 pods")",
       "annotation qgpu.io/group-size is '4 pods': it is a whole number, 1 to 256"},
      {group + R"("",)" + size + R"("4")",
       "annotation qgpu.io/group is '': a name has 1 to 63 characters of ASCII"},
      {by + R"("app",)" + size + R"("4")",
       "annotation qgpu.io/group-by is 'app': the pod has no label of this name with 1 to 63 "
       "characters"},
  };
  for (const auto& [annotations, why] : cases) {
    const auto broken = readPod(inGroup(annotations, R"("other":"x")"), {});
    ASSERT_FALSE(broken.ok()) << annotations;
    EXPECT_EQ(broken.error().message, why);
  }
}

// It has its cards, and who reads it wants to know which.
TEST(PodRules, ABoundPodKeepsItsCardsWhateverItsGroupWasMade) {
  std::string json = inGroup(R"("qgpu.io/assigned":"{}","qgpu.io/group-size":"many")");
  json.insert(json.find("\"containers\""), R"("nodeName":"n",)");
  const auto held = readHeldPod(json, {});
  ASSERT_TRUE(held.ok()) << held.error().message;
  EXPECT_EQ(held->group, PodGroup());
  EXPECT_EQ(held->containers.size(), 1U);
}

TEST(PodRules, ModelsOfCardsAreNamedByAnAnnotation) {
  const auto read = readPod(ofModels(R"("Tesla T4, A10 ,A10")"), {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->models, (std::vector<std::string>{"A10", "Tesla T4"}));
  EXPECT_TRUE(readPod(pod("", container("c", "memory=5 core=30")), {})->models.empty());
  const std::pair<std::string, const char*> refused[] = {
      {R"("")", "is '': a name has 1 to 64 characters"},
      {R"("A10,")", "is 'A10,': a name has"},
      {"7", "it names the models of cards, as in 'Tesla T4, A10'"},
      {R"("A10\n")", "characters of ASCII"},
      {'"' + std::string(65, 'a') + '"', "1 to 64 characters"},
      {R"("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17")", "there are more than 16"},
  };
  for (const auto& [annotation, why] : refused) {
    const auto broken = readPod(ofModels(annotation), {});
    ASSERT_FALSE(broken.ok()) << annotation;
    EXPECT_NE(broken.error().message.find(why), std::string::npos) << broken.error().message;
  }
}

TEST(PodRules, APriorityIsANumberThatTheApiServerWrites) {
  const auto read = [](const char* priority) {
    return readPod(R"({"spec":{"priority":)" + std::string(priority) + "}}", {})->priority;
  };
  EXPECT_EQ(read("2000001000"), 2'000'001'000);
  EXPECT_EQ(read("-5"), -5);
  EXPECT_EQ(read("null"), 0);
  EXPECT_EQ(read("9223372036854775807"), 0);
}

TEST(PodRules, PrefixAndUnitAreParameters) {
  PodRules rules;
  rules.prefix = "example.org";
  rules.unit = MemoryUnit::MiB;
  const auto with = [&](const char* memory) {
    return readPod(R"({"spec":{"containers":[{"name":"c","resources":{"limits":{)"
                   R"("example.org/qgpu-core":"30","tke.cloud.tencent.com/qgpu-core":"x",)"
                   R"("example.org/qgpu-memory":")" +
                       std::string(memory) + "\"}}}]}}",
                   rules);
  };
  const auto read = with("2048");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->containers[0].ask.mem, Bytes(2 * kGiB));
  EXPECT_FALSE(with("1500").ok());
  EXPECT_NE(with("5").error().message.find("multiple of 1024"), std::string::npos);
}

TEST(PodRules, KeysInAnyCaseAndOwnersAreRead) {
  const auto read =
      readPod(R"({"Metadata":{"UID":"u","resourceversion":"7","OwnerReferences":[{"uid":"no"},)"
              R"({"UID":"rs","Controller":true}],"annotations":{"qgpu.io/assigned":"{}"}},"SPEC":)"
              R"({"NodeName":"n1","CONTAINERS":[{"Name":"c","Resources":{"Limits":)" +
                  resources(R"(memory="1" core="1")") + "}}]}}",
              {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->uid, "u");
  EXPECT_EQ(read->resourceVersion, "7");
  EXPECT_EQ(read->application, "rs");
  EXPECT_EQ(read->assigned, "{}");
  EXPECT_EQ(read->nodeName, "n1");
  EXPECT_EQ(read->containers.size(), 1U);
}

TEST(PodRules, AnInitContainerUsesTheRoomOfOneThatIsAtLeastAsLarge) {
  const std::string sidecar = R"(,"restartPolicy":"Always")";
  const auto read = readPod(pod("",
                                container("small", R"(memory="2" core="20")") + "," +
                                    container("main", R"(memory="8" core="40")"),
                                container("init", R"(memory="8" core="30")") + "," +
                                    container("side", R"(memory="8" core="40")", sidecar) + "," +
                                    container("little", R"(memory="9" core="10")") + "," +
                                    container("large", R"(memory="9" core="50")")),
                            {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->containers.size(), 6U);
  const auto& containers = read->containers;
  EXPECT_EQ(containers[0].kind, ContainerKind::Init);
  EXPECT_EQ(containers[0].sharesWith, 5U) << "main";
  EXPECT_EQ(containers[1].kind, ContainerKind::Sidecar);
  EXPECT_FALSE(containers[1].sharesWith);
  EXPECT_EQ(containers[2].sharesWith, 3U) << "larger than any main one, but not than large";
  EXPECT_FALSE(containers[3].sharesWith) << "nothing is as large";
}

TEST(PodRules, AnInitContainerAsksOnlyForWhatAMainOneAsksFor) {
  const std::string sidecar = container("side", "memory=8 core=30", R"(,"restartPolicy":"Always")");
  const std::string init = container("init", "memory=2 core=10");
  const std::string idle = R"({"name":"main"})";
  EXPECT_TRUE(readPod(pod("", container("main", "memory=1 core=1"), init), {}).ok());
  EXPECT_TRUE(readPod(pod("", idle, sidecar), {}).ok()) << "kubelet tells whose these are";
  for (const std::string& json :
       {pod("", idle, init), pod("", idle, init + "," + sidecar),
        pod("", container("main", "core=100"), container("init", "memory=2 core=100"))}) {
    const auto refused = readPod(json, {});
    ASSERT_FALSE(refused.ok()) << json;
    EXPECT_NE(refused.error().message.find("container 'init': an init container may ask for "
                                           "tke.cloud.tencent.com/qgpu-memory only where a main"),
              std::string::npos)
        << refused.error().message;
  }
}

struct QuantityRow {
  const char* text;
  std::int64_t value;  // -1: refused
};

TEST(Quantity, IsExact) {
  const std::vector<QuantityRow> rows = {{"5", 5},
                                         {"+5", 5},
                                         {"5k", 5000},
                                         {"5e3", 5000},
                                         {"5E3", 5000},
                                         {"5000m", 5},
                                         {"5.0", 5},
                                         {"1.5k", 1500},
                                         {"1.5Ki", 1536},
                                         {"1Gi", 1073741824},
                                         {"0", 0},
                                         {"0.0", 0},
                                         {"-0", 0},
                                         {"50e-1", 5},
                                         {"9223372036854775807", INT64_MAX},
                                         {"5000000u", 5},
                                         {"9223372036854775808", -1},
                                         {"10E", -1},
                                         {"8Ei", -1},
                                         {"1.5", -1},
                                         {"1m", -1},
                                         {"-5", -1},
                                         {"", -1},
                                         {".", -1},
                                         {"k", -1},
                                         {"5x", -1},
                                         {"5 ", -1},
                                         {"5e", -1},
                                         {"5e+", -1},
                                         {"1e999999999999", -1},
                                         {"0x10", -1},
                                         {"1.2.3", -1},
                                         {"5mi", -1}};
  for (const QuantityRow& row : rows) {
    const Result<std::int64_t> value = wholeQuantity(row.text);
    EXPECT_EQ(value.ok() ? *value : -1, row.value) << row.text;
  }
}

TEST(PodNames, StayReadableWhereTheyFitAndApartWhereTheyDoNot) {
  EXPECT_EQ(podTaskName("ml", "infer-7", "main"), "ml/infer-7/main");
  const std::string pod(253, 'p');
  const std::string one = podTaskName("ml", pod, "a");
  const std::string other = podTaskName("ml", pod, "b");
  EXPECT_EQ(one.size(), kPodTaskNameMax);
  EXPECT_EQ(one.substr(0, 6), "ml/ppp");
  EXPECT_NE(one, other);
  EXPECT_EQ(one, podTaskName("ml", pod, "a"));
  const std::string uid = "0a1b2c3d-0000-4000-8000-000000000000";
  EXPECT_EQ(podRequestId(uid, "main", "7"), uid + "/main#7");
  const std::string shortened = podRequestId(uid, std::string(63, 'c'), "7");
  EXPECT_EQ(shortened.size(), kPodTaskNameMax);
  EXPECT_NE(shortened, podRequestId(uid, std::string(63, 'c'), "8"));
  EXPECT_EQ(podUidOf(shortened), uid);
  EXPECT_EQ(podUidOf("job-5"), "");
}

// A running pod's annotation can be edited; what it holds can't be.
TEST(PodRules, WhatIsBoundKeepsTheClassThatItsResourcesShow) {
  const auto bound = [](const std::string& appClass, const std::string& limits) {
    std::string json = pod(appClass, container("c", limits));
    const std::string decision = R"("qgpu.io/assigned":"{\"c\":[\"GPU-1\"]}")";
    const std::size_t none = json.find("\"annotations\":null");
    if (none != std::string::npos) {
      json.replace(none, 18, "\"annotations\":{" + decision + "}");
    } else {
      json.replace(json.find("\"annotations\":{") + 14, 1, "{" + decision + ",");
    }
    return json.replace(json.find("\"spec\":{"), 8, R"("spec":{"nodeName":"n1",)");
  };
  const std::tuple<const char*, TaskClass, std::vector<const char*>> rows[] = {
      {"memory=\"5\"", TaskClass::Online, {"online", "offline", "batch", ""}},
      {"memory=\"5\" core-greedy=\"60\"", TaskClass::Offline, {"offline", "online", "batch", ""}},
      {"memory=\"5\" core=\"30\"", TaskClass::Ordinary, {"", "online", "offline", "batch"}}};
  for (const auto& [limits, taskClass, edits] : rows) {
    for (const char* edit : edits) {
      const auto held = readHeldPod(bound(edit, limits), {});
      ASSERT_TRUE(held.ok()) << limits << " as '" << edit << "': " << held.error().message;
      EXPECT_EQ(held->taskClass, taskClass) << limits << " as '" << edit << "'";
      EXPECT_EQ(held->containers[0].ask.mem, gibibytes(5));
      EXPECT_EQ(readPod(bound(edit, limits), {}).ok(), edit == edits.front());
    }
  }
  // One that waits is what its annotation says.
  EXPECT_FALSE(readHeldPod(pod("offline", container("c", "memory=\"5\"")), {}).ok());
}

TEST(PodRules, OfABoundPodNoModelMatters) {
  std::string json = ofModels(R"(",","qgpu.io/assigned":"{}")");
  json.replace(json.find("\"spec\":{"), 8, R"("spec":{"nodeName":"n1",)");
  EXPECT_FALSE(readPod(json, {}).ok());
  const auto held = readHeldPod(json, {});
  ASSERT_TRUE(held.ok()) << held.error().message;
  EXPECT_EQ(held->containers.size(), 1U);
}

}  // namespace
}  // namespace qgpu::pod_rules_test
