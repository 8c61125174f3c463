#include "services/api/rpc/member_codec.h"

#include "actors/model.h"
#include "actors/scheduler/codec.h"
#include "runtime/enum_names.h"
#include "services/api/rpc/checked.h"

namespace qgpu {
namespace {

// Collects the first field that is wrong.
class Check {
 public:
  Status status() const { return error_ ? Status(*error_) : ok(); }

  void text(capnp::Text::Reader text, const char* what, std::size_t most = kTextMax) {
    if (text.size() > most) wrong(what, "has at most " + std::to_string(most) + " bytes");
  }
  template <typename List>
  bool list(List list, const char* what, std::size_t most) {
    if (list.size() <= most) return !error_;
    wrong(what, "has at most " + std::to_string(most) + " entries");
    return false;
  }
  template <typename Enum>
  void known(Enum value, const char* what) {
    if (!enumKnows(value)) wrong(what, "has a value that this version does not know");
  }
  void wrong(const char* what, const std::string& how,
             ErrorCode code = ErrorCode::InvalidArgument) {
    if (!error_) error_ = fail(code, std::string(what) + " " + how);
  }

  void cards(capnp::List<capnp::Text>::Reader cards) {
    if (!list(cards, "cards", kTaskCardsMax)) return;
    for (const auto card : cards) text(card, "cards");
  }
  void spec(schema::TaskSpec::Reader spec) {
    text(spec.getName(), "spec.name");
    text(spec.getCard(), "spec.card");
    text(spec.getRequestId(), "spec.requestId");
    known(spec.getClass(), "spec.class");
  }
  void failure(schema::Failure::Reader failure) {
    text(failure.getCode(), "failure.code");
    text(failure.getMessage(), "failure.message", kSentenceMax);
  }
  void facts(schema::NodeFacts::Reader facts);
  void held(capnp::List<schema::HeldTask>::Reader tasks);
  void clusterSpec(schema::ClusterSpec::Reader spec);

 private:
  std::optional<Error> error_;
};

void Check::facts(schema::NodeFacts::Reader facts) {
  text(facts.getName(), "facts.name");
  if (facts.getName().size() == 0) wrong("facts.name", "is empty");
  text(facts.getVersion(), "facts.version");
  text(facts.getAttachSocket(), "facts.attachSocket");
  if (list(facts.getCards(), "facts.cards", kNodeCardsMax)) {
    for (const auto card : facts.getCards()) {
      const auto info = card.getInfo();
      text(info.getId(), "card.id");
      text(info.getModel(), "card.model");
      text(info.getBackend(), "card.backend");
      text(info.getPlatform(), "card.platform");
      text(info.getDriver(), "card.driver");
      text(info.getSuspendWhy(), "card.suspendWhy", kSentenceMax);
      text(info.getMemoryCounted(), "card.memoryCounted", kSentenceMax);
      known(info.getSuspend(), "card.suspend");
      known(info.getIsolation(), "card.isolation");
      known(info.getCounting(), "card.counting");
      known(card.getState(), "card.state");
      known(card.getPolicy(), "card.policy");
      known(card.getTenancy(), "card.tenancy");
    }
  }
  if (list(facts.getEnvironment(), "facts.environment", kEnvironmentMax)) {
    for (const auto entry : facts.getEnvironment()) {
      text(entry, "facts.environment", kEnvironmentTextMax);
    }
  }
}

void Check::held(capnp::List<schema::HeldTask>::Reader tasks) {
  if (!list(tasks, "tasks", kHeldTasksMax)) return;
  for (const auto task : tasks) {
    spec(task.getSpec());
    cards(task.getCards());
    known(task.getState(), "task.state");
  }
}

void Check::clusterSpec(schema::ClusterSpec::Reader wanted) {
  spec(wanted.getTask());
  text(wanted.getNode(), "spec.node");
  text(wanted.getApplication(), "spec.application");
  text(wanted.getGroup(), "spec.group");
  known(wanted.getNodeScore(), "spec.nodeScore");
  known(wanted.getCardScore(), "spec.cardScore");
  if (!list(wanted.getModels(), "spec.models", kModelsMax)) return;
  for (const auto model : wanted.getModels()) text(model, "spec.models");
}

}  // namespace

Status checkMemberMessage(schema::FromMember::Reader message) {
  Check check;
  switch (message.which()) {
    case schema::FromMember::HELLO:
      check.facts(message.getHello().getFacts());
      check.held(message.getHello().getTasks());
      break;
    case schema::FromMember::BEAT:
      break;
    case schema::FromMember::FACTS:
      check.facts(message.getFacts());
      break;
    case schema::FromMember::TASKS:
      check.held(message.getTasks());
      break;
    case schema::FromMember::BOUND:
      check.text(message.getBound().getToken(), "bound.token");
      check.cards(message.getBound().getCards());
      break;
    case schema::FromMember::REFUSED:
      check.failure(message.getRefused().getFailure());
      break;
    case schema::FromMember::FORWARD:
      check.clusterSpec(message.getForward().getSpec());
      break;
    case schema::FromMember::LOST:
      check.wrong("lost", "is not for a member to say");
      break;
    default:
      check.wrong("this message of the member", "is of a later version", ErrorCode::Unsupported);
  }
  return check.status();
}

Status checkSchedulerMessage(schema::ToMember::Reader message) {
  Check check;
  switch (message.which()) {
    case schema::ToMember::WELCOME:
    case schema::ToMember::BEAT_SEEN:
      break;
    case schema::ToMember::BIND:
      check.spec(message.getBind().getSpec());
      check.cards(message.getBind().getCards());
      break;
    case schema::ToMember::END:
      check.text(message.getEnd().getReason(), "end.reason", kSentenceMax);
      break;
    case schema::ToMember::FORWARDED:
      if (message.getForwarded().isFailed()) check.failure(message.getForwarded().getFailed());
      break;
    case schema::ToMember::MARK:
      check.text(message.getMark().getCard(), "mark.card");
      check.known(message.getMark().getMark(), "mark");
      break;
    case schema::ToMember::TURNED_AWAY:
      check.failure(message.getTurnedAway());
      break;
    default:
      check.wrong("this message of the scheduler", "is of a later version", ErrorCode::Unsupported);
  }
  return check.status();
}

}  // namespace qgpu
