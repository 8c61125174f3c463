#pragma once
// The words of kube-scheduler and its extenders (k8s.io/kube-scheduler/extender/v1), as Go reads
// and writes them. The types there carry no tags, so keys are Go's names; its decoder takes them in
// any case, null for absent, and unknown keys. Integers stay integers.
//
// Reading never copies what it need not: views are valid while the body is, and until the reader's
// next call. What is no such JSON is InvalidArgument and says where (C7).

#include <cstdint>
#include <optional>
#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// kube-scheduler sends whole nodes where nodeCacheCapable is false: 5,000 of them are some 60 MiB.
inline constexpr std::size_t kExtenderBodyMax = std::size_t{128} << 20;
inline constexpr std::size_t kBindBodyMax = std::size_t{1} << 20;
inline constexpr std::int64_t kExtenderScoreMax = 10;

// Of filter and prioritize.
struct ExtenderArgs {
  std::string_view pod;                 // its JSON; empty: none
  bool wholeNodes = false;              // Nodes was given, not NodeNames
  std::vector<std::string_view> names;  // of the nodes, in either mode
  std::vector<std::string_view> nodes;  // their JSON, where whole; else empty
};

struct ExtenderBindingArgs {
  std::string podName;
  std::string podNamespace;
  std::string podUid;
  std::string node;
};

struct NodeVictims {
  std::string node;
  std::vector<std::string> podUids;
  std::int64_t pdbViolations = 0;
};
struct ExtenderPreemptionArgs {
  std::string_view pod;
  std::vector<NodeVictims> victims;  // of NodeNameToVictims or NodeNameToMetaVictims
};

class WireReader {
 public:
  // `body` gets room for the parser behind its end, and stays as it is otherwise.
  Result<ExtenderArgs> args(std::string& body);
  Result<ExtenderBindingArgs> bindingArgs(std::string& body);
  Result<ExtenderPreemptionArgs> preemptionArgs(std::string& body);

 private:
  using Value = simdjson::ondemand::value;
  simdjson::error_code open(std::string& body, simdjson::ondemand::object& root);
  simdjson::error_code atEnd();
  static simdjson::error_code readNames(Value value, ExtenderArgs& args);
  static simdjson::error_code readNodes(Value value, ExtenderArgs& args);
  static simdjson::error_code readVictims(Value value, std::vector<NodeVictims>& victims);
  static simdjson::error_code readPods(Value value, std::vector<std::string>& uids);

  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
};

struct FailedNode {
  std::string_view node;
  std::string_view why;  // a JSON string: few texts are said of many nodes
};

// Each of these is one JSON document, as Go would write it but for the order of nodes in a map: it
// is the question's. Nodes that are unresolvable stand among the failed ones too: kube-scheduler
// before 1.21 knows no other, and later ones look there first.
struct FilterResult {
  bool wholeNodes = false;                // answer with Nodes, not NodeNames
  std::vector<std::string_view> fitting;  // names, or the nodes' JSON where whole
  std::vector<FailedNode> failed;
  std::vector<FailedNode> unresolvable;  // no preemption would help
  std::string error;
};
std::string jsonText(std::string_view text);
std::string writeFilterResult(const FilterResult& result);

struct HostPriority {
  std::string_view host;
  std::int64_t score = 0;
};
std::string writeHostPriorities(const std::vector<HostPriority>& priorities);

std::string writeBindingResult(std::string_view error);  // empty: bound
std::string writePreemptionResult(const std::vector<NodeVictims>& victims);

}  // namespace qgpu
