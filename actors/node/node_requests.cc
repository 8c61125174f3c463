#include "actors/node/node_requests.h"

#include <algorithm>

namespace qgpu {
namespace {

constexpr std::size_t kReasonMax = 160;  // bytes, of an end or of a standing

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
void takeSeveralCards(NodeChange& change) {
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

void NodeRequests::onRequest(schema::Request::Reader request, Turn& turn) {
  const Asker asker{turn.sender(), request.getCorr()};
  if (asker.client == ActorId::kNobody) return;
  if (reports_.onQuestion(asker, request, turn)) return;
  if (request.isWatch()) return watch(asker, request.getWatch());
  const bool ordered = asker.client == node_.peers().member;
  if (isOrder(request.which()) && !ordered) {
    return node_.replyFailed(asker,
                             fail(ErrorCode::Unsupported, "only a scheduler may order this"));
  }
  if (request.isStanding()) {
    reports_.setStanding(text(request.getStanding()).substr(0, kReasonMax));
    return node_.replyDone(asker, "noted");
  }
  if (!request.getMayChange() && !openToAll(request.which())) {
    return node_.replyFailed(
        asker, fail(ErrorCode::Denied, "uid " + std::to_string(request.getPeerUid()) +
                                           " may not change this node: become root, the daemon's "
                                           "user, or a member of group qgpu"));
  }
  NodeChange change;
  change.asker = asker;
  change.who = whoOf(request);
  change.ordered = ordered;
  if (isOrder(request.which())) return onOrder(request, std::move(change));
  onChangeRequest(request, std::move(change));
}

void NodeRequests::onChangeRequest(schema::Request::Reader request, NodeChange change) {
  const auto mark = [&change](CardMark wanted, capnp::Text::Reader card) {
    change.kind = NodeChange::Kind::Mark;
    change.mark = wanted;
    change.cardText = text(card).substr(0, kNameMax + 1);
  };
  switch (request.which()) {
    case schema::Request::BIND:
      change.kind = NodeChange::Kind::Bind;
      change.spec = readSpec(request.getBind());
      change.spec.clusterTask = 0;  // the scheduler's alone to say
      change.spec.clusterEpoch = 0;
      takeSeveralCards(change);
      break;
    case schema::Request::UNBIND:
      change.kind = NodeChange::Kind::End;
      change.task = request.getUnbind();
      change.text = "unbound";
      break;
    case schema::Request::EVICT:
      change.kind = NodeChange::Kind::End;
      change.task = request.getEvict();
      change.text = "evicted";
      break;
    case schema::Request::POLICY:
      change.kind = NodeChange::Kind::Policy;
      change.policy = readPolicy(request.getPolicy().getPolicy());
      change.cardText = text(request.getPolicy().getCard()).substr(0, kNameMax + 1);
      break;
    case schema::Request::REPORT:
      change.kind = NodeChange::Kind::Report;
      change.text = text(request.getReport().getPath()).substr(0, kReportPathMax + 1);
      change.cardText = text(request.getReport().getCard()).substr(0, kNameMax + 1);
      break;
    case schema::Request::CORDON:
      mark(CardMark::Cordoned, request.getCordon());
      break;
    case schema::Request::UNCORDON:
      mark(CardMark::Ready, request.getUncordon());
      break;
    case schema::Request::DRAIN:
      mark(CardMark::Draining, request.getDrain());
      break;
    case schema::Request::SNAPSHOT:
      change.kind = NodeChange::Kind::Permit;
      change.text = "snapshot";
      break;
    case schema::Request::SAVE:
      change.kind = NodeChange::Kind::Permit;
      change.text = "snapshot save";
      break;
    case schema::Request::LOG_LEVEL:
      change.kind = NodeChange::Kind::Permit;
      change.text = "loglevel " + text(request.getLogLevel()).substr(0, 16);
      break;
    default:
      return node_.replyFailed(
          change.asker, fail(ErrorCode::Unsupported, "this manager does not know that request"));
  }
  enqueue(std::move(change));
}

void NodeRequests::onOrder(schema::Request::Reader request, NodeChange change) {
  switch (request.which()) {
    case schema::Request::PLACE: {
      const auto order = request.getPlace();
      change.kind = NodeChange::Kind::Bind;
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
      change.kind = NodeChange::Kind::End;
      change.task = order.getNodeTask();
      change.spec.clusterTask = order.getTask();
      change.spec.clusterEpoch = order.getEpoch();
      change.text = text(order.getReason()).substr(0, kReasonMax);
      break;
    }
    case schema::Request::CLUSTER_TERM:
      change.kind = NodeChange::Kind::Term;
      change.term = request.getClusterTerm();
      break;
    default:
      return node_.replyFailed(
          change.asker, fail(ErrorCode::Unsupported, "this manager does not know that order"));
  }
  enqueue(std::move(change));
}

void NodeRequests::enqueue(NodeChange change) {
  const DurableShell& shell = node_.shell();
  if (!shell.storageOk()) {
    return node_.replyFailed(
        change.asker,
        fail(ErrorCode::Unavailable,
             "nothing can be stored now (" + shell.storageText() + "): try again when it can"));
  }
  if (changes_.size() >= kChangesMax || shell.outbox().size() > kOutboxMax) {
    return node_.replyFailed(
        change.asker, fail(ErrorCode::Overloaded, std::to_string(changes_.size()) +
                                                      " changes wait already: try again later"));
  }
  changes_.push_back(std::move(change));
}

NodeChange NodeRequests::takeChange() {
  NodeChange change = std::move(changes_.front());
  changes_.pop_front();
  return change;
}

void NodeRequests::refuseChanges(const Error& error) {
  for (const NodeChange& change : changes_) node_.replyFailed(change.asker, error);
  changes_.clear();
}

Result<Need> NodeRequests::check(NodeChange& change) {
  change.tells("permitted", 0, "", change.text);
  return Need::Commit;
}

void NodeRequests::apply(const NodeChange& change, Turn&) {
  node_.replyDone(change.asker, change.text);
}

void NodeRequests::watch(const Asker& asker, bool on) {
  if (const Status done = node_.feed().watch(asker.client, on); !done) {
    return node_.replyFailed(asker, done.error());
  }
  node_.replyDone(asker, on ? "events from now on" : "no more events");
}

}  // namespace qgpu
