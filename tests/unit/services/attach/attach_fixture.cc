#include "tests/unit/services/attach/attach_fixture.h"

#include <cstring>
#include <optional>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <time.h>
#include <utility>

namespace qgpu {
namespace {

using Which = schema::Envelope::Which;
constexpr Nanos kPatience = seconds(20);  // a condition that takes longer never comes

// Begins the tokens of this run and its children: managers of other runs look at all processes of
// the machine for theirs.
const unsigned long long kOfThisRun = [] {
  unsigned long long any = 0;
  EXPECT_EQ(::getrandom(&any, sizeof any, 0), static_cast<ssize_t>(sizeof any));
  return any;
}();

Nanos nanos(std::uint64_t ns) {
  return Nanos(static_cast<std::int64_t>(ns));
}

PagedHeard readPaged(schema::Paged::Reader paged) {
  PagedHeard heard{paged.getFirmBytes(), paged.getHeldBytes(),  paged.getOutBytes(),
                   paged.getMoreBytes(), paged.getLimitOrder(), {}};
  for (const auto each : paged.getProcesses()) {
    heard.processes.push_back({each.getProcess(), each.getEpoch(), each.getAnswer(),
                               each.getOutBytes(), each.getNeedBytes(), each.getNeedSinceNs()});
  }
  return heard;
}

std::optional<Heard> heardOfMemory(schema::Envelope::Reader message, Nanos now) {
  Heard heard{.which = message.which(), .paged = {}, .text = {}, .heardAt = now};
  if (message.isPaged()) {
    heard.task = message.getPaged().getTask();
    heard.paged = readPaged(message.getPaged());
  } else if (message.isMemoryRefused()) {
    heard.task = message.getMemoryRefused().getTask();
    heard.at = nanos(message.getMemoryRefused().getAtNs());
  } else {
    return std::nullopt;
  }
  return heard;
}

}  // namespace

// --- Recorder ---

void Recorder::handle(schema::Envelope::Reader message, Turn& turn) {
  if (const auto memory = heardOfMemory(message, turn.now())) return heard.push_back(*memory);
  Heard heardNow{.which = message.which(), .paged = {}, .text = {}, .heardAt = turn.now()};
  const auto stamp = [&](auto reader, std::uint64_t at) {
    heardNow.task = reader.getTask();
    heardNow.at = nanos(at);
  };
  switch (message.which()) {
    case Which::BUSY:
      stamp(message.getBusy(), message.getBusy().getSinceNs());
      break;
    case Which::QUIET:
      stamp(message.getQuiet(), message.getQuiet().getSinceNs());
      break;
    case Which::SETTLED:
      stamp(message.getSettled(), message.getSettled().getAtNs());
      heardNow.epoch = message.getSettled().getEpoch();
      heardNow.how = message.getSettled().getHow();
      break;
    case Which::OWNER_DIED:
      stamp(message.getOwnerDied(), message.getOwnerDied().getAtNs());
      break;
    case Which::RETIRED_LATE:
      stamp(message.getRetiredLate(), message.getRetiredLate().getAtNs());
      break;
    case Which::GATE_DONE:
      stamp(message.getGateDone(), message.getGateDone().getStoredNs());
      heardNow.epoch = message.getGateDone().getEpoch();
      break;
    case Which::PROCESS_ATTACHED:
      stamp(message.getProcessAttached(), 0);
      heardNow.pid = message.getProcessAttached().getPid();
      heardNow.slot = message.getProcessAttached().getSlot();
      break;
    case Which::PROCESS_GONE:
      stamp(message.getProcessGone(), 0);
      heardNow.pid = message.getProcessGone().getPid();
      heardNow.slot = message.getProcessGone().getSlot();
      heardNow.last = message.getProcessGone().getLast();
      break;
    case Which::USED:
      stamp(message.getUsed(), 0);
      heardNow.memBytes = message.getUsed().getMemBytes();
      heardNow.launches = message.getUsed().getLaunches();
      heardNow.text = message.getUsed().getFault();
      break;
    case Which::GATE_OPENED:
      stamp(message.getGateOpened(), 0);
      heardNow.text = message.getGateOpened().getFailed();
      break;
    case Which::INCARNATION_SEEN:
      heardNow.incarnation = message.getIncarnationSeen().getValue();
      break;
    case Which::EVENT_TOLD:
      stamp(message.getEventTold(), 0);
      heardNow.text = message.getEventTold().getText();
      break;
    case Which::SUSPEND_LOST:
      heardNow.text = message.getSuspendLost().getWhy();
      break;
    case Which::OWNER_GONE:
      stamp(message.getOwnerGone(), 0);
      break;
    default:
      break;
  }
  heard.push_back(heardNow);
}

std::size_t Recorder::count(Which which, std::uint64_t task) const {
  std::size_t n = 0;
  for (const Heard& one : heard) n += one.which == which && one.task == task ? 1 : 0;
  return n;
}

const Heard* Recorder::last(Which which, std::uint64_t task) const {
  for (auto it = heard.rbegin(); it != heard.rend(); ++it) {
    if (it->which == which && it->task == task) return &*it;
  }
  return nullptr;
}

// --- AttachTest ---

// One life of a manager: system, loop, dispatcher and the three addresses.
struct AttachTest::Machine {
  explicit Machine(AttachTest& test)
      : dispatcher(system, loop),
        node(dispatcher.add(test.node)),
        card(dispatcher.add(test.card)),
        task(dispatcher.add(test.task)),
        room(dispatcher.reserve()),
        asNode(dispatcher, node),
        asCard(dispatcher, card) {}
  ~Machine() {
    dispatcher.remove(node);
    dispatcher.remove(card);
    dispatcher.remove(task);
  }
  ActorSystem system;
  Loop loop;
  Loop listenerLoop;
  Dispatcher dispatcher;
  ActorId node, card, task, room;
  Outlet asNode, asCard;
};

AttachTest::AttachTest() {
  serverOptions.runDir = folder();
  serverOptions.recovery = millis(500);
  listenerOptions.comersAtOnce = 1'000'000;  // all tests together are one uid
}

AttachTest::~AttachTest() {
  stop();
}

void AttachTest::start(schema::Suspend suspend) {
  stop();
  machine_ = std::make_unique<Machine>(*this);
  AttachPortConfig config;
  config.node = machine_->node;
  config.cards.resize(1);
  config.cards[0].id = cardId;
  config.cards[0].backend = backend;
  config.cards[0].platform = "imaginary";
  config.cards[0].model = std::string(QGPU_MODEL_LEN - 1, 'm') + "odel";
  config.cards[0].suspend = suspend;
  if (suspend == schema::Suspend::RM) config.cards[0].method = suspend::SuspendMethod::kDisable;
  config.cards.resize(layoutsSeen.size(), config.cards[0]);
  for (std::size_t i = 0; i < layoutsSeen.size(); i++) config.cards[i].layoutSeen = layoutsSeen[i];
  config.cardActors.assign(layoutsSeen.size(), machine_->card);
  config.server = serverOptions;
  config.listener = listenerOptions;
  if (doorApart) config.listenerLoop = &machine_->listenerLoop;
  config.gate = gateOptions;
  config.suspend = suspendOptions;
  config.unheld = unheldOptions;
  room_ = std::make_unique<AttachPort>(machine_->dispatcher, machine_->room, std::move(config));
  const Status listening = room_->listen();
  ASSERT_TRUE(listening.ok()) << listening.error().message;
  if (nodeStarts) tellIncarnation(serverOptions.incarnation);
  serverOptions.incarnation++;
}

void AttachTest::stop() {
  room_.reset();
  machine_.reset();
}

std::string AttachTest::tokenOf(std::uint64_t id) {
  char token[QGPU_TOKEN_LEN + 1];
  std::snprintf(token, sizeof token, "%016llx%016llx", kOfThisRun,
                static_cast<unsigned long long>(id));
  return token;
}

void AttachTest::tellTask(std::uint64_t id, schema::TaskClass taskClass, Bytes quota,
                          std::uint32_t ownerPid, std::uint64_t ownerStart) {
  machine_->asNode.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    auto known = message.initTaskKnown();
    known.setTask(id);
    known.setToken(tokenOf(id));
    known.setClass(taskClass);
    known.setQuotaBytes(static_cast<std::uint64_t>(quota.value));
    known.setPageableBytes(static_cast<std::uint64_t>(pageableOfTasks.value));
    known.setOvercommitted(pageableOfTasks > Bytes(0));
    auto cards = known.initCards(cardsOfTasks);
    for (unsigned i = 0; i < cards.size(); ++i) {
      cards.set(i, i % static_cast<unsigned>(layoutsSeen.size()));
    }
    known.setOwnerPid(ownerPid);
    known.setOwnerStart(ownerStart);
    known.setActor(static_cast<std::uint32_t>(machine_->task));
    auto stored = known.initStored();
    stored.setId(id);
    stored.setToken(tokenOf(id));
  });
}

void AttachTest::bind(std::uint64_t id, schema::TaskClass taskClass, Bytes quota) {
  tellTask(id, taskClass, quota);
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, id) != 0; }));
  ASSERT_EQ(node.last(Which::GATE_OPENED, id)->text, "");
}

void AttachTest::close(std::uint64_t id, bool kill) {
  machine_->asNode.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    auto closed = message.initTaskClosed();
    closed.setTask(id);
    closed.setKill(kill);
  });
}

void AttachTest::watch(std::uint64_t id) {
  machine_->asCard.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    message.initPagingOrder().setTask(id);
  });
}

void AttachTest::tellWord(std::uint64_t id, paging::Word word) {
  machine_->asCard.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    auto order = message.initPagingOrder();
    order.setTask(id);
    order.setWhat(schema::PagingOrder::What::WORD);
    order.setEpoch(word.epoch);
    order.setPhase(static_cast<std::uint32_t>(word.phase));
    order.setPermille(word.permille);
  });
}

void AttachTest::tellLimit(std::uint64_t id, Bytes limit, std::uint64_t number) {
  machine_->asCard.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    auto order = message.initPagingOrder();
    order.setTask(id);
    order.setWhat(schema::PagingOrder::What::LIMIT);
    order.setLimitBytes(static_cast<std::uint64_t>(limit.value));
    order.setOrder(number);
  });
}

std::uint32_t AttachTest::order(std::uint64_t id, schema::GateOrder::Order what, bool notify,
                                bool contended, Nanos cause, Nanos patience) {
  const std::uint32_t epoch = ++epoch_;
  machine_->asCard.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    auto order = message.initGateOrder();
    order.setTask(id);
    order.setEpoch(epoch);
    order.setOrder(what);
    order.setNotify(notify);
    order.setContended(contended);
    order.setCauseNs(static_cast<std::uint64_t>(cause.value));
    order.setPatienceNs(static_cast<std::uint64_t>(patience.value));
  });
  return epoch;
}

bool AttachTest::until(const std::function<bool()>& condition) {
  Loop& loop = machine_->loop;
  const Nanos limit = loop.now() + kPatience;
  while (!condition()) {
    if (loop.now() > limit) return false;
    // What another process does to a page rings nothing, so the loop turns at least each 200 us.
    const Loop::TimerKey turn = loop.after(micros(200), [] {});
    uv_run(&loop.uv(), UV_RUN_ONCE);
    loop.cancel(turn);
    machine_->listenerLoop.poll();
  }
  return true;
}

void AttachTest::turns(int count) {
  int done = 0;
  until([&] { return done++ >= count; });
}

void AttachTest::turnClient() {
  machine_->listenerLoop.poll();
}

Nanos AttachTest::cardLoopTimeDuring(const std::function<void()>& meanwhile) {
  timespec used{};
  std::thread thread([&] {
    machine_->loop.run();
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  });
  meanwhile();
  machine_->loop.stop();
  thread.join();
  return seconds(used.tv_sec) + Nanos(used.tv_nsec);
}

Fd AttachTest::connectRaw() const {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket().data(), socket().size());
  const int rc = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  return rc == 0 ? std::move(fd) : Fd();
}

Result<GuestClient> AttachTest::attachSelf(std::uint64_t id) {
  return attachSelf(GuestClient::hello(tokenOf(id)));
}

Result<GuestClient> AttachTest::attachSelf(const qgpu_hello& hello, int page, bool obeysAtOnce) {
  Result<GuestClient> client = GuestClient::begin(socket(), hello, page);
  if (!client) return client;
  if (!obeysAtOnce) client->obeyLater();
  Status finished = fail(ErrorCode::Unavailable, "no answer");
  until([&] {
    finished = client->finish(0);
    return finished.ok() || finished.error().message != "no answer";
  });
  if (!finished) return finished.error();
  return client;
}

Result<GuestClient> AttachTest::returnSelf(std::uint64_t id, const GuestClient& client,
                                           bool obeysAtOnce) {
  qgpu_hello hello = GuestClient::hello(tokenOf(id));
  hello.reattach = 1;
  hello.slot = client.welcome().slot;
  hello.incarnation_seen = client.welcome().incarnation;
  return attachSelf(hello, client.reportFd(), obeysAtOnce);
}

void AttachTest::tellIncarnation(std::uint32_t value) {
  machine_->asNode.sendUrgent(machine_->room, [&](schema::Envelope::Builder message) {
    message.initIncarnationChosen().setValue(value);
  });
}

}  // namespace qgpu
