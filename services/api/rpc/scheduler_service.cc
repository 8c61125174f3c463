#include "services/api/rpc/scheduler_service.h"

#include "services/api/rpc/rpc_calls.h"

namespace qgpu {
namespace {

using Ask = schema::ClusterRequest::Builder;
using Reply = schema::ClusterReply::Reader;

class RegistryServer final : public schema::Registry::Server {
 public:
  RegistryServer(Links& links, kj::Own<RpcSession> session)
      : links_(links), session_(kj::mv(session)) {}

  kj::Promise<void> join(JoinContext context) override {
    const auto params = context.getParams();
    const auto takes = params.getGathers() ? Links::Takes::Gathered : Links::Takes::Words;
    context.allowCancellation();  // nobody waits for one that acts longer than its connection
    return links_.join(kj::addRef(*session_), params.getNode(), takes)
        .then([context](schema::SchedulerEnd::Client scheduler) mutable {
          auto results = context.getResults();
          results.setScheduler(kj::mv(scheduler));
          results.setGathers(true);
          results.setBeats(true);
        });
  }

 private:
  Links& links_;
  kj::Own<RpcSession> session_;
};

// As far as the call says which page of a list it asks for.
template <typename Params>
void setPage(Ask ask, Params params) {
  if (params.hasPage()) ask.setPage(params.getPage());
}

class SchedulerService final : public schema::Scheduler::Server, private RpcCalls<ClusterApi> {
 public:
  SchedulerService(ClusterActorClient& actor, Links& links, Housekeeping& keeping,
                   kj::Own<RpcSession> session)
      : RpcCalls(actor, kj::mv(session), keeping), links_(links) {}

  kj::Promise<void> ask(AskContext context) override {
    return command(
        context, [&](Ask ask) { copyQuestion(context.getParams().getRequest(), ask); },
        [context](Reply reply) mutable { context.getResults().setReply(reply); });
  }

  kj::Promise<void> info(InfoContext context) override {
    return command(
        context, [](Ask ask) { ask.setInfo(); },
        [context](Reply reply) mutable { context.getResults().setInfo(reply.getInfo()); });
  }

  kj::Promise<void> nodes(NodesContext context) override {
    return command(
        context,
        [&](Ask ask) {
          ask.setNodes();
          setPage(ask, context.getParams());
        },
        [context](Reply reply) mutable {
          context.getResults().setNodes(reply.getNodes());
          context.getResults().setNext(reply.getNext());
        });
  }

  kj::Promise<void> cards(CardsContext context) override {
    return command(
        context,
        [&](Ask ask) {
          ask.setCards();
          setPage(ask, context.getParams());
        },
        [context](Reply reply) mutable {
          context.getResults().setCards(reply.getCards());
          context.getResults().setNext(reply.getNext());
        });
  }

  kj::Promise<void> list(ListContext context) override {
    return command(
        context,
        [&](Ask ask) {
          ask.initTasks(0);
          setPage(ask, context.getParams());
        },
        [context](Reply reply) mutable {
          context.getResults().setTasks(reply.getTasks());
          context.getResults().setNext(reply.getNext());
        });
  }

  kj::Promise<void> submit(SubmitContext context) override {
    return command(
        context, [&](Ask ask) { ask.setSubmit(context.getParams().getSpec()); },
        [context](Reply reply) mutable { context.getResults().setAssigned(reply.getAssigned()); });
  }

  kj::Promise<void> delete_(DeleteContext context) override {
    return change(context, [&](Ask ask) { ask.setDelete(context.getParams().getTask()); });
  }

  // What everybody may read of a task; and what its launcher needs, for its owner alone.
  kj::Promise<void> get(GetContext context) override {
    const std::uint64_t task = context.getParams().getTask();
    return call(
               context, [task](Ask ask) { ask.initTasks(1).set(0, task); },
               [context, task](Reply reply) mutable {
                 if (reply.getTasks().size() != 1) {
                   kj::throwFatalException(
                       refusal(ErrorCode::NotFound, "no task " + std::to_string(task)));
                 }
                 context.getResults().setTask(reply.getTasks()[0]);
               })
        .then([this, context, task]() mutable -> kj::Promise<void> {
          if (!session().mayOwnTasks()) return kj::READY_NOW;
          return call(
                     context, [task](Ask ask) { ask.setAssigned(task); },
                     [context](Reply reply) mutable {
                       context.getResults().setAssigned(reply.getAssigned());
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
    return command(
        context, [&](Ask ask) { ask.setEvents(context.getParams().getSince()); },
        [context](Reply reply) mutable { context.getResults().setEvents(reply.getEvents()); });
  }

  kj::Promise<void> explain(ExplainContext context) override {
    return explained(context, [&](Ask ask) { ask.setExplain(context.getParams().getTask()); });
  }

  kj::Promise<void> explainSpec(ExplainSpecContext context) override {
    return explained(context, [&](Ask ask) { ask.setExplainSpec(context.getParams().getSpec()); });
  }

  kj::Promise<void> whatIf(WhatIfContext context) override {
    return tried(context, [&](Ask ask) { ask.setWhatIf(context.getParams().getQuestion()); });
  }

  kj::Promise<void> preemptDryRun(PreemptDryRunContext context) override {
    return tried(context, [&](Ask ask) { ask.setPreempt(context.getParams().getTask()); });
  }

  kj::Promise<void> cordon(CordonContext context) override {
    return change(context, [&](Ask ask) { ask.setCordon(context.getParams().getTarget()); });
  }

  kj::Promise<void> uncordon(UncordonContext context) override {
    return change(context, [&](Ask ask) { ask.setUncordon(context.getParams().getTarget()); });
  }

  kj::Promise<void> drain(DrainContext context) override {
    return change(context, [&](Ask ask) {
      auto drain = ask.initDrain();
      drain.setTarget(context.getParams().getTarget());
      drain.setTimeoutNs(context.getParams().getTimeoutNs());
    });
  }

  kj::Promise<void> setPriority(SetPriorityContext context) override {
    return change(context, [&](Ask ask) { ask.setPriority(context.getParams().getScore()); });
  }

  kj::Promise<void> snapshot(SnapshotContext context) override {
    return change(context, [](Ask ask) { ask.setSnapshot(); });
  }

  kj::Promise<void> setLogLevel(SetLogLevelContext context) override {
    return change(context, [&](Ask ask) { ask.setLogLevel(context.getParams().getLevel()); });
  }

  kj::Promise<void> registry(RegistryContext context) override {
    context.getResults().setRegistry(kj::heap<RegistryServer>(links_, share()));
    return kj::READY_NOW;
  }

 private:
  template <typename Context, typename Build>
  kj::Promise<void> change(Context context, Build&& build) {
    return command(context, build, [context](Reply reply) mutable {
      context.getResults().setDone(reply.isDone() ? reply.getDone() : "done");
    });
  }

  template <typename Context, typename Build>
  kj::Promise<void> explained(Context context, Build&& build) {
    return command(context, build, [context](Reply reply) mutable {
      context.getResults().setExplanation(reply.getExplanation());
    });
  }

  template <typename Context, typename Build>
  kj::Promise<void> tried(Context context, Build&& build) {
    return command(context, build, [context](Reply reply) mutable {
      context.getResults().setAnswer(reply.getWhatIf());
    });
  }

  Links& links_;
};

}  // namespace

capnp::Capability::Client SchedulerRpc::serve(kj::Own<RpcSession> session) {
  return schema::Scheduler::Client(
      kj::heap<SchedulerService>(actor_, links_, keeping_, kj::mv(session)));
}

RpcLimits SchedulerRpc::limits() {
  RpcLimits limits;
  limits.connectionsMax = 2'048;  // those that did not join; nodes are counted by Links
  limits.connectionsReserved = 1'024;
  limits.callsMax = 1'024;
  limits.trustedWordsMax = 512 * 1024;  // a hello with all tasks of a node
  limits.trustedFlowWordsMax = 1024 * 1024;
  return limits;
}

}  // namespace qgpu
