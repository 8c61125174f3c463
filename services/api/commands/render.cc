#include "services/api/commands/render.h"

#include <algorithm>

#include "actors/base/codec.h"
#include "runtime/enum_names.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kNanosPerMicro = 1000;

using capnp::DynamicStruct;
using capnp::DynamicValue;

// "memBytes" as documents have it: "mem_bytes".
std::string keyOf(capnp::StructSchema::Field field) {
  std::string key = kebab(view(field.getProto().getName()));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

void writeValue(DocumentWriter& json, DynamicValue::Reader value) {
  switch (value.getType()) {
    case DynamicValue::BOOL:
      json.boolean(value.as<bool>());
      break;
    case DynamicValue::INT:
      json.number(value.as<std::int64_t>());
      break;
    case DynamicValue::UINT:
      json.number(value.as<std::uint64_t>());
      break;
    case DynamicValue::TEXT:
      json.string(view(value.as<capnp::Text>()));
      break;
    case DynamicValue::ENUM:
      KJ_IF_MAYBE (name, value.as<capnp::DynamicEnum>().getEnumerant()) {
        json.string(kebab(view(name->getProto().getName())));
      } else {
        json.string("unknown");
      }
      break;
    case DynamicValue::LIST:
      json.beginArray();
      for (const DynamicValue::Reader one : value.as<capnp::DynamicList>()) writeValue(json, one);
      json.endArray();
      break;
    case DynamicValue::STRUCT: {
      const auto of = value.as<DynamicStruct>();
      json.beginObject();
      for (const auto field : of.getSchema().getNonUnionFields()) {
        writeValue(json.key(keyOf(field)), of.get(field));
      }
      json.endObject();
      break;
    }
    default:
      json.null();  // no answer has another kind
  }
}

DocumentWriter& beginOk(DocumentWriter& json) {
  return json.beginObject().flag("ok", true);
}

constexpr std::string_view kLatencyField = "P50Ns";

// True for xP99Ns and xCount where there is xP50Ns, which is shown for all three.
bool isShownWithMedian(capnp::StructSchema schema, std::string_view name) {
  for (const std::string_view part : {"P99Ns", "Count"}) {
    if (!name.ends_with(part)) continue;
    std::string median(name.substr(0, name.size() - part.size()));
    median += kLatencyField;
    if (schema.findFieldByName(median) != nullptr) return true;
  }
  return false;
}

// What a card counted. The fields xP50Ns, xP99Ns and xCount of a latency become
// "x_us":{"p50":..,"p99":..,"n":..} in microseconds, every other one is its number.
void cardFigures(DocumentWriter& json, DynamicStruct::Reader status) {
  std::string latency;
  const auto of = [&](const char* part) { return status.get(latency + part).as<std::uint64_t>(); };
  for (const auto& field : cardFigureFields()) {
    const std::string_view name = view(field.getProto().getName());
    if (isShownWithMedian(status.getSchema(), name)) continue;
    if (!name.ends_with(kLatencyField)) {
      writeValue(json.key(keyOf(field)), status.get(field));
      continue;
    }
    latency = name.substr(0, name.size() - kLatencyField.size());
    json.key(latency + "_us").beginObject().count("p50", of("P50Ns") / kNanosPerMicro);
    json.count("p99", of("P99Ns") / kNanosPerMicro).count("n", of("Count")).endObject();
  }
}

void task(DocumentWriter& json, schema::TaskInfo::Reader info, std::string_view nodeName) {
  const auto spec = info.getSpec();
  const auto use = info.getUse();
  json.beginObject();
  json.count("id", info.getId()).field("name", view(spec.getName()));
  json.field("class", className(spec.getClass())).field("node", nodeName);
  json.field("card", view(info.getCard())).count("cards", spec.getCards());
  json.count("share_permille", spec.getSharePermille()).count("mem_bytes", spec.getMemBytes());
  json.count("mem_used_bytes", use.getMemBytes()).count("mem_peak_bytes", use.getMemPeak());
  if (spec.getPageableBytes() != 0) {
    json.count("pageable_bytes", spec.getPageableBytes());
    json.count("pageable_held_bytes", use.getPageableHeld());
    json.count("pageable_out_bytes", use.getPageableOut());
  }
  json.field("state", taskStateName(info.getState())).count("processes", use.getProcesses());
  json.count("gpu_ns", use.getGpuNs()).count("used_ns", use.getUsedNs());
  json.count("held_ns", use.getHeldNs()).count("overrun_ns", use.getOverrunNs());
  json.count("turns", use.getTurns()).count("launches", use.getLaunches());
  json.flag("quarantined", info.getQuarantined()).flag("evicting", info.getEvicting());
  json.field("note", view(info.getNote()));
  json.count("owner_pid", spec.getOwnerPid()).count("owner_uid", spec.getOwnerUid());
  json.count("cluster_task", spec.getClusterTask()).count("cluster_epoch", spec.getClusterEpoch());
  json.endObject();
}

void status(DocumentWriter& json, schema::NodeInfo::Reader info) {
  json.field("node", view(info.getName())).field("version", view(info.getVersion()));
  json.count("pid", info.getPid()).count("incarnation", info.getIncarnation());
  json.count("uptime_ns", info.getUptimeNs());
  json.count("cards", info.getCards()).count("tasks", info.getTasks());
  json.field("policy", policyName(info.getPolicy())).flag("mixed", info.getMixed());
  json.count("max_tasks_per_card", info.getMaxTasksPerCard());
  json.field("realtime", view(info.getRealtime())).field("storage", view(info.getStorage()));
  json.field("cluster", view(info.getCluster())).count("cluster_term", info.getClusterTerm());
  json.count("online_idle_ns", info.getOnlineIdleNs());
  json.count("slice_min_ns", info.getSliceMinNs()).count("slice_max_ns", info.getSliceMaxNs());
}

void traceTask(DocumentWriter& json, schema::TraceTask::Reader task) {
  json.beginObject().count("id", task.getId()).field("name", view(task.getName()));
  json.field("class", className(task.getClass())).endObject();
}

}  // namespace

// Of an entry's fields those that say something.
void writeTrace(DocumentWriter& json, schema::CardTrace::Reader trace) {
  json.field("card", view(trace.getCard())).count("now_ns", trace.getNowNs());
  json.count("newest", trace.getNewest()).count("lost", trace.getLost());
  std::uint64_t seq = trace.getFirst();
  writeArray(json, "entries", trace.getEntries(), [&](schema::TraceEntry::Reader entry) {
    json.beginObject().count("seq", seq++).count("at_ns", entry.getAtNs());
    json.field("kind", traceKindName(entry.getKind()));
    if (entry.getTask() != 0) json.count("task", entry.getTask());
    if (entry.getSinceNs() != 0) json.count("since_ns", entry.getSinceNs());
    json.endObject();
  });
  writeArray(json, "tasks", trace.getTasks(), [&](auto t) { traceTask(json, t); });
}

namespace {

void bound(DocumentWriter& json, schema::Bound::Reader bound,
           const TenantEnvironment& environment) {
  json.count("task", bound.getTask()).field("token", view(bound.getToken()));
  writeArray(json, "cards", bound.getCards(), [&](kj::StringPtr id) { json.string(view(id)); });
  json.key("env").beginObject();
  std::vector<std::string> cards;
  for (const kj::StringPtr id : bound.getCards()) cards.emplace_back(view(id));
  const std::string socket(view(bound.getAttachSocket()));
  const std::string token(view(bound.getToken()));
  for (const Variables& part :
       {doorVariables(socket, token), nodeVariables(environment), cardVariables(cards)}) {
    for (const auto& [name, value] : part) json.field(name, value);
  }
  json.endObject();
}

}  // namespace

bool writeAsNamed(DocumentWriter& json, DynamicStruct::Reader reply) {
  KJ_IF_MAYBE (member, reply.which()) {
    const std::string key = keyOf(*member);
    if (key == "failed") return false;
    writeValue(json.key(key), reply.get(*member));
    return true;
  }
  return false;
}

void writeCard(DocumentWriter& json, schema::CardStatus::Reader status, std::string_view nodeName) {
  const auto info = status.getInfo();
  json.beginObject();
  json.field("id", view(info.getId())).count("index", info.getIndex()).field("node", nodeName);
  json.field("model", view(info.getModel())).field("backend", view(info.getBackend()));
  json.count("mem_bytes", info.getMemBytes()).count("mem_bound_bytes", status.getMemBound());
  json.count("share_bound_permille", status.getShareBound());
  json.count("greedy_bound_permille", status.getGreedyBound());
  json.field("policy", policyName(status.getPolicy()));
  json.field("kind", tenancyName(status.getTenancy()));
  json.field("suspend", suspendName(info.getSuspend()));
  json.optional("suspend_why", view(info.getSuspendWhy()));
  json.optional("memory_counted", view(info.getMemoryCounted()));
  json.optional("driver", view(info.getDriver()));
  if (info.getLinkGroup() != 0) json.count("link_group", info.getLinkGroup());
  if (info.getNumaNode() >= 0) {
    json.count("numa_node", static_cast<std::uint64_t>(info.getNumaNode()));
  }
  json.field("isolation", enumName(info.getIsolation()));
  json.field("state", cardStateName(status.getState())).count("tasks", status.getTasks());
  json.optional("report", view(status.getReport()));
  if (status.getReportUnixMs() != 0) json.count("report_unix_ms", status.getReportUnixMs());
  cardFigures(json, status);
  json.endObject();
}

void writeEvent(DocumentWriter& json, schema::Event::Reader event) {
  json.beginObject();
  json.count("seq", event.getSeq()).count("unix_ms", event.getUnixMs());
  json.field("kind", view(event.getKind())).count("task", event.getTask());
  json.field("card", view(event.getCard())).field("text", view(event.getText()));
  json.field("actor", view(event.getActor()));
  json.endObject();
}

void writeError(DocumentWriter& json, const Error& error) {
  json.beginObject().flag("ok", false);
  json.field("error", error.message).field("code", errorName(error.code)).endObject();
}

void writeWatching(DocumentWriter& json) {
  beginOk(json).flag("watching", true).endObject();
}

void writeTold(DocumentWriter& json, schema::Event::Reader told) {
  beginOk(json).key("event");
  writeEvent(json, told);
  json.endObject();
}

std::string renderError(const Error& error) {
  JsonWriter json;
  writeError(json, error);
  return json.take();
}

std::string renderReply(schema::Reply::Reader reply, std::string_view nodeName,
                        const TenantEnvironment& environment) {
  JsonWriter json;
  beginOk(json);
  switch (reply.which()) {
    case schema::Reply::INFO:
      status(json, reply.getInfo());
      break;
    case schema::Reply::CARDS:
      writeArray(json, "cards", reply.getCards(), [&](auto c) { writeCard(json, c, nodeName); });
      break;
    case schema::Reply::TASKS:
      writeArray(json, "tasks", reply.getTasks(), [&](auto t) { task(json, t, nodeName); });
      break;
    case schema::Reply::EVENTS:
      writeArray(json, "events", reply.getEvents(), [&](auto e) { writeEvent(json, e); });
      break;
    case schema::Reply::BOUND:
      bound(json, reply.getBound(), environment);
      break;
    case schema::Reply::TRACE:
      writeTrace(json, reply.getTrace());
      break;
    case schema::Reply::DONE:
      json.field("done", view(reply.getDone()));
      break;
    default:
      if (writeAsNamed(json, reply)) break;
      return renderError(fail(ErrorCode::Internal, "the node gave an answer of another kind"));
  }
  json.endObject();
  return json.take();
}

std::string renderDone(std::string_view text) {
  JsonWriter json;
  beginOk(json);
  json.field("done", text).endObject();
  return json.take();
}

std::string renderWatching() {
  JsonWriter json;
  writeWatching(json);
  return json.take();
}

std::string renderEvent(schema::Event::Reader told) {
  JsonWriter json;
  writeTold(json, told);
  return json.take();
}

std::string renderHelp(Side side) {
  JsonWriter json;
  beginOk(json).key("commands").beginArray();
  for (const CommandRow& row : commandRows()) {
    if (!row.on(side)) continue;
    json.beginObject().field("usage", row.usage(side)).field("what", row.what);
    json.flag("changes", row.right == Right::Change).endObject();
  }
  json.endArray().endObject();
  return json.take();
}

}  // namespace qgpu
