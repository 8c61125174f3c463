#include "services/api/rpc/node_service.h"

#include "services/api/commands/schema_names.h"
#include "services/api/rpc/rpc_calls.h"

namespace qgpu {
namespace {

using Ask = schema::Request::Builder;
using Reply = schema::Reply::Reader;

class NodeService final : public schema::Node::Server, private RpcCalls<NodeApi> {
 public:
  NodeService(NodeActorClient& actor, kj::Maybe<Housekeeping&> keeping, kj::Own<RpcSession> session,
              kj::Maybe<KubeletHandlers&> handlers)
      : RpcCalls(actor, kj::mv(session), keeping), handlers_(handlers) {}

  kj::Promise<void> ask(AskContext context) override {
    return command(
        context, [&](Ask request) { copyQuestion(context.getParams().getRequest(), request); },
        [context](Reply reply) mutable { context.getResults().setReply(reply); });
  }

  kj::Promise<void> info(InfoContext context) override {
    return command(
        context, [](Ask request) { request.setInfo(); },
        [context](Reply reply) mutable { context.getResults().setInfo(reply.getInfo()); });
  }

  kj::Promise<void> cards(CardsContext context) override {
    return command(
        context, [](Ask request) { request.setCards(); },
        [context](Reply reply) mutable { context.getResults().setCards(reply.getCards()); });
  }

  kj::Promise<void> tasks(TasksContext context) override {
    return command(
        context, [](Ask request) { request.setTasks(); },
        [context](Reply reply) mutable { context.getResults().setTasks(reply.getTasks()); });
  }

  kj::Promise<void> events(EventsContext context) override {
    return command(
        context, [&](Ask request) { request.setEvents(context.getParams().getSince()); },
        [context](Reply reply) mutable { context.getResults().setEvents(reply.getEvents()); });
  }

  kj::Promise<void> bind(BindContext context) override {
    return command(
        context, [&](Ask request) { request.setBind(context.getParams().getSpec()); },
        [context](Reply reply) mutable {
          const auto bound = reply.getBound();
          auto results = context.getResults();
          results.setTask(bound.getTask());
          results.setToken(bound.getToken());
          results.setCards(bound.getCards());
          results.setAttachSocket(bound.getAttachSocket());
        });
  }

  kj::Promise<void> unbind(UnbindContext context) override {
    return command(
        context, [&](Ask request) { request.setUnbind(context.getParams().getTask()); },
        [](Reply) {});
  }

  kj::Promise<void> setPolicy(SetPolicyContext context) override {
    return command(
        context,
        [&](Ask request) {
          auto wanted = request.initPolicy();
          wanted.setCard(context.getParams().getCard());
          wanted.setPolicy(context.getParams().getPolicy());
        },
        [](Reply) {});
  }

  kj::Promise<void> cordon(CordonContext context) override {
    return command(
        context, [&](Ask request) { request.setCordon(context.getParams().getCard()); },
        [](Reply) {});
  }

  kj::Promise<void> uncordon(UncordonContext context) override {
    return command(
        context, [&](Ask request) { request.setUncordon(context.getParams().getCard()); },
        [](Reply) {});
  }

  kj::Promise<void> watch(WatchContext context) override {
    return RpcCalls::watch<schema::Subscription>(context, context.getParams().getWatcher(), 0);
  }

  kj::Promise<void> kubelet(KubeletContext context) override {
    requireChange();
    KJ_IF_MAYBE (handlers, handlers_) {
      context.getResults().setHandler(handlers->serve(share()));
      return kj::READY_NOW;
    }
    return refusal(ErrorCode::Unsupported,
                   "this manager serves no kubelet: start it with --kubelet=on");
  }

 private:
  kj::Maybe<KubeletHandlers&> handlers_;
};

}  // namespace

capnp::Capability::Client NodeRpc::serve(kj::Own<RpcSession> session) {
  return schema::Node::Client(kj::heap<NodeService>(actor_, keeping_, kj::mv(session), handlers_));
}

}  // namespace qgpu
