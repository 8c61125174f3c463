#include "services/rpc/scheduler_service.h"

#include "actors/what_if.h"
#include "services/admin/words.h"
#include "services/rpc/checked.h"
#include "services/rpc/rpc_calls.h"

namespace qgpu {
namespace {

using Ask = schema::ClusterRequest::Builder;
using Told = schema::ClusterReply::Reader;

// What a peer asks to be tried, as plain values.
struct CheckedWhatIf {
  CheckedWhatIf(schema::WhatIf::Reader question, const Peer& peer) {
    if (question.isPlace()) {
      spec.emplace(question.getPlace().getSpec(), peer);
      count = question.getPlace().getCount();
      if (count == 0 || count > WhatIf::kCountMax) {
        kj::throwFatalException(refusal(ErrorCode::InvalidArgument,
                                        "place.count is 1 to " +
                                            std::to_string(WhatIf::kCountMax)));
      }
    } else if (question.isDrain()) {
      target.emplace(question.getDrain());
    } else {
      kj::throwFatalException(
          refusal(ErrorCode::Unsupported, "this question is of a later version"));
    }
  }
  void fill(schema::WhatIf::Builder out) const {
    if (target) return target->fill(out.initDrain());
    auto place = out.initPlace();
    spec->fill(place.initSpec());
    place.setCount(count);
  }

  std::optional<CheckedClusterSpec> spec;
  std::optional<CheckedTarget> target;
  std::uint32_t count = 0;
};

class RegistryServer final : public schema::Registry::Server {
 public:
  RegistryServer(Links& links, kj::Own<RpcSession> session)
      : links_(links), session_(kj::mv(session)) {}

  kj::Promise<void> join(JoinContext context) override {
    const auto params = context.getParams();
    const auto takes = params.getGathers() ? Links::Takes::Gathered : Links::Takes::Words;
    auto results = context.getResults();
    results.setScheduler(links_.join(*session_, params.getNode(), takes));
    results.setGathers(true);
    results.setBeats(true);
    return kj::READY_NOW;
  }

 private:
  Links& links_;
  kj::Own<RpcSession> session_;
};

// Which page of a list a peer asks for; whole lists where it names none.
struct PageAsked {
  explicit PageAsked(schema::Page::Reader page, bool named)
      : given(named), after(page.getAfter()), most(page.getMost()) {}
  void fill(Ask ask) const {
    if (!given) return;
    ask.initPage().setAfter(after);
    ask.getPage().setMost(most);
  }
  const bool given;
  const std::uint64_t after;
  const std::uint32_t most;
};

class SchedulerService final : public schema::Scheduler::Server, private RpcCalls<ClusterWords> {
 public:
  SchedulerService(ClusterDoor& door, Links& links, Housekeeping& keeping,
                   kj::Own<RpcSession> session)
      : RpcCalls(door, kj::mv(session)), links_(links), keeping_(keeping) {}

  kj::Promise<void> info(InfoContext context) override {
    return call(context, [](Ask ask) { ask.setInfo(); },
                [context](Told told) mutable { context.getResults().setInfo(told.getInfo()); });
  }

  kj::Promise<void> nodes(NodesContext context) override {
    const PageAsked page(context.getParams().getPage(), context.getParams().hasPage());
    auto fill = [&page](Ask ask) {
      ask.setNodes();
      page.fill(ask);
    };
    return call(context, fill,
                [context](Told told) mutable {
                  context.getResults().setNodes(told.getNodes());
                  context.getResults().setNext(told.getNext());
                },
                Size::Large);
  }

  kj::Promise<void> cards(CardsContext context) override {
    const PageAsked page(context.getParams().getPage(), context.getParams().hasPage());
    auto fill = [&page](Ask ask) {
      ask.setCards();
      page.fill(ask);
    };
    return call(context, fill,
                [context](Told told) mutable {
                  context.getResults().setCards(told.getCards());
                  context.getResults().setNext(told.getNext());
                },
                Size::Large);
  }

  kj::Promise<void> list(ListContext context) override {
    const PageAsked page(context.getParams().getPage(), context.getParams().hasPage());
    auto fill = [&page](Ask ask) {
      ask.initTasks(0);
      page.fill(ask);
    };
    return call(context, fill,
                [context](Told told) mutable {
                  context.getResults().setTasks(told.getTasks());
                  context.getResults().setNext(told.getNext());
                },
                Size::Large);
  }

  kj::Promise<void> submit(SubmitContext context) override {
    requireOwnTasks();
    const CheckedClusterSpec spec(context.getParams().getSpec(), session().peer);
    context.releaseParams();
    return call(context, [&spec](Ask ask) { spec.fill(ask.initSubmit()); },
                [context](Told told) mutable {
                  context.getResults().setAssigned(told.getAssigned());
                });
  }

  kj::Promise<void> delete_(DeleteContext context) override {
    requireOwnTasks();
    const std::uint64_t task = context.getParams().getTask();
    return changeWith(context, [task](Ask ask) { ask.setDelete(task); });
  }

  // What everybody may read of a task; and what its launcher needs, for its owner alone.
  kj::Promise<void> get(GetContext context) override {
    const std::uint64_t task = context.getParams().getTask();
    return call(
               context, [task](Ask ask) { ask.initTasks(1).set(0, task); },
               [context, task](Told told) mutable {
                 if (told.getTasks().size() != 1) {
                   kj::throwFatalException(
                       refusal(ErrorCode::NotFound, "no task " + std::to_string(task)));
                 }
                 context.getResults().setTask(told.getTasks()[0]);
               })
        .then([this, context, task]() mutable -> kj::Promise<void> {
          if (!session().mayOwnTasks()) return kj::READY_NOW;
          return call(context, [task](Ask ask) { ask.setAssigned(task); },
                      [context](Told told) mutable {
                        context.getResults().setAssigned(told.getAssigned());
                      })
              .catch_([](kj::Exception&& exception) {
                const ErrorCode code = fromException(exception).code;
                if (code == ErrorCode::Denied || code == ErrorCode::NotFound) return;
                kj::throwFatalException(kj::mv(exception));
              });
        });
  }

  kj::Promise<void> watch(WatchContext context) override {
    const auto params = context.getParams();
    return RpcCalls::watch<schema::ClusterSubscription>(context, params.getWatcher(),
                                                        params.getSince());
  }

  kj::Promise<void> events(EventsContext context) override {
    const std::uint64_t since = context.getParams().getSince();
    return call(context, [since](Ask ask) { ask.setEvents(since); },
                [context](Told told) mutable { context.getResults().setEvents(told.getEvents()); },
                Size::Large);
  }

  kj::Promise<void> explain(ExplainContext context) override {
    const std::uint64_t task = context.getParams().getTask();
    return explainWith(context, [task](Ask ask) { ask.setExplain(task); });
  }

  kj::Promise<void> explainSpec(ExplainSpecContext context) override {
    const CheckedClusterSpec spec(context.getParams().getSpec(), session().peer);
    return explainWith(context, [&spec](Ask ask) { spec.fill(ask.initExplainSpec()); });
  }

  kj::Promise<void> whatIf(WhatIfContext context) override {
    const CheckedWhatIf question(context.getParams().getQuestion(), session().peer);
    return whatIfWith(context, [&question](Ask ask) { question.fill(ask.initWhatIf()); });
  }

  kj::Promise<void> preemptDryRun(PreemptDryRunContext context) override {
    const std::uint64_t task = context.getParams().getTask();
    return whatIfWith(context, [task](Ask ask) { ask.setPreempt(task); });
  }

  kj::Promise<void> cordon(CordonContext context) override {
    requireChange();
    const CheckedTarget target(context.getParams().getTarget());
    return changeWith(context, [&](Ask ask) { target.fill(ask.initCordon()); });
  }

  kj::Promise<void> uncordon(UncordonContext context) override {
    requireChange();
    const CheckedTarget target(context.getParams().getTarget());
    return changeWith(context, [&](Ask ask) { target.fill(ask.initUncordon()); });
  }

  kj::Promise<void> drain(DrainContext context) override {
    requireChange();
    const CheckedTarget target(context.getParams().getTarget());
    const std::uint64_t timeoutNs = context.getParams().getTimeoutNs();
    return changeWith(context, [&](Ask ask) {
      auto drain = ask.initDrain();
      target.fill(drain.initTarget());
      drain.setTimeoutNs(timeoutNs);
    });
  }

  kj::Promise<void> setPriority(SetPriorityContext context) override {
    requireChange();
    const schema::Score score = checkedScore(context.getParams().getScore(), "score");
    return changeWith(context, [score](Ask ask) { ask.setPriority(score); });
  }

  // The actor permits and audits, then the daemon acts.
  kj::Promise<void> snapshot(SnapshotContext context) override {
    requireChange();
    return changeWith(context, [](Ask ask) { ask.setSnapshot(); })
        .then([this]() { return snapshotOf(keeping_); })
        .then([](const Status& status) { throwUnless(status); });
  }

  kj::Promise<void> setLogLevel(SetLogLevelContext context) override {
    requireChange();
    const std::string level = checkedText(context.getParams().getLevel(), "level");
    return changeWith(context, [&level](Ask ask) { ask.setLogLevel(ptr(level)); })
        .then([this, level]() { throwUnless(keeping_.setLogLevel(level)); });
  }

  kj::Promise<void> registry(RegistryContext context) override {
    context.getResults().setRegistry(kj::heap<RegistryServer>(links_, share()));
    return kj::READY_NOW;
  }

 private:
  static void throwUnless(const Status& status) {
    if (!status) kj::throwFatalException(toException(status.error()));
  }

  template <typename Context, typename Fill>
  kj::Promise<void> changeWith(Context context, Fill fill) {
    return call(context, fill, [context](Told told) mutable {
      context.getResults().setDone(told.isDone() ? told.getDone() : "done");
    });
  }

  template <typename Context, typename Fill>
  kj::Promise<void> explainWith(Context context, Fill fill) {
    return call(context, fill,
                [context](Told told) mutable {
                  context.getResults().setExplanation(told.getExplanation());
                },
                Size::Large);
  }

  template <typename Context, typename Fill>
  kj::Promise<void> whatIfWith(Context context, Fill fill) {
    return call(context, fill,
                [context](Told told) mutable { context.getResults().setAnswer(told.getWhatIf()); },
                Size::Large);
  }

  Links& links_;
  Housekeeping& keeping_;
};

}  // namespace

capnp::Capability::Client SchedulerRpc::serve(kj::Own<RpcSession> session) {
  return schema::Scheduler::Client(
      kj::heap<SchedulerService>(door_, links_, keeping_, kj::mv(session)));
}

RpcLimits SchedulerRpc::limits() {
  RpcLimits limits;
  limits.connectionsMax = 2'048;       // those that did not join; nodes are counted by Links
  limits.connectionsReserved = 1'024;
  limits.callsMax = 1'024;
  limits.trustedWordsMax = 512 * 1024;   // a hello with all tasks of a node
  limits.trustedFlowWordsMax = 1024 * 1024;
  return limits;
}

}  // namespace qgpu
