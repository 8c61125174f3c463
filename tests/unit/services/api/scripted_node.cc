#include "tests/unit/services/api/scripted_node.h"

#include <utility>

#include "actors/base/latency_times.h"
#include "services/api/commands/schema_names.h"

namespace qgpu::testing {

void ScriptedNode::remember(schema::Request::Reader request) {
  Asked a;
  a.which = request.which();
  a.uid = request.getPeerUid();
  a.pid = request.getPeerPid();
  a.mayChange = request.getMayChange();
  switch (a.which) {
    case schema::Request::EVENTS:
      a.number = request.getEvents();
      break;
    case schema::Request::UNBIND:
      a.number = request.getUnbind();
      break;
    case schema::Request::EVICT:
      a.number = request.getEvict();
      break;
    case schema::Request::WATCH:
      a.number = request.getWatch() ? 1 : 0;
      break;
    case schema::Request::CORDON:
      a.text = view(request.getCordon());
      break;
    case schema::Request::UNCORDON:
      a.text = view(request.getUncordon());
      break;
    case schema::Request::DRAIN:
      a.text = view(request.getDrain());
      break;
    case schema::Request::LOG_LEVEL:
      a.text = view(request.getLogLevel());
      break;
    case schema::Request::POLICY:
      a.text = view(request.getPolicy().getCard());
      a.number = static_cast<std::uint64_t>(request.getPolicy().getPolicy());
      break;
    case schema::Request::TRACE:
      a.text = view(request.getTrace().getCard());
      a.number = request.getTrace().getSince();
      break;
    case schema::Request::BIND: {
      const auto spec = request.getBind();
      a.text = view(spec.getName());
      a.requestId = view(spec.getRequestId());
      a.ownerPid = spec.getOwnerPid();
      a.ownerStart = spec.getOwnerStart();
      a.ownerUid = spec.getOwnerUid();
      a.sharePermille = spec.getSharePermille();
      a.memBytes = spec.getMemBytes();
      break;
    }
    default:
      break;
  }
  asked.push_back(std::move(a));
}

void ScriptedNode::answer(schema::Request::Reader request, schema::Reply::Builder reply) {
  remember(request);
  reply.setCorr(request.getCorr());
  if (request.isBind() && failBind) failNext = std::exchange(failBind, std::nullopt);
  if (failNext) {
    auto failed = reply.initFailed();
    failed.setCode(errorName(failNext->code));
    failed.setMessage(ptr(failNext->message));
    failNext.reset();
    return;
  }
  switch (request.which()) {
    case schema::Request::INFO:
      return fillInfo(reply.initInfo());
    case schema::Request::CARDS:
      return fillCards(reply);
    case schema::Request::TASKS:
      return fillTasks(reply);
    case schema::Request::EVENTS: {
      std::vector<std::uint64_t> told;
      for (const std::uint64_t seq : eventSeqs) {
        if (seq > request.getEvents() && told.size() < eventsPerReply) told.push_back(seq);
      }
      auto events = reply.initEvents(static_cast<kj::uint>(told.size()));
      for (kj::uint i = 0; i < told.size(); ++i) fillEvent(events[i], told[i]);
      return;
    }
    case schema::Request::TRACE:
      return fillTrace(reply.initTrace());
    case schema::Request::BIND: {
      auto bound = reply.initBound();
      bound.setTask(7);
      bound.setToken("0123456789abcdef0123456789abcdef");
      bound.initCards(1).set(0, card);
      bound.setAttachSocket(ptr(attachSocket));
      return;
    }
    default:
      reply.setDone("done");
      return;
  }
}

// A slice of task 7, and what is of no task.
void ScriptedNode::fillTrace(schema::CardTrace::Builder trace) {
  trace.setCard("sim-0");
  trace.setNowNs(traceNowNs);
  traceNowNs += 1'000'000'000;
  trace.setFirst(41);
  trace.setNewest(42);
  trace.setLost(3);
  auto entries = trace.initEntries(2);
  entries[0].setKind(schema::TraceKind::RUNNING);
  entries[0].setTask(7);
  entries[0].setAtNs(5'000'000'000);
  entries[1].setKind(schema::TraceKind::RELEASED);
  entries[1].setAtNs(6'000'000'000);
  entries[1].setSinceNs(5'900'000'000);
  auto task = trace.initTasks(1)[0];
  task.setId(7);
  task.setName(taskName);
  task.setClass(schema::TaskClass::OFFLINE);
}

void ScriptedNode::fillEvent(schema::Event::Builder event, std::uint64_t seq) const {
  event.setSeq(seq);
  event.setUnixMs(1'700'000'000'000 + seq);
  event.setKind(eventKind);
  event.setTask(7);
  event.setCard("sim-0");
  event.setText("bound");
  event.setActor(eventActor);
}

void ScriptedNode::fillInfo(schema::NodeInfo::Builder info) const {
  info.setName("here");
  info.setVersion("0.1.0");
  info.setPid(4711);
  info.setUptimeNs(3'000'000'000);
  info.setCards(2);
  info.setTasks(1);
  info.setPolicy(schema::Policy::FIXED_SHARE);
  info.setRealtime("fifo");
  info.setStorage(ptr(storage));
  info.setCluster(ptr(cluster));
  info.setOnlineIdleNs(100'000'000);
  info.setSliceMinNs(2'000'000);
  info.setSliceMaxNs(30'000'000);
}

void ScriptedNode::fillCards(schema::Reply::Builder reply) const {
  auto cards = reply.initCards(2);
  for (kj::uint i = 0; i < 2; ++i) {
    auto info = cards[i].initInfo();
    const std::string id = "sim-" + std::to_string(i);
    info.setId(ptr(id));
    info.setIndex(i);
    info.setModel("sim \"16\"");
    info.setBackend("sim");
    info.setMemBytes(16ULL << 30U);
    info.setSuspend(schema::Suspend::FREEZE);
    if (i == 1) info.setSuspendWhy("a \"reason\"");
    if (i == 1) info.setMemoryCounted("at CUDA's calls");
    info.setCounting(i == 0 ? schema::Counting::DRIVER : schema::Counting::DRIVER_UNKNOWN);
    cards[i].setPolicy(schema::Policy::FIXED_SHARE);
    cards[i].setTenancy(i == 0 ? schema::Tenancy::ORDINARY : schema::Tenancy::FREE);
    cards[i].setState(i == 0 ? schema::CardState::READY : schema::CardState::CORDONED);
    cards[i].setTasks(1 - i);
    cards[i].setMemBound((1 - i) * (2ULL << 30U));
    cards[i].setShareBound((1 - i) * 300);
    cards[i].setUsedNs(1'500'000'000);
    cards[i].setHolds(3);
    cards[i].setPreemptP50Ns(40'000);
    cards[i].setPreemptP99Ns(90'000);
    cards[i].setPreemptCount(200);
    cards[i].setSettleP99Ns(90'000);
    auto times = cards[i].initPreemptTimes();
    times.setSumNs(2'010'000'000);
    auto counts = times.initCounts(static_cast<unsigned>(kLatencyBounds.size()) + 1);
    counts.set(2, 150);
    counts.set(5, 49);
    counts.set(static_cast<unsigned>(kLatencyBounds.size()), 1);
  }
}

void ScriptedNode::fillTasks(schema::Reply::Builder reply) const {
  auto tasks = reply.initTasks(1);
  tasks[0].setId(7);
  tasks[0].setCard("sim-0");
  tasks[0].setState(schema::TaskState::RUNNING);
  tasks[0].setNote(ptr(note));
  auto spec = tasks[0].initSpec();
  spec.setName(ptr(taskName));
  spec.setClass(schema::TaskClass::ORDINARY);
  spec.setMemBytes(2ULL << 30U);
  spec.setSharePermille(300);
  auto use = tasks[0].initUse();
  use.setMemBytes(1ULL << 30U);
  use.setProcesses(2);
  use.setGpuNs(9'007'199'254'740'993);  // not a double
  use.setUsedNs(1'250'000'001);
  use.setLaunches(42);
  use.setTurns(5);
}

SendResult ScriptedSink::send(Build build) {
  if (full) return SendResult::Refused;
  auto message = kj::heap<capnp::MallocMessageBuilder>();
  build(message->initRoot<schema::Envelope>());
  auto work = kj::evalLater([this, message = kj::mv(message)]() mutable {
    capnp::MallocMessageBuilder reply;
    node_.answer(message->getRoot<schema::Envelope>().getRequest().asReader(),
                 reply.initRoot<schema::Reply>());
    if (!silent) actor->onReply(reply.getRoot<schema::Reply>().asReader());
  });
  tasks_.add(kj::mv(work));
  return SendResult::Sent;
}

void ScriptedSink::tellEvent(std::uint64_t seq) {
  capnp::MallocMessageBuilder message;
  node_.fillEvent(message.initRoot<schema::Event>(), seq);
  actor->onEvent(message.getRoot<schema::Event>().asReader());
}

}  // namespace qgpu::testing
