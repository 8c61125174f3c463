#include "services/kubernetes/device_plugin/plugin.h"

#include <algorithm>
#include <filesystem>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/whole_file.h"
#include "services/base/kj_time.h"
#include "services/kubernetes/device_plugin/device_folder.h"
#include "services/kubernetes/device_plugin/device_ids.h"

namespace qgpu {
namespace {

constexpr auto kTick = 1 * kj::SECONDS;          // where inotify tells nothing
constexpr auto kRetry = 200 * kj::MILLISECONDS;  // of what kubelet or the manager refused
constexpr auto kCount = 1 * kj::SECONDS;         // where kubelet counts all that it was told
constexpr auto kCountSoon = 100 * kj::MILLISECONDS;
constexpr auto kBelieved = 2 * kj::SECONDS;  // after which a kubelet that can't say counts
constexpr Nanos kEndTick = millis(1);
constexpr Nanos kWordOnItsWay = seconds(5);    // of the API server, or of kubelet itself
constexpr const char* kSocketStart = "qgpu-";  // of our sockets beside kubelet's
constexpr const char* kSocketEnd = ".sock";
constexpr unsigned kForAll = 0644;

// For how long it may be right in a moment: kubelet or the manager is away, a task is about to end,
// or somebody's word is still on its way.
Nanos mayPassWithin(ErrorCode code, Nanos most) {
  switch (code) {
    case ErrorCode::Unavailable:
    case ErrorCode::Overloaded:
    case ErrorCode::NoRoom:
      return most;
    case ErrorCode::NotFound:
      return std::min(kWordOnItsWay, most);
    default:
      return Nanos(0);
  }
}

// Sockets of a plugin that was killed; nobody listens there.
void sweep(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kSocketStart) && name.ends_with(kSocketEnd)) {
      ::unlink(entry.path().c_str());
    }
  }
}

}  // namespace

struct Plugin::Starting {
  Resource resource;
  Ids ids;
  kj::TimePoint since;
};

Plugin::Plugin(Loop& loop, kj::Network& network, kj::Timer& timer, Log& log, PluginConfig config)
    : loop_(loop),
      timer_(timer),
      log_(log),
      config_(std::move(config)),
      files_(config_.files),
      placeholders_(files_.placeholders()),
      reconciler_(config_.times),
      calls_(loop),
      retired_(loop),
      link_(
          network, timer, ManagerLinkConfig{.socket = config_.manager},
          [this](const NodeNow& node) { onNode(node); },
          [this](const std::string& state) {
            log_.info("manager", {{"state", state}});
          }),
      tasks_(std::in_place, static_cast<kj::TaskSet::ErrorHandler&>(*this)) {}

Plugin::~Plugin() noexcept {
  folderWatch_.reset();
  if (folder_ >= 0) ::close(folder_);
}

void Plugin::start() {
  if (const Status published = files_.publish(); !published) {
    log_.error("library", {{"why", published.error().message}});
  }
  sweep(pluginsDir());
  ::unlink((config_.files.runDir + kWideNote).c_str());
  folder_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (folder_ < 0) fatal(ExitCode::Environment, "inotify_init1() fails");
  folderWatch_ = loop_.fds().watchLevel(folder_, EPOLLIN, [this](std::uint32_t) {
    alignas(inotify_event) char events[4096];
    while (::read(folder_, events, sizeof events) > 0) {
    }
    look();
  });
  link_.start();
  tasks_->add(lookAgain());
  tasks_->add(reconcileForEver());
  tasks_->add(countForEver());
}

void Plugin::stop(std::function<void()> over) {
  over_ = std::move(over);
  folderWatch_.reset();
  tasks_.reset();
  calls_.cancel();
  files_.withdraw();
  for (auto& [resource, served] : served_) {
    if (served.server) retired_.add(std::move(served.server));
  }
  waitForEnd();
}

void Plugin::waitForEnd() {
  if (calls_.underWay() == 0 && retired_.size() == 0) return over_();
  loop_.after(kEndTick, [this] { waitForEnd(); });
}

void Plugin::taskFailed(kj::Exception&& exception) {
  log_.error("unexpected", {{"why", exception.getDescription().cStr()}});
}

// --- what kubelet is told ---

void Plugin::onNode(const NodeNow& node) {
  if (!tasks_ || node_ == node) return;
  node_ = node;
  for (const Resource resource : kResources) {
    Served& served = served_[resource];
    if (served.server) serve(resource, served);
  }
  look();
  if (countNow_.get() != nullptr) countNow_->fulfill();
}

// Greedy devices are there on mixed nodes alone. A kubelet that knows them stays told: of none.
bool Plugin::wanted(Resource resource) const {
  if (!node_ || node_->cards.empty() || node_->claims) return false;
  return resource != Resource::Greedy || node_->mixed;
}

void Plugin::serve(Resource resource, Served& served) {
  const auto all = devicesOf(wanted(resource) ? node_->cards : std::vector<PluginCard>(), resource,
                             config_.memoryUnit);
  if (!all) {
    if (served.failure != all.error().message) {
      log_.error("devices", {{"why", all.error().message}});
    }
    served.failure = all.error().message;
    return;
  }
  if (!served.server) {
    const std::string socket = pluginsDir() + "/" + kSocketStart + resourceWord(resource) + "-" +
                               std::to_string(::getpid()) + "-" + std::to_string(++sockets_) +
                               kSocketEnd;
    auto opened = ResourceServer::open(loop_, *this, resource, socket);
    if (!opened) {
      if (served.failure != opened.error().message) {
        log_.warn("socket", {{"why", opened.error().message}});
      }
      served.failure = opened.error().message;
      return;
    }
    served.server = std::move(*opened);
    served.toldTo.reset();
  }
  served.server->publish(*all);
}

std::optional<Plugin::SocketId> Plugin::socketAt(const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return std::nullopt;
  return SocketId{file.st_dev, file.st_ino,
                  (seconds(file.st_ctim.tv_sec) + Nanos(file.st_ctim.tv_nsec)).value};
}

void Plugin::watchFolder() {
  if (folderWatched_) return;
  folderWatched_ =
      ::inotify_add_watch(folder_, pluginsDir().c_str(),
                          IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_ONLYDIR) >= 0;
}

// A kubelet that starts wipes the folder and makes its socket anew: what is ours is served again
// and told again. Cheap where nothing changed.
void Plugin::look() {
  if (!tasks_) return;
  watchFolder();
  const auto kubelet = socketAt(pluginsDir() + "/kubelet.sock");
  if (kubelet && kubelet != kubelet_) {
    log_.info("kubelet", {{"state", kubelet_ ? "started again" : "found"}});
    reconciler_.kubeletStarted(loop_.now());
  }
  if (kubelet) kubelet_ = kubelet;
  for (const Resource resource : kResources) {
    Served& served = served_[resource];
    if (served.server && !socketAt(served.server->socket())) {
      retired_.add(std::move(served.server));
    }
    if (!kubelet || (!served.server && !wanted(resource))) continue;
    if (!served.server) serve(resource, served);
    if (served.server && served.toldTo != kubelet && !served.telling) {
      announce(resource, served, *kubelet);
    }
  }
}

void Plugin::announce(Resource resource, Served& served, const SocketId& kubelet) {
  served.telling = true;
  const std::string socket = served.server->socket();
  const std::string name = config_.resourcePrefix + "/" + resourceName(resource);
  tasks_->add(
      calls_.announce(pluginsDir() + "/kubelet.sock", socket.substr(socket.rfind('/') + 1), name)
          .then([this, &served, kubelet, socket, name](Status told) -> kj::Promise<void> {
            served.telling = false;
            const bool same = served.server && served.server->socket() == socket;
            if (told && same) {
              served.toldTo = kubelet;
              served.toldAt = timer_.now();
              served.failure.clear();
              log_.info("registered", {{"resource", name}});
            } else if (!told && served.failure != told.error().message) {
              served.failure = told.error().message;
              log_.warn("not-registered", {{"resource", name}, {"why", served.failure}});
            }
            if (told && same && served.toldTo == kubelet_) return kj::READY_NOW;
            return timer_.afterDelay(kRetry).then([this] { look(); });
          }));
}

kj::Promise<void> Plugin::lookAgain() {
  look();
  return timer_.afterDelay(kTick).then([this] { return lookAgain(); });
}

// --- what kubelet counts ---

// What it counts is told again and again: a manager that starts knows nothing yet.
kj::Promise<void> Plugin::countForEver() {
  auto now = kj::newPromiseAndFulfiller<void>();
  countNow_ = kj::mv(now.fulfiller);
  return count()
      .then([this, now = kj::mv(now.promise)](bool all) mutable {
        return timer_.afterDelay(all ? kCount : kCountSoon).exclusiveJoin(kj::mv(now));
      })
      .then([this] { return countForEver(); });
}

std::vector<Resource> Plugin::wantedResources() const {
  std::vector<Resource> resources;
  for (const Resource resource : kResources) {
    if (wanted(resource)) resources.push_back(resource);
  }
  return resources;
}

// The cards of a kubelet that can't say what it counts, a while after it was told of them.
std::vector<std::string> Plugin::believed() const {
  for (const Resource resource : wantedResources()) {
    const auto served = served_.find(resource);
    const bool told = served != served_.end() && served->second.toldTo == kubelet_ &&
                      timer_.now() - served->second.toldAt >= kBelieved;
    if (!told || !kubelet_) return {};
  }
  std::vector<std::string> cards;
  for (const PluginCard& card : node_->cards) {
    if (card.healthy) cards.push_back(card.id);
  }
  return cards;
}

// True: all that there is to count, and the manager knows.
kj::Promise<bool> Plugin::count() {
  if (!node_) return false;
  return calls_.countedDevices(podResources(), config_.resourcePrefix)
      .then([this](Result<CountedDevices> counted) -> kj::Promise<bool> {
        std::vector<std::string> cards;
        if (counted) {
          cards = countedCards(node_->cards, wantedResources(), config_.memoryUnit, *counted);
        } else if (counted.error().code == ErrorCode::Unsupported) {
          cards = believed();
        }
        const auto healthy = static_cast<std::size_t>(
            std::count_if(node_->cards.begin(), node_->cards.end(),
                          [](const PluginCard& card) { return card.healthy; }));
        const bool all = cards.size() == healthy;
        return link_.tellCounted(cards).then([all](Status told) { return all && told.ok(); });
      });
}

// --- what kubelet asks ---

Result<PluginHandler::Ids> Plugin::prefer(Resource, const Ids& available, const Ids& mustInclude,
                                          std::size_t size) {
  return preferredDevices(available, mustInclude, size);
}

Result<ContainerSetup> Plugin::allocate(Resource resource, const Ids& ids) {
  if (ids.empty()) return fail(ErrorCode::InvalidArgument, "kubelet gives a container no device");
  for (const std::string& id : ids) {
    const std::string_view card = cardOfDevice(id);
    const auto& cards = node_->cards;
    const bool known = std::any_of(cards.begin(), cards.end(), [card](const PluginCard& one) {
      return cardWord(one.id) == card;
    });
    if (!known)
      return fail(ErrorCode::NotFound, "no card of this node has the device '" + id + "'");
  }
  const auto placeholder = placeholders_.prepare(resource, ids);
  if (!placeholder) return placeholder.error();
  auto setup = files_.setup(resource, *placeholder, *node_);
  if (setup) tellWide(setup->wide);
  return setup;
}

// Once, until it changes.
void Plugin::tellWide(const std::string& why) {
  if (why == wide_) return;
  wide_ = why;
  const std::string note = config_.files.runDir + kWideNote;
  if (why.empty()) {
    ::unlink(note.c_str());
    log_.info("card-nodes", {{"given", "those of a container's own cards"}});
    return;
  }
  log_.warn("card-nodes", {{"given", "those of all shared cards"}, {"why", why}});
  if (const Status noted = writeAnew(note, why + "\n", kForAll); !noted) {
    log_.warn("card-nodes", {{"why", noted.error().message}});
  }
}

kj::Promise<Status> Plugin::preStart(Resource resource, Ids ids) {
  ++starts_;
  ++startsUnderWay_;
  auto starting = kj::heap<Starting>(Starting{resource, std::move(ids), timer_.now()});
  return tryStart(kj::mv(starting)).attach(kj::defer([this] { --startsUnderWay_; }));
}

kj::Promise<Status> Plugin::tryStart(kj::Own<Starting> starting) {
  const Starting& what = *starting;
  return startOnce(what).then(
      [this, starting = kj::mv(starting)](Status status) mutable -> kj::Promise<Status> {
        const Nanos limit =
            status ? Nanos(0) : mayPassWithin(status.error().code, config_.startDeadline);
        const bool again = timer_.now() + kRetry < starting->since + toKj(limit);
        if (!again) {
          if (!status) log_.warn("container-refused", {{"why", status.error().message}});
          return kj::mv(status);
        }
        return timer_.afterDelay(kRetry).then(
            [this, starting = kj::mv(starting)]() mutable { return tryStart(kj::mv(starting)); });
      });
}

// `starting` lives until the promise is over.
kj::Promise<Status> Plugin::startOnce(const Starting& starting) {
  return calls_.podDevices(podResources(), config_.resourcePrefix)
      .then([this, &starting](Listed listed) -> kj::Promise<Status> {
        if (!listed) return Status(listed.error());
        const auto owner = ownerOf(*listed, starting.resource, starting.ids);
        if (!owner) return Status(owner.error());
        return link_.startTask(*owner, starting.resource)
            .then([this, &starting](Result<Grant> grant) -> Status {
              if (!grant) return grant.error();
              return give(starting, *grant);
            });
      });
}

Status Plugin::give(const Starting& starting, const Grant& grant) {
  const std::string placeholder =
      placeholders_.pathOf(Placeholders::keyOf(starting.resource, starting.ids));
  if (grant.task == 0) {  // what an earlier container left there is not this one's
    const auto emptied = placeholders_.prepare(starting.resource, starting.ids);
    if (!emptied) return emptied.error();
    return files_.giveCards(placeholder, node_->backend, {});
  }
  log_.info("container", {{"name", grant.container.text()}, {"task", grant.task}});
  const Status filled = placeholders_.fill(starting.resource, starting.ids, grant);
  return filled ? files_.giveCards(placeholder, node_->backend, grant.cards) : filled;
}

// --- what is over ---

kj::Promise<void> Plugin::reconcileForEver() {
  return timer_.afterDelay(toKj(config_.reconcile))
      .then([this] { return reconcile(); })
      .then([this] { return reconcileForEver(); });
}

// What is there is listed before kubelet is asked, so that nothing new looks forgotten; a round
// during which a container was started decides nothing.
kj::Promise<void> Plugin::reconcile() {
  const std::uint64_t starts = starts_;
  return link_.tasks().then([this,
                             starts](Result<std::vector<PodTask>> tasks) -> kj::Promise<void> {
    if (!tasks) return kj::READY_NOW;
    auto held = placeholders_.list();
    return calls_.podDevices(podResources(), config_.resourcePrefix)
        .then([this, starts, tasks = std::move(*tasks),
               held = std::move(held)](Listed listed) -> kj::Promise<void> {
          if (!listed || starts != starts_ || startsUnderWay_ != 0) return kj::READY_NOW;
          return carryOut(reconciler_.step(loop_.now(), listedKeys(*listed, held), held, tasks));
        });
  });
}

// A placeholder goes after its task: while it is there, the task is looked at again.
kj::Promise<void> Plugin::carryOut(ReconcilePlan plan) {
  kj::Promise<void> all = kj::READY_NOW;
  for (const std::uint64_t task : plan.end) {
    all = all.then([this, task] { return link_.endTask(task); }).then([this, task](Status ended) {
      if (ended)
        log_.info("container-over", {{"task", task}});
      else
        log_.warn("task-not-ended", {{"task", task}, {"why", ended.error().message}});
    });
  }
  return all.then([this, keys = std::move(plan.remove)] {
    for (const std::string& key : keys) placeholders_.remove(key);
  });
}

}  // namespace qgpu
