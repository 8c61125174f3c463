// What clients ask: questions are answered from what the node knows or gathers, everything else
// becomes a change in the queue. Peers are as the kernel told the clients.
#include <algorithm>

#include "actors/node/node_actor.h"

namespace qgpu {
namespace {

constexpr std::size_t kReasonMax = 160;

Who whoOf(schema::Request::Reader request) {
  return {request.getPeerUid(), request.getPeerPid(), request.getMayChange()};
}

// What the member actor alone may ask.
bool isOrder(schema::Request::Which which) {
  return which == schema::Request::PLACE || which == schema::Request::END ||
         which == schema::Request::CLUSTER_TERM || which == schema::Request::STANDING;
}

// Requests that every peer may make; whose task it is, is checked when the change is made.
bool openToAll(schema::Request::Which which) {
  return which == schema::Request::BIND || which == schema::Request::UNBIND ||
         which == schema::Request::EVICT;
}

// A task of several cards may name them all, joined by commas.
void takeSeveralCards(Change& change) {
  std::string& names = change.spec.card;
  if (change.spec.cards < 2 || names.find(',') == std::string::npos) return;
  for (std::size_t from = 0; from <= names.size();) {
    const std::size_t comma = std::min(names.find(',', from), names.size());
    change.wanted.push_back(names.substr(from, comma - from));
    from = comma + 1;
  }
  names.clear();
}

}  // namespace

void NodeActor::onRequest(schema::Request::Reader request, Turn& turn) {
  const Asker asker{turn.sender(), request.getCorr()};
  if (asker.client == ActorId::kNobody) return;
  switch (request.which()) {
    case schema::Request::INFO: return replyInfo(asker, turn);
    case schema::Request::CARDS: return gather(asker, Gather::About::Cards, turn);
    case schema::Request::TASKS: return gather(asker, Gather::About::Tasks, turn);
    case schema::Request::EVENTS: return replyEvents(asker, request.getEvents());
    case schema::Request::WATCH: return watch(asker, request.getWatch());
    default: break;
  }
  if (isOrder(request.which()) && asker.client != peers_.member) {
    return replyFailed(asker, fail(ErrorCode::Unsupported, "only a scheduler may order this"));
  }
  if (request.isStanding()) return setStanding(asker, text(request.getStanding()), turn);
  if (!request.getMayChange() && !openToAll(request.which())) {
    return replyFailed(asker, fail(ErrorCode::Denied,
                                   "uid " + std::to_string(request.getPeerUid()) +
                                       " may not change this node: become root, the daemon's "
                                       "user, or a member of group qgpu"));
  }
  Change change;
  change.asker = asker;
  change.who = whoOf(request);
  change.ordered = asker.client == peers_.member;
  if (isOrder(request.which())) return onOrder(request, std::move(change));
  onChangeRequest(request, std::move(change));
}

void NodeActor::onChangeRequest(schema::Request::Reader request, Change change) {
  const auto mark = [&change](CardMark wanted, capnp::Text::Reader card) {
    change.kind = Change::Kind::Mark;
    change.mark = wanted;
    change.cardText = text(card).substr(0, kNameMax + 1);
  };
  switch (request.which()) {
    case schema::Request::BIND:
      change.kind = Change::Kind::Bind;
      change.spec = readSpec(request.getBind());
      change.spec.clusterTask = 0;   // the scheduler's alone to say
      change.spec.clusterEpoch = 0;
      takeSeveralCards(change);
      break;
    case schema::Request::UNBIND:
      change.kind = Change::Kind::End;
      change.task = request.getUnbind();
      change.text = "unbound";
      break;
    case schema::Request::EVICT:
      change.kind = Change::Kind::End;
      change.task = request.getEvict();
      change.text = "evicted";
      break;
    case schema::Request::POLICY:
      change.kind = Change::Kind::Policy;
      change.policy = readPolicy(request.getPolicy().getPolicy());
      change.cardText = text(request.getPolicy().getCard()).substr(0, kNameMax + 1);
      break;
    case schema::Request::CORDON: mark(CardMark::Cordoned, request.getCordon()); break;
    case schema::Request::UNCORDON: mark(CardMark::Ready, request.getUncordon()); break;
    case schema::Request::DRAIN: mark(CardMark::Draining, request.getDrain()); break;
    case schema::Request::SNAPSHOT:
      change.kind = Change::Kind::Permit;
      change.text = "snapshot";
      break;
    case schema::Request::LOG_LEVEL:
      change.kind = Change::Kind::Permit;
      change.text = "loglevel " + text(request.getLogLevel()).substr(0, 16);
      break;
    default:
      return replyFailed(change.asker,
                         fail(ErrorCode::Unsupported, "this manager does not know that request"));
  }
  enqueue(std::move(change));
}

void NodeActor::onOrder(schema::Request::Reader request, Change change) {
  switch (request.which()) {
    case schema::Request::PLACE: {
      const auto order = request.getPlace();
      change.kind = Change::Kind::Bind;
      change.spec = readSpec(order.getSpec());
      change.spec.clusterTask = order.getTask();
      change.spec.clusterEpoch = order.getEpoch();
      for (const auto card : order.getCards()) {
        change.wanted.push_back(text(card).substr(0, kNameMax + 1));
      }
      break;
    }
    case schema::Request::END: {
      const auto order = request.getEnd();
      change.kind = Change::Kind::End;
      change.task = order.getNodeTask();
      change.spec.clusterTask = order.getTask();
      change.spec.clusterEpoch = order.getEpoch();
      change.text = text(order.getReason()).substr(0, kReasonMax);
      break;
    }
    case schema::Request::CLUSTER_TERM:
      change.kind = Change::Kind::Term;
      change.term = request.getClusterTerm();
      break;
    default:
      return replyFailed(change.asker,
                         fail(ErrorCode::Unsupported, "this manager does not know that order"));
  }
  enqueue(std::move(change));
}

void NodeActor::setStanding(const Asker& asker, const std::string& standing, Turn& turn) {
  const std::string now = standing.substr(0, kReasonMax);
  const auto word = [](const std::string& said) { return said.substr(0, said.find(':')); };
  if (word(now) != word(standing_)) note("cluster", 0, "", now, turn);
  standing_ = now;
  replyDone(asker, "noted");
}

void NodeActor::watch(const Asker& asker, bool on) {
  if (const Status done = feed_.watch(asker.client, on); !done) {
    return replyFailed(asker, done.error());
  }
  replyDone(asker, on ? "events from now on" : "no more events");
}

}  // namespace qgpu
