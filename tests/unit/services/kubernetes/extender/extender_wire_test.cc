// The JSON of extender/v1 byte for byte as Go writes it, and everything that Go's decoder takes.
#include <algorithm>
#include <gtest/gtest.h>

#include "services/kubernetes/extender/wire.h"

namespace qgpu::extender_wire_test {
namespace {

const std::string kPod =
    R"({"metadata":{"name":"podname","creationTimestamp":null},"spec":{"containers":null},)"
    R"("status":{}})";
const std::string kNode =
    R"({"metadata":{"name":"nodename","creationTimestamp":null},"spec":{},"status":)"
    R"({"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"",)"
    R"("systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"",)"
    R"("kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}})";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return text;
}

TEST(Wire, ReadsTheFilterArgumentsOfGoInAnyCase) {
  const std::string golden =
      R"({"Pod":)" + kPod + R"(,"Nodes":null,"NodeNames":["node1","node2"]})";
  for (std::string body : {golden, lower(golden)}) {
    WireReader reader;
    const Result<ExtenderArgs> args = reader.args(body);
    ASSERT_TRUE(args.ok()) << args.error().message;
    EXPECT_EQ(lower(std::string(args->pod)), lower(kPod));
    EXPECT_FALSE(args->wholeNodes);
    EXPECT_EQ(args->names, (std::vector<std::string_view>{"node1", "node2"}));
  }
}

TEST(Wire, KeepsTheBytesOfWholeNodes) {
  std::string body = R"({"Pod":)" + kPod + R"(,"Nodes":{"metadata":{},"items":[ )" + kNode +
                     " ,\n {\"x\":{\"metadata\":{\"name\":\"no\"}},\"metadata\":" +
                     R"({"labels":{"name":"no"},"name":"b"}} ]},"NodeNames":null})";
  WireReader reader;
  const Result<ExtenderArgs> args = reader.args(body);
  ASSERT_TRUE(args.ok()) << args.error().message;
  EXPECT_TRUE(args->wholeNodes);
  EXPECT_EQ(args->names, (std::vector<std::string_view>{"nodename", "b"}));
  ASSERT_EQ(args->nodes.size(), 2U);
  EXPECT_EQ(args->nodes[0], kNode);
  FilterResult result;
  result.wholeNodes = true;
  result.fitting = {args->nodes[0]};
  EXPECT_EQ(writeFilterResult(result),
            R"({"Nodes":{"metadata":{},"items":[)" + kNode +
                R"(]},"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},)"
                R"("Error":""})");
}

TEST(Wire, TakesUnknownKeysNullsAndEscapes) {
  std::string body = R"({"later":[1,{"NodeNames":["no"]}],"nodenames":["n\u0031"],"Nodes":null,)"
                     R"("POD":{"metadata":{"name":"p"}},"NodeNames":null})";
  WireReader reader;
  const Result<ExtenderArgs> args = reader.args(body);
  ASSERT_TRUE(args.ok()) << args.error().message;
  EXPECT_EQ(args->names, std::vector<std::string_view>{"n1"});
}

TEST(Wire, RefusesWhatIsNoSuchJson) {
  for (const char* text :
       {"", "null", "[]", "{", "{}", R"({"Pod":null,"NodeNames":[]})", R"({"Pod":7})",
        R"({"Pod":{},"NodeNames":[7]})", R"({"Pod":{},"NodeNames":{}})", R"({"Pod":{},"Nodes":[]})",
        R"({"Pod":{},"Nodes":{"items":[{"metadata":[]}]}})", R"({"Pod":{}} {})",
        "{\"Pod\":{},\"NodeNames\":[\"\xff\"]}"}) {
    std::string body = text;
    WireReader reader;
    const Result<ExtenderArgs> args = reader.args(body);
    ASSERT_FALSE(args.ok()) << text;
    EXPECT_EQ(args.error().code, ErrorCode::InvalidArgument);
  }
}

TEST(Wire, ReadsMoreThanAMebibyte) {
  std::string body = R"({"Pod":{"metadata":{"name":"p"}},"NodeNames":[)";
  std::vector<std::string> names;
  for (int i = 0; i < 50'000; ++i) names.push_back("node-" + std::to_string(i) + ".example.org");
  for (const std::string& name : names) body += (&name == &names[0] ? "\"" : ",\"") + name + "\"";
  body += "]}";
  ASSERT_GT(body.size(), std::size_t{1} << 20);
  WireReader reader;
  for (int again = 0; again < 2; ++again) {
    const Result<ExtenderArgs> args = reader.args(body);
    ASSERT_TRUE(args.ok()) << args.error().message;
    EXPECT_TRUE(std::equal(names.begin(), names.end(), args->names.begin(), args->names.end()));
  }
}

// kube-scheduler before 1.21 reads FailedNodes alone, and would have no reason to show.
TEST(Wire, WritesAFilterResultAsGoDoesWithEveryReasonAmongTheFailed) {
  FilterResult result;
  result.fitting = {"node1"};
  result.failed = {{"baz", R"("a \"b\"")"}, {"foo", R"("bar")"}};
  result.unresolvable = {{"qux", R"("never")"}};
  result.error = "myerror";
  EXPECT_EQ(writeFilterResult(result),
            R"({"Nodes":null,"NodeNames":["node1"],"FailedNodes":{"baz":"a \"b\"","foo":"bar",)"
            R"("qux":"never"},)"
            R"("FailedAndUnresolvableNodes":{"qux":"never"},"Error":"myerror"})");
}

TEST(Wire, WritesScoresAsIntegers) {
  EXPECT_EQ(writeHostPriorities({{"myhost", 1}, {"other", 10}}),
            R"([{"Host":"myhost","Score":1},{"Host":"other","Score":10}])");
  EXPECT_EQ(writeHostPriorities({}), "[]");
}

TEST(Wire, ReadsAndAnswersABinding) {
  const std::string golden = R"({"PodName":"mypodname","PodNamespace":"mypodnamespace",)"
                             R"("PodUID":"mypoduid","Node":"mynode"})";
  for (std::string body : {golden, lower(golden)}) {
    WireReader reader;
    const Result<ExtenderBindingArgs> args = reader.bindingArgs(body);
    ASSERT_TRUE(args.ok()) << args.error().message;
    EXPECT_EQ(args->podName, "mypodname");
    EXPECT_EQ(args->podNamespace, "mypodnamespace");
    EXPECT_EQ(args->podUid, "mypoduid");
    EXPECT_EQ(args->node, "mynode");
  }
  std::string lacking = R"({"PodName":"p","PodNamespace":"n","Node":"x"})";
  WireReader reader;
  EXPECT_FALSE(reader.bindingArgs(lacking).ok());
  EXPECT_EQ(writeBindingResult(""), R"({"Error":""})");
  EXPECT_EQ(writeBindingResult("myerror"), R"({"Error":"myerror"})");
}

TEST(Wire, ReadsVictimsWholeOrByUid) {
  const std::string meta = R"({"Pod":)" + kPod +
                           R"(,"NodeNameToVictims":null,"NodeNameToMetaVictims":{"foo":)"
                           R"({"Pods":[{"UID":"myuid"}],"NumPDBViolations":1}}})";
  const std::string whole = R"({"Pod":)" + kPod +
                            R"(,"NodeNameToVictims":{"foo":{"Pods":[{"metadata":{"name":"p",)"
                            R"("uid":"myuid"},"spec":{}}],"NumPDBViolations":1}},)"
                            R"("NodeNameToMetaVictims":null})";
  for (std::string body : {meta, whole, lower(meta), lower(whole)}) {
    WireReader reader;
    const Result<ExtenderPreemptionArgs> args = reader.preemptionArgs(body);
    ASSERT_TRUE(args.ok()) << args.error().message;
    ASSERT_EQ(args->victims.size(), 1U);
    EXPECT_EQ(args->victims[0].node, "foo");
    EXPECT_EQ(args->victims[0].podUids, std::vector<std::string>{"myuid"});
    EXPECT_EQ(args->victims[0].pdbViolations, 1);
    EXPECT_EQ(writePreemptionResult(args->victims),
              R"({"NodeNameToMetaVictims":{"foo":{"Pods":[{"UID":"myuid"}],)"
              R"("NumPDBViolations":1}}})");
  }
}

}  // namespace
}  // namespace qgpu::extender_wire_test
