// The attach socket: the real server on a real loop in a folder of its own, spoken to over real
// sockets by this very process. Layout: a sequence of acts, each a byte that names it and its
// arguments; see Act. The server stays over inputs that it refused, and is made anew after one that
// it let in or that restarted it.
//
// Promises: C7 (whatever comes costs a bounded amount, attaches nobody who may not be, and leaves
// no descriptor and no connection behind), one whole answer for a hello, a welcome only for a live
// task's token and with three descriptors of which the gate page can't be written (HAZARDS 9). The
// first card suspends by `rm`, so that notes of channels are heard; its driver does all that it is
// asked.

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "services/attach/attach_port.h"
#include "services/base/process.h"
#include "tests/fuzz/target.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::fuzz {
namespace {

constexpr std::size_t kConnectionsMax = 4;  // of one input
constexpr std::size_t kRecordMax = 256;
constexpr int kActsMax = 32;
constexpr int kRestartsMax = 2;
constexpr int kTurns = 6;  // of the loop, until it is quiet
constexpr std::uint64_t kClosedTask = 3;
constexpr std::uint64_t kTasks = 4;  // the last is told only by an act

class Nobody final : public Actor {
 public:
  void handle(schema::Envelope::Reader, Turn&) override {}
};

std::string tokenOf(std::uint64_t task) {
  char token[QGPU_TOKEN_LEN + 1];
  std::snprintf(token, sizeof token, "%032llx", static_cast<unsigned long long>(task));
  return token;
}

class WillingDriver final : public suspend::Calls {
 public:
  void process(std::uint32_t, int) override {}
  void forget(std::uint32_t) override {}
  suspend::Outcome carryOut(const suspend::Order& order, suspend::SuspendMethod) override {
    require(
        !order.channels.empty() && order.channels.size() <= suspend::ChannelSuspender::kNamedMax,
        "what the driver is asked fits into a call");
    return {suspend::Answer::kDone, {}, ""};
  }
};

// The number of the lowest free descriptor: it stays the same where none leaks.
int lowestFree() {
  const Fd free(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  return free.get();
}

// The card loop, which stays, and the node on it, which nobody asks anything.
struct Machine {
  Machine() : node(dispatcher.add(nobody)), asNode(dispatcher, node) {}
  ~Machine() { dispatcher.remove(node); }
  Nobody nobody;
  ActorSystem system;
  Loop loop;
  Dispatcher dispatcher{system, loop};
  ActorId node;
  Outlet asNode;
};

// One life of a manager's attach room, with tasks 1 (ordinary), 2 (online, on two cards) and 3
// (closed).
class Manager {
 public:
  enum class Recovery : std::uint8_t { Over, UnderWay };

  Manager(Machine& machine, const std::string& folder, Recovery recovery)
      : machine_(machine), room_(machine.dispatcher.reserve()) {
    AttachPortConfig config;
    config.node = machine_.node;
    config.cards.resize(2);
    config.cards[0].id = "sim-0";
    config.cards[1].id = "sim-1";
    config.cards[0].suspend = schema::Suspend::RM;
    config.cards[0].method = suspend::SuspendMethod::kDisablePreempt;
    config.suspend.open = [](const Card&) -> Result<std::unique_ptr<suspend::Calls>> {
      return std::unique_ptr<suspend::Calls>(std::make_unique<WillingDriver>());
    };
    config.cardActors = {machine_.node, machine_.node};
    config.server.runDir = folder;
    config.server.incarnation = 10;
    config.listener.comersAtOnce = config.listener.arrivalsAtOnce =
        1'000'000;  // all inputs are one uid
    config.server.recovery = recovery == Recovery::Over ? Nanos(0) : seconds(3600);
    port_ = std::make_unique<AttachPort>(machine_.dispatcher, room_, std::move(config));
    require(port_->listen().ok(), "a socket in a folder of our own");
    tellIncarnation(server().incarnation());
    for (std::uint64_t task = 1; task <= kClosedTask; ++task) tellTask(task);
    tellClosed(kClosedTask);
    turn();
  }

  void turn() {
    for (int i = 0; i < kTurns; ++i) machine_.loop.poll();
  }
  void tellTask(std::uint64_t task) {
    machine_.asNode.sendUrgent(room_, [&](schema::Envelope::Builder message) {
      auto known = message.initTaskKnown();
      known.setTask(task);
      known.setToken(tokenOf(task));
      known.setClass(task == 2 ? schema::TaskClass::ONLINE : schema::TaskClass::ORDINARY);
      known.setQuotaBytes(1 << 30);
      auto cards = known.initCards(task == 2 ? 2 : 1);
      for (kj::uint i = 0; i < cards.size(); ++i) cards.set(i, i);
      known.setActor(static_cast<std::uint32_t>(machine_.node));
    });
  }
  void tellClosed(std::uint64_t task) {
    machine_.asNode.sendUrgent(
        room_, [&](schema::Envelope::Builder message) { message.initTaskClosed().setTask(task); });
  }
  void tellOrder(std::uint64_t task, bool open) {
    machine_.asNode.sendUrgent(room_, [&](schema::Envelope::Builder message) {
      auto order = message.initGateOrder();
      order.setTask(task);
      order.setEpoch(++epoch_);
      order.setOrder(open ? schema::GateOrder::Order::OPEN : schema::GateOrder::Order::HOLD);
    });
  }
  void tellIncarnation(std::uint32_t value) {
    machine_.asNode.sendUrgent(room_, [&](schema::Envelope::Builder message) {
      message.initIncarnationChosen().setValue(value);
    });
  }
  const AttachServer& server() const { return port_->server(); }
  const AttachListener& listener() const { return port_->listener(); }
  // Connections that said hello and have no answer yet.
  std::size_t waiting() const { return listener().waiting() + server().waitingHellos(); }

 private:
  Machine& machine_;
  const ActorId room_;
  std::uint32_t epoch_ = 0;
  std::unique_ptr<AttachPort> port_;
};

// The manager that is there for every input, and its folder, which goes with the process.
struct Room {
  Room() { open(); }
  void open() {
    manager.reset();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::filesystem::remove_all(entry.path());
    }
    restart(Manager::Recovery::Over);
  }
  void restart(Manager::Recovery recovery) {
    manager.reset();
    manager = std::make_unique<Manager>(machine, folder, recovery);
  }
  const testing::TempFolder made{"fuzz", {.parent = testing::memoryFolder()}};
  const std::string folder = made.path();
  Machine machine;
  std::unique_ptr<Manager> manager;
};

struct Guest {
  Fd connection;
  bool said = false;  // a hello that could be let in
  bool answered = false;
};

class Game {
 public:
  explicit Game(Room& room)
      : room_(room), manager_(room.manager), before_(manager_->server().counters()) {}

  void play(Input in) {
    for (int acts = 0; acts < kActsMax && !in.empty(); ++acts) act(in);
    for (Guest& guest : guests_) listen(guest);
    guests_.clear();
    manager_->turn();
    // Who waits for the recovery is looked at again when that or its time is over.
    require(manager_->listener().silent() == 0 && manager_->waiting() <= said_,
            "C7: a connection ends with its peer");
  }

  // Whether the manager is as it was before this input.
  bool unchanged() const {
    const AttachCounters& now = manager_->server().counters();
    return !moved_ && now.attached == before_.attached && now.reattached == before_.reattached &&
           manager_->listener().silent() + manager_->waiting() == 0;
  }

 private:
  enum class Act : std::uint8_t {
    Connect,
    Hello,
    Record,
    Turn,
    Leave,
    Restart,
    Known,
    Closed,
    Incarnation,
    Scribble,
    Note,
    Hold,
    Count
  };

  void act(Input& in) {
    switch (static_cast<Act>(in.byte() % static_cast<std::uint8_t>(Act::Count))) {
      case Act::Connect:
        return connect();
      case Act::Hello:
        return say(in, helloFrom(in));
      case Act::Record:
        return say(in, in.text(in.byte() % kRecordMax));
      case Act::Turn:
        return turn();
      case Act::Leave:
        if (!guests_.empty()) guests_.erase(guests_.begin() + in.byte() % guestCount());
        return;
      case Act::Restart:
        return restart(in.flag());
      case Act::Known:
        return news([&] { manager_->tellTask(1 + in.byte() % kTasks); });
      case Act::Closed:
        return news([&] { manager_->tellClosed(in.byte() % 5U); });
      case Act::Incarnation:
        return news([&] { manager_->tellIncarnation(in.number<std::uint32_t>()); });
      case Act::Scribble:
        return scribble(in);
      case Act::Note:
        return say(in, noteFrom(in));
      case Act::Hold:
        return news([&] { manager_->tellOrder(1 + in.byte() % kTasks, in.flag()); });
      case Act::Count:
        return;
    }
  }

  std::ptrdiff_t guestCount() const { return static_cast<std::ptrdiff_t>(guests_.size()); }

  void connect() {
    if (guests_.size() == kConnectionsMax) return;
    Guest guest;
    guest.connection.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = room_.folder + "/attach.sock";
    std::memcpy(address.sun_path, path.c_str(), path.size());
    const int rc = ::connect(guest.connection.get(), reinterpret_cast<const sockaddr*>(&address),
                             sizeof address);
    require(rc == 0, "the socket takes a connection");
    guests_.push_back(std::move(guest));
  }

  // A hello that is right, but for what the input changes in it.
  std::string helloFrom(Input& in) {
    static const std::uint64_t start =
        processStart(static_cast<std::uint32_t>(::getpid())).value_or(0);
    qgpu_hello hello{};
    hello.magic = QGPU_ATTACH_MAGIC;
    hello.version = QGPU_ABI_VERSION;
    hello.pid = static_cast<std::uint32_t>(::getpid());
    hello.start_time = start;
    const std::uint8_t flags = in.byte();
    std::memcpy(hello.token, tokenOf(in.byte() % 5U).data(), QGPU_TOKEN_LEN);
    hello.reattach = flags & 1U;
    if ((flags & 2U) != 0) hello.slot = in.byte();
    if ((flags & 4U) != 0) hello.incarnation_seen = in.number<std::uint32_t>();
    if ((flags & 8U) != 0) hello.start_time = in.byte();
    if ((flags & 16U) != 0) hello.freeze_signal = in.number<std::uint32_t>();
    if ((flags & 32U) != 0) hello.pid = in.number<std::uint32_t>();
    std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
    if ((flags & 64U) != 0) bytes[in.byte() % bytes.size()] ^= static_cast<char>(in.byte());
    if ((flags & 128U) != 0) bytes.resize(in.byte());
    return bytes;
  }

  // A note that is right, but for what the input changes in it. Few names, so that they meet.
  static std::string noteFrom(Input& in) {
    qgpu_note note{};
    note.magic = QGPU_NOTE_MAGIC;
    note.what = in.byte() % 6;
    note.client = in.byte() % 3;
    note.object = in.byte() % 8;
    note.group = in.byte() % 3;
    note.engine = in.byte();
    note.device = in.flag() ? ~0U : in.byte();
    note.fd = static_cast<std::int8_t>(in.byte());
    std::string bytes(reinterpret_cast<const char*>(&note), sizeof note);
    if (in.byte() == 0) bytes[in.byte() % bytes.size()] ^= static_cast<char>(in.byte());
    return bytes;
  }

  // Descriptors that come along: our page, the gate page, somebody else's, or none of ours.
  std::vector<Fd> descriptors(Input& in) {
    std::vector<Fd> fds(in.byte() % 7);
    for (Fd& fd : fds) {
      const std::uint8_t kind = in.byte() % 5;
      if (kind == 0 && report_)
        fd.reset(::fcntl(report_.get(), F_DUPFD_CLOEXEC, 0));
      else if (kind == 1 && gate_)
        fd.reset(::fcntl(gate_.get(), F_DUPFD_CLOEXEC, 0));
      else if (kind == 2)
        fd.reset(::memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      else if (kind == 3)
        fd.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      else
        fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return fds;
  }

  void say(Input& in, const std::string& bytes) {
    const std::vector<Fd> fds = descriptors(in);
    if (guests_.empty()) connect();
    Guest& guest = guests_[in.byte() % guests_.size()];
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      for (std::size_t i = 0; i < fds.size(); ++i) {
        const int fd = fds[i].get();
        std::memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
      }
    }
    static_cast<void>(::sendmsg(guest.connection.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
    qgpu_hello hello{};
    if (bytes.size() != sizeof hello) return;
    std::memcpy(&hello, bytes.data(), sizeof hello);
    if (hello.magic != QGPU_ATTACH_MAGIC || hello.version == 0) return;
    ++said_;
    guest.said = guest.said || isTokenOfATask(std::string(hello.token, QGPU_TOKEN_LEN));
  }

  static bool isTokenOfATask(const std::string& token) {
    for (std::uint64_t task = 1; task <= kTasks; ++task) {
      if (token == tokenOf(task)) return true;
    }
    return false;
  }

  void turn() {
    manager_->turn();
    for (Guest& guest : guests_) listen(guest);
  }

  void listen(Guest& guest) {
    qgpu_welcome welcome{};
    iovec part{&welcome, sizeof welcome};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(guest.connection.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) return;
    require(n == static_cast<ssize_t>(sizeof welcome) && !guest.answered, "one whole answer");
    guest.answered = true;
    require(welcome.magic == QGPU_ATTACH_MAGIC && welcome.version == QGPU_ABI_VERSION,
            "an answer says what it is");
    require(std::memchr(welcome.reason, 0, sizeof welcome.reason) != nullptr, "a reason ends");
    const cmsghdr* c = CMSG_FIRSTHDR(&message);
    if (welcome.refused != 0) {
      require(c == nullptr && welcome.reason[0] != 0, "a refusal has a reason and no pages");
      return;
    }
    require(guest.said, "C7: a welcome is for who said a task's token");
    require(c != nullptr && c->cmsg_len == CMSG_LEN(3 * sizeof(int)), "three descriptors");
    int fds[3];
    std::memcpy(fds, CMSG_DATA(c), sizeof fds);
    gate_.reset(fds[0]);
    report_.reset(fds[1]);
    const Fd bell(fds[2]);
    require((::fcntl(gate_.get(), F_GETFL) & O_ACCMODE) == O_RDONLY, "HAZARDS 9: read-only");
    require(welcome.slot < QGPU_SLOTS && welcome.cards >= 1 && welcome.cards <= 2,
            "a welcome makes sense");
  }

  // The report page of a task that let us in, and its doorbell is left alone.
  void scribble(Input& in) {
    const std::size_t at = in.number<std::uint16_t>() % kReportPageBytes;
    const auto bytes = in.bytes(in.byte());
    if (!report_) return;
    static_cast<void>(::pwrite(report_.get(), bytes.data(),
                               std::min(bytes.size(), kReportPageBytes - at),
                               static_cast<off_t>(at)));
  }

  void restart(bool recovering) {
    if (restarts_ == kRestartsMax) return;
    ++restarts_;
    moved_ = true;
    guests_.clear();
    room_.restart(recovering ? Manager::Recovery::UnderWay : Manager::Recovery::Over);
  }

  template <typename Tell>
  void news(Tell&& tell) {
    moved_ = true;
    tell();
  }

  Room& room_;
  std::unique_ptr<Manager>& manager_;
  const AttachCounters before_;
  std::vector<Guest> guests_;
  Fd gate_, report_;
  std::size_t said_ = 0;  // whole hellos
  int restarts_ = 0;
  bool moved_ = false;
};

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu;
  using namespace qgpu::fuzz;
  static Room room;
  const int free = lowestFree();
  bool unchanged = false;
  {
    Game game(room);
    game.play(Input(data, size));
    unchanged = game.unchanged();
  }
  if (unchanged) {
    // What may wait to be closed is closed on a thread of its own; what an earlier input left there
    // as well, so that the lowest may be lower now.
    const Nanos until = monotonicNow() + seconds(10);
    while (lowestFree() > free && monotonicNow() < until) std::this_thread::yield();
    require(lowestFree() <= free, "C7: no descriptor is left behind");
  } else {
    room.open();
  }
  return 0;
}
