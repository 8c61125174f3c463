#include "services/kubernetes/extender/wire.h"

#include <algorithm>
#include <charconv>

#include "services/base/json.h"
#include "services/kubernetes/pods/json_keys.h"

namespace qgpu {
namespace {

using simdjson::error_code;
using simdjson::SUCCESS;
using simdjson::ondemand::array;
using simdjson::ondemand::json_type;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

Error refused(const char* what, error_code error) {
  return fail(ErrorCode::InvalidArgument,
              std::string("the body is no ") + what + ": " + simdjson::error_message(error));
}

// Calls `take(key, value)` for each member that is not null; `take` gives an error_code.
template <typename Take>
error_code eachMember(object& of, Take take) {
  for (auto entry : of) {
    std::string_view key;
    value found;
    json_type type{};
    if (const error_code error = entry.unescaped_key().get(key)) return error;
    if (const error_code error = entry.value().get(found)) return error;
    if (const error_code error = found.type().get(type)) return error;
    if (type == json_type::null) {
      bool null = false;
      if (const error_code error = found.is_null().get(null)) return error;
      continue;
    }
    if (const error_code error = take(key, found)) return error;
  }
  return SUCCESS;
}

error_code readText(value from, std::string& out) {
  std::string_view text;
  const error_code error = from.get_string().get(text);
  if (!error) out = text;
  return error;
}

// Of an object, without what stands behind it.
error_code rawOf(object& of, std::string_view& out) {
  if (const error_code error = of.raw_json().get(out)) return error;
  while (!out.empty() && out.back() != '}') out.remove_suffix(1);
  return SUCCESS;
}

// metadata.NAME of a Kubernetes object.
error_code metadataText(object& of, std::string_view name, std::string_view& out) {
  return eachMember(of, [&](std::string_view key, value metadata) -> error_code {
    object fields;
    if (!sameKey(key, "metadata")) return SUCCESS;
    if (const error_code error = metadata.get_object().get(fields)) return error;
    return eachMember(fields, [&](std::string_view field, value text) -> error_code {
      return sameKey(field, name) ? text.get_string().get(out) : SUCCESS;
    });
  });
}

void appendText(std::string& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (!plain) return appendJsonString(out, text);
  out += '"';
  out += text;
  out += '"';
}

void appendNumber(std::string& out, std::int64_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

template <typename List, typename Append>
void appendList(std::string& out, char open, const List& list, char close, Append append) {
  out += open;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i != 0) out += ',';
    append(list[i]);
  }
  out += close;
}

void appendFailed(std::string& out, const std::vector<FailedNode>& failed) {
  appendList(out, '{', failed, '}', [&](const FailedNode& one) {
    appendText(out, one.node);
    out += ':';
    out += one.why;
  });
}

}  // namespace

error_code WireReader::open(std::string& body, object& root) {
  body.reserve(body.size() + simdjson::SIMDJSON_PADDING);
  if (const error_code error =
          parser_.iterate(body.data(), body.size(), body.capacity()).get(document_)) {
    return error;
  }
  return document_.get_object().get(root);
}

// Whether nothing follows the object.
error_code WireReader::atEnd() {
  const bool more = document_.current_location().error() == SUCCESS;
  return more ? simdjson::TRAILING_CONTENT : SUCCESS;
}

Result<ExtenderArgs> WireReader::args(std::string& body) {
  ExtenderArgs args;
  object root;
  error_code error = open(body, root);
  if (!error) {
    error = eachMember(root, [&](std::string_view key, value found) -> error_code {
      object pod;
      if (sameKey(key, "NodeNames")) return readNames(found, args);
      if (sameKey(key, "Nodes")) return readNodes(found, args);
      if (!sameKey(key, "Pod")) return SUCCESS;
      if (const error_code wrong = found.get_object().get(pod)) return wrong;
      return rawOf(pod, args.pod);
    });
  }
  if (!error) error = atEnd();
  if (error) return refused("ExtenderArgs", error);
  if (args.pod.empty()) return fail(ErrorCode::InvalidArgument, "the ExtenderArgs have no Pod");
  return args;
}

error_code WireReader::readNames(Value value, ExtenderArgs& args) {
  array list;
  if (const error_code error = value.get_array().get(list)) return error;
  if (!args.wholeNodes) args.names.clear();
  for (auto entry : list) {
    std::string_view name;
    if (const error_code error = entry.get_string().get(name)) return error;
    if (!args.wholeNodes) args.names.push_back(name);
  }
  return SUCCESS;
}

error_code WireReader::readNodes(Value value, ExtenderArgs& args) {
  object list;
  if (const error_code error = value.get_object().get(list)) return error;
  args.wholeNodes = true;
  args.names.clear();
  args.nodes.clear();
  return eachMember(list, [&](std::string_view key, Value found) -> error_code {
    array items;
    if (!sameKey(key, "items")) return SUCCESS;
    if (const error_code error = found.get_array().get(items)) return error;
    for (auto entry : items) {
      object node;
      std::string_view raw;
      std::string_view name;
      if (const error_code error = entry.get_object().get(node)) return error;
      if (const error_code error = metadataText(node, "name", name)) return error;
      bool any = false;
      if (const error_code error = node.reset().get(any)) return error;
      if (const error_code error = rawOf(node, raw)) return error;
      args.names.push_back(name);
      args.nodes.push_back(raw);
    }
    return SUCCESS;
  });
}

Result<ExtenderBindingArgs> WireReader::bindingArgs(std::string& body) {
  ExtenderBindingArgs args;
  object root;
  error_code error = open(body, root);
  if (!error) {
    error = eachMember(root, [&](std::string_view key, value found) -> error_code {
      if (sameKey(key, "PodName")) return readText(found, args.podName);
      if (sameKey(key, "PodNamespace")) return readText(found, args.podNamespace);
      if (sameKey(key, "PodUID")) return readText(found, args.podUid);
      return sameKey(key, "Node") ? readText(found, args.node) : SUCCESS;
    });
  }
  if (!error) error = atEnd();
  if (error) return refused("ExtenderBindingArgs", error);
  if (args.podUid.empty() || args.node.empty()) {
    return fail(ErrorCode::InvalidArgument, "the ExtenderBindingArgs lack PodUID or Node");
  }
  return args;
}

Result<ExtenderPreemptionArgs> WireReader::preemptionArgs(std::string& body) {
  ExtenderPreemptionArgs args;
  object root;
  error_code error = open(body, root);
  if (!error) {
    error = eachMember(root, [&](std::string_view key, value found) -> error_code {
      object pod;
      if (sameKey(key, "NodeNameToVictims") || sameKey(key, "NodeNameToMetaVictims")) {
        return readVictims(found, args.victims);
      }
      if (!sameKey(key, "Pod")) return SUCCESS;
      if (const error_code wrong = found.get_object().get(pod)) return wrong;
      return rawOf(pod, args.pod);
    });
  }
  if (!error) error = atEnd();
  if (error) return refused("ExtenderPreemptionArgs", error);
  if (args.pod.empty()) {
    return fail(ErrorCode::InvalidArgument, "the ExtenderPreemptionArgs have no Pod");
  }
  return args;
}

// Whole pods or their UIDs alone: UIDs are what both have.
error_code WireReader::readVictims(Value value, std::vector<NodeVictims>& victims) {
  object nodes;
  if (const error_code error = value.get_object().get(nodes)) return error;
  return eachMember(nodes, [&](std::string_view name, Value found) -> error_code {
    object fields;
    NodeVictims& node = victims.emplace_back();
    node.node = name;
    if (const error_code error = found.get_object().get(fields)) return error;
    return eachMember(fields, [&](std::string_view key, Value field) -> error_code {
      if (sameKey(key, "Pods")) return readPods(field, node.podUids);
      if (!sameKey(key, "NumPDBViolations")) return SUCCESS;
      return field.get_int64().get(node.pdbViolations);
    });
  });
}

error_code WireReader::readPods(Value value, std::vector<std::string>& uids) {
  array pods;
  if (const error_code error = value.get_array().get(pods)) return error;
  for (auto entry : pods) {
    object pod;
    std::string_view uid;
    if (const error_code error = entry.get_object().get(pod)) return error;
    const error_code error = eachMember(pod, [&](std::string_view key, Value found) -> error_code {
      object metadata;
      if (sameKey(key, "UID")) return found.get_string().get(uid);
      if (!sameKey(key, "metadata")) return SUCCESS;
      if (const error_code wrong = found.get_object().get(metadata)) return wrong;
      return eachMember(metadata, [&](std::string_view field, Value text) -> error_code {
        return sameKey(field, "uid") ? text.get_string().get(uid) : SUCCESS;
      });
    });
    if (error) return error;
    uids.emplace_back(uid);
  }
  return SUCCESS;
}

std::string jsonText(std::string_view text) {
  std::string out;
  appendText(out, text);
  return out;
}

std::string writeFilterResult(const FilterResult& result) {
  std::string out;
  std::size_t room = 256;
  for (const std::string_view one : result.fitting) room += one.size() + 3;
  std::vector<FailedNode> failed = result.failed;
  failed.insert(failed.end(), result.unresolvable.begin(), result.unresolvable.end());
  for (const FailedNode& one : failed) room += 2 * (one.node.size() + one.why.size() + 6);
  out.reserve(room);
  if (result.wholeNodes) {
    out += R"({"Nodes":{"metadata":{},"items":)";
    appendList(out, '[', result.fitting, ']', [&](std::string_view node) { out += node; });
    out += R"(},"NodeNames":null)";
  } else {
    out += R"({"Nodes":null,"NodeNames":)";
    appendList(out, '[', result.fitting, ']',
               [&](std::string_view name) { appendText(out, name); });
  }
  out += R"(,"FailedNodes":)";
  const std::size_t begin = out.size();
  appendFailed(out, failed);
  const std::size_t end = out.size();
  out += R"(,"FailedAndUnresolvableNodes":)";
  if (result.failed.empty()) {
    out.append(out, begin, end - begin);  // the same nodes
  } else {
    appendFailed(out, result.unresolvable);
  }
  out += R"(,"Error":)";
  appendText(out, result.error);
  return out += '}';
}

std::string writeHostPriorities(const std::vector<HostPriority>& priorities) {
  std::string out;
  out.reserve(priorities.size() * 64);
  appendList(out, '[', priorities, ']', [&](const HostPriority& one) {
    out += R"({"Host":)";
    appendText(out, one.host);
    out += R"(,"Score":)";
    appendNumber(out, one.score);
    out += '}';
  });
  return out;
}

std::string writeBindingResult(std::string_view error) {
  std::string out = R"({"Error":)";
  appendText(out, error);
  return out += '}';
}

std::string writePreemptionResult(const std::vector<NodeVictims>& victims) {
  std::vector<const NodeVictims*> sorted;
  for (const NodeVictims& one : victims) sorted.push_back(&one);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->node < b->node; });
  std::string out = R"({"NodeNameToMetaVictims":)";
  appendList(out, '{', sorted, '}', [&](const NodeVictims* one) {
    appendText(out, one->node);
    out += R"(:{"Pods":)";
    appendList(out, '[', one->podUids, ']', [&](const std::string& uid) {
      out += R"({"UID":)";
      appendText(out, uid);
      out += '}';
    });
    out += R"(,"NumPDBViolations":)";
    appendNumber(out, one->pdbViolations);
    out += '}';
  });
  return out += '}';
}

}  // namespace qgpu
