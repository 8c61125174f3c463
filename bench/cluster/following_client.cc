#include "bench/cluster/following_client.h"

#include <unistd.h>
#include <utility>

#include "bench/cluster/cluster_client.h"
#include "runtime/loop.h"
#include "services/base/net/dial.h"

namespace qgpu::bench {
namespace {

constexpr kj::Duration kTurn = 5 * kj::MILLISECONDS;
constexpr kj::Duration kNextLook = 10 * kj::MILLISECONDS;

bool says(const kj::Exception& why, const char* code) {
  return std::string(why.getDescription().cStr()).find(code) != std::string::npos;
}

// Nobody acts there, or it could not say.
bool mendsItself(const kj::Exception& why) {
  return why.getType() != kj::Exception::Type::FAILED || says(why, "stands-by") ||
         says(why, "unavailable");
}

}  // namespace

struct FollowingClient::Line {
  explicit Line(kj::Own<kj::AsyncIoStream> s) : stream(kj::mv(s)), client(*stream) {}
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyClient client;
};

void FollowingClient::Errors::taskFailed(kj::Exception&& exception) {
  kj::throwFatalException(kj::mv(exception));
}

FollowingClient::FollowingClient(std::vector<std::string> addresses, std::size_t standing)
    : addresses_(std::move(addresses)),
      standing_(standing),
      io_(kj::setupAsyncIo()),
      ways_(addresses_.size()) {}

// A connection and what it was dialled by hold each other.
FollowingClient::~FollowingClient() {
  for (auto* all : {&ways_, &gone_}) {
    for (const WayPtr& one : *all) {
      if (one) one->scheduler = nullptr;
    }
  }
}

FollowingClient::WayPtr FollowingClient::way(std::size_t at) {
  if (ways_[at]) return ways_[at];
  const WayPtr made = std::make_shared<Way>(Way{at, {}, nullptr});
  made->scheduler = schema::Scheduler::Client(
      dial(io_.provider->getNetwork(), addresses_[at], nullptr)
          .then(
              [made](kj::Own<kj::AsyncIoStream> stream) {
                made->line = kj::heap<Line>(kj::mv(stream));
                return made->line->client.bootstrap().castAs<schema::Scheduler>();
              },
              [](kj::Exception&& why) -> schema::Scheduler::Client {
                return KJ_EXCEPTION(DISCONNECTED, why.getDescription());  // no socket
              }));
  return ways_[at] = made;
}

// --- one call ---

void FollowingClient::start(Call call) {
  ++underWay_;
  if (!acting_) return waits(call);
  calls_.add(attempt(call, *acting_).then([this, call](bool done) {
    if (!done) later(call);
  }));
}

void FollowingClient::later(Call call) {
  call.again = true;
  waits(call);
}

void FollowingClient::waits(Call call) {
  waiting_.push_back(call);
  if (!std::exchange(looks_, true)) look();
}

kj::Promise<bool> FollowingClient::attempt(Call call, std::size_t at) {
  const WayPtr by = way(at);
  return (call.erase == 0 ? submit(call, by) : erase(call, by)).then([this](bool done) {
    if (done) --underWay_;
    return done;
  });
}

kj::Promise<bool> FollowingClient::submit(Call call, const WayPtr& by) {
  auto request = KJ_ASSERT_NONNULL(by->scheduler).submitRequest(capnp::MessageSize{64, 0});
  writeBenchTask(request.initSpec(), kj::str("group-", ::getpid(), "-", call.request));
  return request.send().then(
      [this, call, by](capnp::Response<schema::Scheduler::SubmitResults>&& answer) {
        answered(by->at);
        ++submitted_;
        latencies_.push_back(monotonicNow() - call.due);
        live_.push_back(answer.getAssigned().getTask());
        return true;
      },
      [this, by](kj::Exception&& why) { return failed(by, why); });
}

kj::Promise<bool> FollowingClient::erase(Call call, const WayPtr& by) {
  auto request = KJ_ASSERT_NONNULL(by->scheduler).deleteRequest();
  request.setTask(call.erase);
  return request.send().then(
      [this, call, by](auto&&) {
        answered(by->at);
        erased_.insert(call.erase);
        return true;
      },
      [this, call, by](kj::Exception&& why) {
        if (!says(why, "not-found")) return failed(by, why);
        if (!call.again) refused_ = "a submit was lost: task " + std::to_string(call.erase);
        erased_.insert(call.erase);  // by an asking before, whose answer was lost
        return true;
      });
}

void FollowingClient::answered(std::size_t at) {
  inRow_ = at == answering_ ? inRow_ + 1 : 1;
  answering_ = at;
  acting_ = at;
  for (std::deque<Call> all = std::exchange(waiting_, {}); const Call& call : all) {
    --underWay_;
    start(call);
  }
}

bool FollowingClient::failed(const WayPtr& by, const kj::Exception& why) {
  if (!mendsItself(why)) {
    refused_ = why.getDescription().cStr();
    return true;
  }
  if (acting_ == by->at) acting_.reset();
  if (why.getType() == kj::Exception::Type::DISCONNECTED && ways_[by->at] == by) {
    gone_.push_back(std::exchange(ways_[by->at], nullptr));
  }
  return false;
}

void FollowingClient::look() {
  if (waiting_.empty()) {
    looks_ = false;
    return;
  }
  Call call = waiting_.front();
  waiting_.pop_front();
  looksAt_ = (looksAt_ + 1) % addresses_.size();
  calls_.add(attempt(call, looksAt_).then([this, call](bool done) mutable {
    call.again = true;
    if (!done) waits(call);
  }));
  // Not once it has its answer: its task may have a node that is the last to come back.
  calls_.add(io_.provider->getTimer().afterDelay(kNextLook).then([this] { look(); }));
}

// --- all of them ---

void FollowingClient::run(std::uint32_t perSecond, const std::function<bool()>& over) {
  const Nanos from = monotonicNow();
  std::uint64_t begun = 0;
  while (!over()) {
    const auto passed = static_cast<std::uint64_t>((monotonicNow() - from).value);
    for (; begun < passed * perSecond / 1'000'000'000; ++begun) {
      const auto due = static_cast<std::int64_t>(begun * 1'000'000'000 / perSecond);
      start(Call{0, ++lastRequest_, from + Nanos(due)});
      for (int ends = 0; ends < 2 && live_.size() > standing_; ++ends) {
        start(Call{live_.front(), 0, {}});
        live_.pop_front();
      }
    }
    io_.provider->getTimer().afterDelay(kTurn).wait(io_.waitScope);
    // A connection that its last call let go of would end within itself.
    std::erase_if(gone_, [](const WayPtr& one) { return one.use_count() == 1; });
  }
}

void FollowingClient::rest() {
  while (underWay_ > 0) io_.provider->getTimer().afterDelay(kTurn).wait(io_.waitScope);
}

std::string FollowingClient::differences() {
  std::set<std::uint64_t> missing(live_.begin(), live_.end());
  std::size_t unknown = 0, back = 0;
  std::uint64_t after = 0;
  do {
    auto request = KJ_ASSERT_NONNULL(way(answering_)->scheduler).listRequest();
    request.initPage().setAfter(after);
    auto answer = request.send().wait(io_.waitScope);
    for (const auto task : answer.getTasks()) {
      if (missing.erase(task.getId()) > 0) continue;
      if (task.getState() == schema::PlaceState::ENDING) continue;  // its node was not heard yet
      (erased_.count(task.getId()) > 0 ? back : unknown)++;
    }
    after = answer.getNext();
  } while (after != 0);
  if (missing.empty() && unknown == 0 && back == 0) return "";
  return std::to_string(missing.size()) + " submits lost, " + std::to_string(back) +
         " deletes undone, " + std::to_string(unknown) + " tasks of nobody";
}

}  // namespace qgpu::bench
