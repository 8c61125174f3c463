#include "services/kubernetes/claims/claim_tasks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "actors/base/codec.h"
#include "actors/ledger/fit.h"
#include "runtime/text_hash.h"
#include "services/api/commands/schema_names.h"
#include "services/kubernetes/claims/resource_slice.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

// "claim:HASH-": all tasks of a claim; with the request's hash and ':' those of the request. Behind
// it stands what makes each binding another one: the ids of tasks that ended stay taken.
std::string requestOfClaim(const std::string& uid) {
  return ClaimTasks::kRequestStart + textHashHex(uid) + "-";
}
std::string requestOfPart(const std::string& uid, const std::string& request) {
  return requestOfClaim(uid) + textHashHex(request) + ":";
}

// The cards of `devices` by the names that our slice gives them.
Result<std::vector<std::string>> cardsOf(const std::vector<ClaimDevice>& devices,
                                         const std::map<std::string, std::string>& cards) {
  std::vector<std::string> ids;
  for (const ClaimDevice& device : devices) {
    const auto card = cards.find(device.device);
    if (card == cards.end()) {
      return fail(ErrorCode::NotFound, "this node has no card of device '" + device.device + "'");
    }
    ids.push_back(card->second);
  }
  return ids;
}

// `joined`: as a task names its cards, in any order.
bool sameCards(const std::string& joined, std::vector<std::string> cards) {
  std::vector<std::string> has = cardsIn(joined);
  std::sort(has.begin(), has.end());
  std::sort(cards.begin(), cards.end());
  return has == cards;
}

}  // namespace

std::vector<std::string> cardsIn(std::string_view joined) {
  std::vector<std::string> cards;
  for (std::size_t from = 0; from <= joined.size();) {
    const std::size_t comma = std::min(joined.find(',', from), joined.size());
    cards.emplace_back(joined.substr(from, comma - from));
    from = comma + 1;
  }
  return cards;
}

struct ClaimTasks::Bound {
  std::uint64_t task;
  std::string request;
  std::uint32_t processes;
  std::string cards;  // ids, joined by commas
};

struct ClaimTasks::Work {
  Peer peer;
  ClaimName claim;
  std::vector<ClaimPart> parts{};
  std::vector<Bound> tasks{};                    // of this claim that are there
  std::map<std::string, std::string> cards{};    // ids by names of devices
  std::map<std::string, std::uint32_t> index{};  // of cards, by id
  PreparedClaim prepared{};
};

// Until it goes, no other call begins.
struct ClaimTasks::Turn {
  Turn(std::size_t& w, kj::Own<kj::PromiseFulfiller<void>> o) : waiting(w), over(kj::mv(o)) {}
  ~Turn() noexcept(false) {
    --waiting;
    over->fulfill();
  }
  std::size_t& waiting;
  kj::Own<kj::PromiseFulfiller<void>> over;
};

ClaimTasks::ClaimTasks(NodeActorClient& actor, ApiClient& api, std::string node,
                       std::function<bool()> mixed)
    : actor_(actor), api_(api), node_(std::move(node)), mixed_(std::move(mixed)) {}

template <typename T, typename Do>
kj::Promise<Result<T>> ClaimTasks::inTurn(Do&& work) {
  if (waiting_ >= kWaitingMax) {
    return Result<T>(
        fail(ErrorCode::Overloaded, std::to_string(waiting_) + " claims are under way already"));
  }
  auto over = kj::newPromiseAndFulfiller<void>();
  auto before = last_.fork();
  // A call whose caller is gone lets the next one begin no earlier than itself.
  last_ = before.addBranch().then([ours = kj::mv(over.promise)]() mutable { return kj::mv(ours); });
  ++waiting_;
  auto turn = kj::heap<Turn>(waiting_, kj::mv(over.fulfiller));
  return under_.wrap(before.addBranch().then(std::forward<Do>(work)).attach(kj::mv(turn)));
}

kj::Promise<Result<PreparedClaim>> ClaimTasks::prepare(Peer peer, ClaimName claim) {
  auto work = kj::heap<Work>(Work{std::move(peer), std::move(claim)});
  Work& what = *work;
  return inTurn<PreparedClaim>([this, &what]() -> kj::Promise<Result<PreparedClaim>> {
           return look(what).then([&what](Status done) -> Result<PreparedClaim> {
             if (!done) return done.error();
             return std::move(what.prepared);
           });
         })
      .attach(kj::mv(work));
}

kj::Promise<ApiAnswer> ClaimTasks::read(std::string_view nameSpace, std::string_view name) {
  return api_.get(std::string(kResourceApi) + "/namespaces/" + urlEscaped(nameSpace) +
                  "/resourceclaims/" + urlEscaped(name));
}

kj::Promise<Result<ClaimUsers>> ClaimTasks::usersOf(std::string task, std::string requestId) {
  const auto parts = podTaskParts(task);
  const auto gone = [task] { return fail(ErrorCode::NotFound, "no claim is known of " + task); };
  if (!parts) return Result<ClaimUsers>(gone());
  return under_.wrap(read(parts->nameSpace, parts->pod)
                         .then([requestId, gone](ApiAnswer answer) -> Result<ClaimUsers> {
                           if (!answer.ok()) return answer.error();
                           ClaimUsers users = readClaimUsers(answer.body);
                           const bool its = requestId.starts_with(requestOfClaim(users.uid));
                           if (!its) return gone();
                           return users;
                         }));
}

kj::Promise<Status> ClaimTasks::look(Work& work) {
  return read(work.claim.nameSpace, work.claim.name)
      .then([this, &work](ApiAnswer answer) -> kj::Promise<Status> {
        if (!answer.ok()) return Status(answer.error());
        auto parts = readClaim(answer.body, work.claim, node_);
        if (!parts) return Status(parts.error());
        work.parts = std::move(*parts);
        work.prepared.users = readClaimUsers(answer.body);
        return readCards(work);
      })
      .then([this, &work](Status done) -> kj::Promise<Status> {
        return done ? readTasks(work) : kj::Promise<Status>(std::move(done));
      })
      .then([this, &work](Status done) -> kj::Promise<Status> {
        return done ? bindFrom(work, 0) : kj::Promise<Status>(std::move(done));
      });
}

kj::Promise<Status> ClaimTasks::readCards(Work& work) {
  return actor_.ask(work.peer, [](schema::Request::Builder request) { request.setCards(); })
      .then([&work](Result<Answer> answer) -> Status {
        if (!answer) return answer.error();
        for (const auto card : answer->reply().getCards()) {
          const auto info = card.getInfo();
          const std::string id(view(info.getId()));
          work.cards.emplace(deviceName(id), id);
          work.index.emplace(id, info.getIndex());
        }
        return ok();
      });
}

kj::Promise<Status> ClaimTasks::readTasks(Work& work) {
  return actor_.ask(work.peer, [](schema::Request::Builder request) { request.setTasks(); })
      .then([&work](Result<Answer> answer) -> Status {
        if (!answer) return answer.error();
        const std::string start = requestOfClaim(work.claim.uid);
        for (const auto task : answer->reply().getTasks()) {
          const std::string_view request = view(task.getSpec().getRequestId());
          if (!request.starts_with(start)) continue;
          work.tasks.push_back({task.getId(), std::string(request), task.getUse().getProcesses(),
                                std::string(view(task.getCard()))});
        }
        return ok();
      });
}

// The parts from `at` on, one after the other. What an earlier try bound is found by its request id
// and bound "again", which answers with the same task and token.
kj::Promise<Status> ClaimTasks::bindFrom(Work& work, std::size_t at) {
  if (at == work.parts.size()) return Status(Unit{});
  const ClaimPart& part = work.parts[at];
  auto cards = cardsOf(part.devices, work.cards);
  if (!cards) return Status(cards.error());
  PreparedPart prepared{part.request, part.devices, std::move(*cards), part.admin, 0, {}};
  if (part.admin) {
    work.prepared.parts.push_back(std::move(prepared));
    return bindFrom(work, at + 1);
  }
  if (isHybrid(part.taskClass) != mixed_()) {
    return Status(fail(ErrorCode::Conflict,
                       "claim " + work.claim.text() + ", request '" + part.request + "' is " +
                           className(part.taskClass) + ": " +
                           (mixed_() ? "this node's cards are for online and offline tasks"
                                     : "this node has no label mixed-qgpu-enable=enable")));
  }
  const std::string start = requestOfPart(work.claim.uid, part.request);
  std::string request = start + textHashHex(std::to_string(api_.random()));
  const auto bound = std::find_if(work.tasks.begin(), work.tasks.end(),
                                  [&](const Bound& one) { return one.request.starts_with(start); });
  if (bound != work.tasks.end()) {
    // A claim that was given anew, elsewhere, without ever being taken back.
    if (!sameCards(bound->cards, prepared.cards)) return replace(work, at, *bound);
    request = bound->request;
  }
  std::string named;
  for (const std::string& id : prepared.cards) {
    named += (named.empty() ? "" : ",") + std::to_string(work.index.at(id));
  }
  const std::string name = podTaskName(work.claim.nameSpace, work.claim.name, part.request);
  auto fill = [&](schema::Request::Builder out) {
    auto spec = out.initBind();
    spec.setName(ptr(name));
    spec.setClass(word(part.taskClass));
    const Bytes mem = std::max(part.mem, gibibytes(1));  // whole cards take all of theirs
    spec.setMemBytes(static_cast<std::uint64_t>(mem.value));
    spec.setSharePermille(static_cast<std::uint32_t>(part.share.value));
    spec.setCards(static_cast<std::uint32_t>(prepared.cards.size()));
    spec.setCard(ptr(named));
    spec.setOwnerUid(work.peer.uid);
    spec.setRequestId(ptr(request));
  };
  return actor_.ask(work.peer, fill)
      .then([this, &work, at,
             prepared = std::move(prepared)](Result<Answer> answer) mutable -> kj::Promise<Status> {
        if (!answer) return Status(answer.error());
        const auto reply = answer->reply().getBound();
        prepared.task = reply.getTask();
        prepared.token = view(reply.getToken());
        work.prepared.parts.push_back(std::move(prepared));
        return bindFrom(work, at + 1);
      });
}

// Ends a task of the claim that has other cards than the claim has now, and goes on.
kj::Promise<Status> ClaimTasks::replace(Work& work, std::size_t at, const Bound& bound) {
  if (bound.processes != 0) {
    return Status(fail(ErrorCode::Conflict,
                       "claim " + work.claim.text() + " was given other cards than " + bound.cards +
                           ", which " + std::to_string(bound.processes) + " processes of it use"));
  }
  const std::uint64_t task = bound.task;
  std::erase_if(work.tasks, [task](const Bound& one) { return one.task == task; });
  return end(work.peer, task).then([this, &work, at](Status ended) {
    return ended ? bindFrom(work, at) : kj::Promise<Status>(std::move(ended));
  });
}

// --- taking back ---

kj::Promise<Status> ClaimTasks::unprepare(Peer peer, std::string uid) {
  auto work = kj::heap<Work>(Work{std::move(peer), {"", "", std::move(uid)}});
  Work& what = *work;
  return inTurn<Unit>([this, &what]() -> kj::Promise<Status> {
           return readTasks(what).then([this, &what](Status read) -> kj::Promise<Status> {
             if (!read) return kj::mv(read);
             for (const Bound& bound : what.tasks) {
               if (bound.processes == 0) continue;
               return Status(fail(ErrorCode::Conflict, std::to_string(bound.processes) +
                                                           " processes of the claim's task " +
                                                           std::to_string(bound.task) + " live"));
             }
             kj::Promise<Status> all = Status(Unit{});
             for (const Bound& bound : what.tasks) {
               all = all.then([this, &what, task = bound.task](Status ended) {
                 return ended ? end(what.peer, task) : kj::Promise<Status>(std::move(ended));
               });
             }
             return all;
           });
         })
      .attach(kj::mv(work));
}

kj::Promise<Status> ClaimTasks::end(Peer peer, std::uint64_t task) {
  return actor_.ask(peer, [task](schema::Request::Builder request) { request.setUnbind(task); })
      .then([](Result<Answer> ended) { return ended ? Status(Unit{}) : Status(ended.error()); });
}

}  // namespace qgpu
