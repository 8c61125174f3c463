#include "services/api/commands/cluster_render.h"

#include <capnp/dynamic.h>
#include <optional>

#include "services/api/commands/render.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

std::string joined(capnp::List<capnp::Text>::Reader texts) {
  std::string all;
  for (const auto text : texts) {
    if (!all.empty()) all += ',';
    all += view(text);
  }
  return all;
}

void writeTexts(DocumentWriter& json, std::string_view name,
                capnp::List<capnp::Text>::Reader texts) {
  writeArray(json, name, texts, [&](kj::StringPtr text) { json.string(view(text)); });
}

void info(DocumentWriter& json, schema::ClusterInfo::Reader info) {
  json.field("role", "scheduler").field("version", view(info.getVersion()));
  json.count("pid", info.getPid()).count("term", info.getTerm());
  json.count("uptime_ns", info.getUptimeNs());
  json.count("nodes", info.getNodes()).count("alive", info.getAlive());
  json.count("cards", info.getCards()).count("tasks", info.getTasks());
  json.count("waiting", info.getWaiting()).field("priority", scoreName(info.getPriority()));
  json.field("storage", view(info.getStorage())).count("decisions", info.getDecisions());
  writeArray(json, "pending", info.getPending(), [&](schema::ClusterInfo::Pending::Reader one) {
    json.beginObject().field("class", className(one.getClass()));
    json.field("reason", view(one.getReason())).count("tasks", one.getTasks()).endObject();
  });
  writeArray(json, "decided", info.getDecided(), [&](schema::ClusterInfo::Decided::Reader one) {
    json.beginObject().field("result", decidedName(one.getResult()));
    json.field("reason", view(one.getReason())).count("count", one.getCount()).endObject();
  });
}

void node(DocumentWriter& json, schema::ClusterNode::Reader node) {
  json.beginObject();
  json.field("name", view(node.getName())).field("state", nodeStateName(node.getState()));
  json.count("since_unix_ms", node.getSinceUnixMs());
  json.flag("cordoned", node.getCordoned()).flag("draining", node.getDraining());
  json.flag("mixed", node.getMixed()).field("version", view(node.getVersion()));
  json.count("cards", node.getCards()).count("tasks", node.getTasks());
  json.count("mem_bytes", node.getMemBytes()).count("mem_bound_bytes", node.getMemBound());
  json.count("share_bound_permille", node.getShareBound());
  json.count("greedy_bound_permille", node.getGreedyBound());
  json.count("cpu_milli", node.getCpuMilli()).count("cpu_bound_milli", node.getCpuBound());
  json.count("host_mem_bytes", node.getHostMemBytes());
  json.count("host_mem_bound_bytes", node.getHostMemBound());
  json.endObject();
}

std::string_view stateOf(schema::ClusterTask::Reader task) {
  const bool told = task.getState() == schema::PlaceState::BOUND &&
                    task.getTaskState() != schema::TaskState::PENDING;
  return told ? taskStateName(task.getTaskState()) : placeStateName(task.getState());
}

void task(DocumentWriter& json, schema::ClusterTask::Reader task) {
  const auto wanted = task.getSpec();
  const auto spec = wanted.getTask();
  const auto use = task.getUse();
  json.beginObject();
  json.count("id", task.getId()).field("name", view(spec.getName()));
  json.field("class", className(spec.getClass())).field("node", view(task.getNode()));
  json.field("card", joined(task.getCards())).count("cards", spec.getCards());
  json.count("share_permille", spec.getSharePermille()).count("mem_bytes", spec.getMemBytes());
  json.count("mem_used_bytes", use.getMemBytes() + use.getPageableHeld());
  json.field("state", stateOf(task));
  json.field("place", placeStateName(task.getState())).count("epoch", task.getEpoch());
  json.count("node_task", task.getNodeTask()).count("processes", use.getProcesses());
  json.count("gpu_ns", use.getGpuNs()).count("used_ns", use.getUsedNs());
  json.count("held_ns", use.getHeldNs()).count("turns", use.getTurns());
  json.count("launches", use.getLaunches());
  json.count("submitted_unix_ms", task.getSubmittedUnixMs());
  json.count("bound_unix_ms", task.getBoundUnixMs());
  json.field("application", view(wanted.getApplication()));
  json.field("group", view(wanted.getGroup())).count("group_size", wanted.getGroupSize());
  json.flag("preempt", wanted.getPreempt()).field("reason", view(task.getReason()));
  json.count("owner_uid", spec.getOwnerUid()).field("request_id", view(spec.getRequestId()));
  json.endObject();
}

void assigned(DocumentWriter& json, schema::Assigned::Reader assigned, const Variables& here) {
  json.count("task", assigned.getTask()).count("epoch", assigned.getEpoch());
  json.flag("waiting", assigned.getWaiting()).field("node", view(assigned.getNode()));
  writeTexts(json, "cards", assigned.getCards());
  json.count("node_task", assigned.getNodeTask()).field("token", view(assigned.getToken()));
  json.key("env").beginObject();
  if (!assigned.getWaiting()) {
    for (const auto& [name, value] : here) json.field(name, value);
  }
  for (const auto pair : assigned.getEnvironment()) {
    const std::string_view text = view(pair);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    if (taskMayCarry(name, value)) json.field(name, value);
  }
  json.endObject().field("reason", view(assigned.getReason()));
}

void explanation(DocumentWriter& json, schema::Explanation::Reader explanation) {
  json.count("task", explanation.getTask()).flag("fits", explanation.getFits());
  json.field("text", view(explanation.getText())).field("remedy", view(explanation.getRemedy()));
  json.count("considered", explanation.getConsidered());
  writeArray(json, "counts", explanation.getCounts(), [&](schema::ReasonCount::Reader count) {
    json.beginObject().field("reason", view(count.getReason()));
    json.count("cards", count.getCards()).endObject();
  });
  writeArray(json, "nodes", explanation.getNodes(), [&](schema::CardVerdict::Reader verdict) {
    json.beginObject().field("node", view(verdict.getNode()));
    json.field("card", view(verdict.getCard())).field("reason", view(verdict.getReason()));
    json.field("text", view(verdict.getText())).endObject();
  });
}

void landings(DocumentWriter& json, std::string_view name,
              capnp::List<schema::WhatIfAnswer::Landing>::Reader list) {
  writeArray(json, name, list, [&](schema::WhatIfAnswer::Landing::Reader landing) {
    json.beginObject().count("task", landing.getTask()).field("node", view(landing.getNode()));
    writeTexts(json, "cards", landing.getCards());
    writeArray(json, "evicts", landing.getEvicts(), [&](std::uint64_t id) { json.number(id); });
    json.field("reason", view(landing.getReason())).endObject();
  });
}

void whatIf(DocumentWriter& json, schema::WhatIfAnswer::Reader answer) {
  landings(json, "landed", answer.getLanded());
  landings(json, "stay", answer.getStay());
  json.count("allocated_before_permille", answer.getAllocatedBefore());
  json.count("allocated_after_permille", answer.getAllocatedAfter());
  json.count("fragment_before_permille", answer.getFragmentBefore());
  json.count("fragment_after_permille", answer.getFragmentAfter());
}

Error anotherKind() {
  return fail(ErrorCode::Internal, "the scheduler gave an answer of another kind");
}

// Why there is no answer in it; nothing where there is one.
std::optional<Error> refusalOf(schema::ClusterReply::Reader reply) {
  if (reply.isFailed()) {
    const auto failed = reply.getFailed();
    return fail(errorFromName(view(failed.getCode())), std::string(view(failed.getMessage())));
  }
  const capnp::DynamicStruct::Reader any(reply);
  if (any.which() == nullptr) return anotherKind();
  return std::nullopt;
}

// Of a reply that is a list, else null.
const char* listName(schema::ClusterReply::Reader reply) {
  switch (reply.which()) {
    case schema::ClusterReply::NODES:
      return "nodes";
    case schema::ClusterReply::CARDS:
      return "cards";
    case schema::ClusterReply::TASKS:
      return "tasks";
    default:
      return nullptr;
  }
}

void listEntries(DocumentWriter& json, schema::ClusterReply::Reader reply) {
  if (reply.isNodes()) {
    for (const auto one : reply.getNodes()) node(json, one);
  } else if (reply.isCards()) {
    for (const auto one : reply.getCards()) {
      writeCard(json, one.getStatus(), view(one.getNode()));
    }
  } else {
    for (const auto one : reply.getTasks()) task(json, one);
  }
}

}  // namespace

Variables launchVariables(const std::string& library, const std::string& runDir) {
  Variables here = nodeVariables({library, {}});
  here.emplace_back("QGPU_SOCKET", runDir + "/attach.sock");
  return here;
}

void writeClusterReply(DocumentWriter& json, schema::ClusterReply::Reader reply,
                       const Variables& here) {
  if (const auto error = refusalOf(reply)) return writeError(json, *error);
  json.beginObject().flag("ok", true);
  switch (reply.which()) {
    case schema::ClusterReply::INFO:
      info(json, reply.getInfo());
      break;
    case schema::ClusterReply::NODES:
    case schema::ClusterReply::CARDS:
    case schema::ClusterReply::TASKS:
      json.key(listName(reply)).beginArray();
      listEntries(json, reply);
      json.endArray();
      break;
    case schema::ClusterReply::ASSIGNED:
      assigned(json, reply.getAssigned(), here);
      break;
    case schema::ClusterReply::DONE:
      json.field("done", view(reply.getDone()));
      break;
    case schema::ClusterReply::EXPLANATION:
      explanation(json, reply.getExplanation());
      break;
    case schema::ClusterReply::WHAT_IF:
      whatIf(json, reply.getWhatIf());
      break;
    case schema::ClusterReply::EVENTS:
      writeArray(json, "events", reply.getEvents(), [&](auto e) { writeEvent(json, e); });
      break;
    case schema::ClusterReply::TRACE:
      writeTrace(json, reply.getTrace());
      break;
    default:
      writeAsNamed(json, reply);
      break;
  }
  json.endObject();
}

std::string renderClusterReply(schema::ClusterReply::Reader reply, const Variables& here) {
  JsonWriter json;
  writeClusterReply(json, reply, here);
  return json.take();
}

std::string renderInvitation(schema::ClusterReply::Reader reply, const std::string& door,
                             const std::string& token) {
  if (!reply.isTokens() || reply.getTokens().size() != 1) return renderClusterReply(reply);
  const auto made = reply.getTokens()[0];
  JsonWriter json;
  json.beginObject().flag("ok", true).field("id", view(made.getId()));
  json.field("node", view(made.getNode())).count("until_unix_ms", made.getUntilUnixMs());
  json.field("door", door).field("token", token).endObject();
  return json.take();
}

Result<bool> ClusterListing::add(schema::ClusterReply::Reader page) {
  const char* name = listName(page);
  if (name == nullptr) return refusalOf(page).value_or(anotherKind());
  if (page.getNext() != 0 && page.getNext() <= after_) {
    return fail(ErrorCode::Internal, "the scheduler told a page of a list twice");
  }
  if (after_ == 0) to_.beginObject().flag("ok", true).key(name).beginArray();
  listEntries(to_, page);
  after_ = page.getNext();
  if (after_ == 0) to_.endArray().endObject();
  return after_ != 0;
}

}  // namespace qgpu
