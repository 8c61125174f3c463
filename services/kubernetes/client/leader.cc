#include "services/kubernetes/client/leader.h"

#include <simdjson.h>

#include "services/base/json.h"
#include "services/base/kj_time.h"
#include "services/base/wall_time.h"

namespace qgpu {
namespace {

std::string textAt(simdjson::dom::element of, const char* key) {
  std::string_view words;
  return of[key].get(words) == simdjson::SUCCESS ? std::string(words) : std::string();
}

}  // namespace

LeaderElection::LeaderElection(ApiClient& api, LeaseOptions options, Log& log, Calls calls)
    : api_(api), options_(std::move(options)), log_(log), calls_(std::move(calls)) {}

void LeaderElection::start() {
  running_ = run().eagerlyEvaluate(
      [](kj::Exception&&) { QGPU_CHECK(false, "the election handles its own failures"); });
}

std::string LeaderElection::path() const {
  return "/apis/coordination.k8s.io/v1/namespaces/" + urlEscaped(options_.nameSpace) + "/leases";
}

bool LeaderElection::holds() const {
  return state_ == State::Leading &&
         api_.timer().now() - renewedAt_ < options_.renewMost.value * kj::NANOSECONDS;
}

kj::Promise<void> LeaderElection::run() {
  askedAt_ = api_.timer().now();
  return tryOnce().then([this]() -> kj::Promise<void> {
    if (state_ == State::Over) return kj::READY_NOW;
    return api_.timer().afterDelay(toKj(options_.retryEvery)).then([this]() { return run(); });
  });
}

kj::Promise<void> LeaderElection::tryOnce() {
  return api_.get(path() + "/" + urlEscaped(options_.name))
      .then([this](ApiAnswer answer) -> kj::Promise<void> {
        if (answer.fault == ApiFault::NotFound) {
          seen_ = Lease{};
          return write(Lease{}, true);
        }
        Lease now;
        if (!answer.ok() || !read(answer.body, now)) {
          failed(answer);
          return kj::READY_NOW;
        }
        if (now.holder != seen_.holder || now.renewed != seen_.renewed) {
          seenAt_ = api_.timer().now();
        }
        seen_ = now;
        const bool mine = now.holder == options_.identity;
        if (state_ == State::Leading && !mine) {
          state_ = State::Over;
          log_.warn("leader-lost", {{"holder", now.holder}});
          calls_.lost();
          return kj::READY_NOW;
        }
        const bool over = api_.timer().now() - seenAt_ >= toKj(options_.duration);
        if (!mine && !now.holder.empty() && !over) {
          calls_.follows();
          return kj::READY_NOW;
        }
        return write(std::move(now), false);
      });
}

kj::Promise<void> LeaderElection::write(Lease lease, bool create) {
  const std::string now = rfc3339Micro(unixMsNow());
  if (lease.holder != options_.identity) {
    if (!create) ++lease.transitions;
    lease.acquired = now;
  }
  lease.holder = options_.identity;
  lease.renewed = now;
  ApiCall call;
  call.method = create ? kj::HttpMethod::POST : kj::HttpMethod::PUT;
  call.path = create ? path() : path() + "/" + urlEscaped(options_.name);
  call.body = body(lease);
  return api_.call(std::move(call)).then([this](ApiAnswer answer) {
    if (answer.ok()) return renewed();
    // Somebody else was quicker: the next look shows who.
    if (answer.fault == ApiFault::Conflict || answer.fault == ApiFault::AlreadyExists) return;
    failed(answer);
  });
}

void LeaderElection::renewed() {
  renewedAt_ = askedAt_;
  if (state_ != State::Waiting) return;
  state_ = State::Leading;
  seen_.holder = options_.identity;
  log_.info("leader", {{"identity", options_.identity}});
  calls_.led();
}

// Without the right to leases nobody of this account can hold one, so that nobody is waited for.
void LeaderElection::failed(const ApiAnswer& answer) {
  if (!warned_) log_.warn("leader-election", {{"why", answer.message}});
  warned_ = true;
  if (answer.fault == ApiFault::Forbidden) renewed();
}

kj::Promise<void> LeaderElection::release() {
  running_ = nullptr;
  if (state_ == State::Over) return kj::READY_NOW;
  state_ = State::Over;
  return giveBack();
}

kj::Promise<void> LeaderElection::giveBack() {
  return api_.get(path() + "/" + urlEscaped(options_.name))
      .then([this](ApiAnswer answer) -> kj::Promise<void> {
        Lease now;
        if (!answer.ok() || !read(answer.body, now) || now.holder != options_.identity) {
          return kj::READY_NOW;
        }
        now.holder.clear();
        ApiCall call{kj::HttpMethod::PUT, path() + "/" + urlEscaped(options_.name), body(now),
                     "application/json"};
        return api_.call(std::move(call)).then([this](ApiAnswer given) -> kj::Promise<void> {
          // A renewal was still on its way.
          if (given.fault == ApiFault::Conflict) return giveBack();
          return kj::READY_NOW;
        });
      });
}

std::string LeaderElection::body(const Lease& lease) const {
  JsonWriter json;
  json.beginObject().field("apiVersion", "coordination.k8s.io/v1").field("kind", "Lease");
  json.key("metadata").beginObject().field("name", options_.name);
  json.field("namespace", options_.nameSpace);
  if (!lease.version.empty()) json.field("resourceVersion", lease.version);
  json.endObject().key("spec").beginObject().field("holderIdentity", lease.holder);
  json.count("leaseDurationSeconds",
             static_cast<std::uint64_t>(std::max<std::int64_t>(1, options_.duration / seconds(1))));
  json.field("acquireTime", lease.acquired).field("renewTime", lease.renewed);
  json.count("leaseTransitions", lease.transitions).endObject().endObject();
  return json.take();
}

bool LeaderElection::read(const std::string& body, Lease& to) {
  simdjson::dom::parser parser;
  simdjson::dom::element root, meta, spec;
  if (parser.parse(body).get(root) != simdjson::SUCCESS ||
      root["metadata"].get(meta) != simdjson::SUCCESS) {
    return false;
  }
  to.version = textAt(meta, "resourceVersion");
  if (root["spec"].get(spec) != simdjson::SUCCESS) return true;
  to.holder = textAt(spec, "holderIdentity");
  to.renewed = textAt(spec, "renewTime");
  to.acquired = textAt(spec, "acquireTime");
  std::uint64_t transitions = 0;
  if (spec["leaseTransitions"].get(transitions) == simdjson::SUCCESS) to.transitions = transitions;
  return true;
}

}  // namespace qgpu
