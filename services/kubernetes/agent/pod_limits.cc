#include "services/kubernetes/agent/pod_limits.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "services/base/kj_time.h"
#include "services/base/text.h"
#include "services/kubernetes/agent/pod_cgroups.h"
#include "services/kubernetes/claims/claim_tasks.h"

namespace qgpu {
namespace {

constexpr std::size_t kReasonsMax = 64;  // that are remembered as told
constexpr std::string_view kUsualMount = "/sys/fs/cgroup";

}  // namespace

std::vector<std::string> PodLimits::mountsNow() {
  std::ifstream file("/proc/self/mountinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> mounts = unifiedMounts(text);
  std::stable_partition(mounts.begin(), mounts.end(),
                        [](const std::string& mount) { return mount.starts_with(kUsualMount); });
  return mounts;
}

PodLimits::PodLimits(MemoryLimiter limiter, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                     Log& log, PodLimitsConfig config)
    : limiter_(std::move(limiter)),
      timer_(timer),
      log_(log),
      config_(std::move(config)),
      answers_(io.wrapInputFd(limiter_.fd())) {
  tasks_.add(read());
}

PodLimits::Cards PodLimits::Pod::wanted() const {
  Cards sums;
  for (const auto& [task, cards] : tasks) {
    for (const auto& [card, mem] : cards) sums[card] += mem;
  }
  return sums;
}

kj::Promise<void> PodLimits::hold(const std::string& uid, schema::TaskInfo::Reader task) {
  const auto spec = task.getSpec();
  const std::vector<std::string> cards = cardsIn(view(task.getCard()));
  const bool alone = cards.size() > 1 || Permille(spec.getSharePermille()) >= kWholeCard;
  if (over_ || alone) return kj::READY_NOW;
  if (pods_.size() >= kPodsMax && !pods_.contains(uid)) makeRoom();
  if (pods_.size() >= kPodsMax && !pods_.contains(uid)) return kj::READY_NOW;
  Pod& pod = pods_[uid];
  Cards& of = pod.tasks[task.getId()];
  of.clear();
  for (const std::string& card : cards) {
    of[card] = Bytes(static_cast<std::int64_t>(spec.getMemBytes()));
  }
  return tell(uid, pod);
}

void PodLimits::keep(const std::set<std::uint64_t>& tasks) {
  for (auto at = pods_.begin(); at != pods_.end();) {
    Pod& pod = at->second;
    std::erase_if(pod.tasks, [&](const auto& task) { return !tasks.contains(task.first); });
    if (!over_) tasks_.add(tell(at->first, pod));
    const bool none = pod.tasks.empty() && (!pod.failed || cgroupOf(at->first).empty());
    at = none ? pods_.erase(at) : std::next(at);
  }
}

// Told are all cards that the pod ever had, so that nothing stays of one that it has no more.
kj::Promise<void> PodLimits::tell(const std::string& uid, Pod& pod) {
  Cards wanted = pod.wanted();
  const bool due = pod.failed && timer_.now() - pod.toldAt >= toKj(config_.again);
  if (wanted == pod.told && !due) return kj::READY_NOW;
  LimitOrder order;
  order.cgroup = cgroupOf(uid);
  if (order.cgroup.empty()) {
    if (!wanted.empty())
      say(uid, "it has no cgroup of version 2 that is to be seen from here, or not yet");
    return kj::READY_NOW;
  }
  order.number = ++lastOrder_;
  for (const auto& [card, mem] : wanted) pod.limited.insert(card);
  for (const std::string& card : pod.limited) order.cards[card];
  for (const auto& [card, mem] : wanted) order.cards[card] = mem;
  pod.told = std::move(wanted);
  pod.toldAt = timer_.now();
  pod.failed = !limiter_.order(order);
  if (pod.failed) {
    say(uid, "the process that asks NVIDIA's driver has too much to do");
    return kj::READY_NOW;
  }
  auto answered = kj::newPromiseAndFulfiller<void>();
  waiting_[order.number] = {uid, kj::mv(answered.fulfiller)};
  return answered.promise.exclusiveJoin(timer_.afterDelay(toKj(config_.patience)));
}

std::string PodLimits::cgroupOf(const std::string& uid) const {
  for (const std::string& mount : config_.mounts) {
    const std::vector<std::string> folders = podFolders({mount}, uid);
    if (!folders.empty()) return folders.front();
  }
  return "";
}

// Without an API server nobody says which tasks have ended; a pod's cgroup ends with it.
void PodLimits::makeRoom() {
  std::erase_if(pods_, [this](const auto& pod) { return cgroupOf(pod.first).empty(); });
}

kj::Promise<void> PodLimits::read() {
  return answers_->tryRead(packet_.data(), 1, packet_.size())
      .then([this](std::size_t n) -> kj::Promise<void> {
        if (n > 0) {
          if (const auto answer = parseLimitAnswer({packet_.data(), n})) onAnswer(*answer);
          return read();
        }
        over_ = true;
        log_.error("pod-limits-ended",
                   {{"why",
                     "the process that sets them was ended; pods that start have none until the "
                     "manager is started again"}});
        for (auto& [number, one] : waiting_) one.done->fulfill();
        waiting_.clear();
        return kj::READY_NOW;
      });
}

void PodLimits::onAnswer(const LimitAnswer& answer) {
  const auto found = waiting_.find(answer.number);
  if (found == waiting_.end()) return;
  Waiting one = std::move(found->second);
  waiting_.erase(found);
  const auto pod = pods_.find(one.uid);
  if (pod != pods_.end()) pod->second.failed = !answer.why.empty();
  if (!answer.why.empty()) say(one.uid, answer.why);
  one.done->fulfill();
}

void PodLimits::say(const std::string& uid, const std::string& why) {
  if (said_.size() >= kReasonsMax || !said_.insert(why).second) return;
  log_.warn("pod-not-limited", {{"pod", uid}, {"why", why}, {"then", "it is tried again"}});
}

void PodLimits::taskFailed(kj::Exception&& failure) {
  log_.error("pod-limits-ended", {{"why", failure.getDescription().cStr()}});
}

}  // namespace qgpu
