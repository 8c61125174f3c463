#include "services/rpc/node_service.h"

#include "services/admin/words.h"
#include "services/rpc/checked.h"
#include "services/rpc/rpc_calls.h"

namespace qgpu {
namespace {

class NodeService final : public schema::Node::Server, private RpcCalls<NodeWords> {
 public:
  NodeService(NodeDoor& door, kj::Own<RpcSession> session, kj::Maybe<KubeletDesks&> desks)
      : RpcCalls(door, kj::mv(session)), desks_(desks) {}

  kj::Promise<void> info(InfoContext context) override {
    return call(context, [](schema::Request::Builder request) { request.setInfo(); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setInfo(reply.getInfo());
                });
  }

  kj::Promise<void> cards(CardsContext context) override {
    return call(context, [](schema::Request::Builder request) { request.setCards(); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setCards(reply.getCards());
                });
  }

  kj::Promise<void> tasks(TasksContext context) override {
    return call(context, [](schema::Request::Builder request) { request.setTasks(); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setTasks(reply.getTasks());
                });
  }

  kj::Promise<void> events(EventsContext context) override {
    const std::uint64_t since = context.getParams().getSince();
    return call(context, [since](schema::Request::Builder request) { request.setEvents(since); },
                [context](schema::Reply::Reader reply) mutable {
                  context.getResults().setEvents(reply.getEvents());
                });
  }

  kj::Promise<void> bind(BindContext context) override {
    requireOwnTasks();
    const CheckedSpec spec(context.getParams().getSpec(), session().peer,
                           session().face == Face::Unix);
    context.releaseParams();
    return call(context, [&spec](schema::Request::Builder r) { spec.fill(r.initBind()); },
                [context](schema::Reply::Reader reply) mutable {
                  const auto bound = reply.getBound();
                  auto results = context.getResults();
                  results.setTask(bound.getTask());
                  results.setToken(bound.getToken());
                  results.setCards(bound.getCards());
                  results.setAttachSocket(bound.getAttachSocket());
                });
  }

  kj::Promise<void> unbind(UnbindContext context) override {
    requireOwnTasks();
    const std::uint64_t task = context.getParams().getTask();
    return call(context, [task](schema::Request::Builder request) { request.setUnbind(task); },
                [](schema::Reply::Reader) {});
  }

  kj::Promise<void> setPolicy(SetPolicyContext context) override {
    requireChange();
    const auto params = context.getParams();
    const std::string card = checkedText(params.getCard(), "card");
    const schema::Policy policy = params.getPolicy();
    if (policyName(policy) == "unknown") {
      return refusal(ErrorCode::InvalidArgument, "policy: this daemon does not know it");
    }
    return call(
        context, [&](schema::Request::Builder request) {
          auto wanted = request.initPolicy();
          wanted.setCard(ptr(card));
          wanted.setPolicy(policy);
        },
        [](schema::Reply::Reader) {});
  }

  kj::Promise<void> cordon(CordonContext context) override {
    requireChange();
    const std::string card = checkedText(context.getParams().getCard(), "card");
    return call(context, [&](schema::Request::Builder request) { request.setCordon(ptr(card)); },
                [](schema::Reply::Reader) {});
  }

  kj::Promise<void> uncordon(UncordonContext context) override {
    requireChange();
    const std::string card = checkedText(context.getParams().getCard(), "card");
    return call(context, [&](schema::Request::Builder request) { request.setUncordon(ptr(card)); },
                [](schema::Reply::Reader) {});
  }

  kj::Promise<void> watch(WatchContext context) override {
    return RpcCalls::watch<schema::Subscription>(context, context.getParams().getWatcher(), 0);
  }

  kj::Promise<void> kubelet(KubeletContext context) override {
    requireChange();
    KJ_IF_MAYBE(desks, desks_) {
      context.getResults().setDesk(desks->serve(share()));
      return kj::READY_NOW;
    }
    return refusal(ErrorCode::Unsupported,
                   "this manager serves no kubelet: start it with --kubelet=on");
  }

 private:
  kj::Maybe<KubeletDesks&> desks_;
};

}  // namespace

capnp::Capability::Client NodeRpc::serve(kj::Own<RpcSession> session) {
  return schema::Node::Client(kj::heap<NodeService>(door_, kj::mv(session), desks_));
}

}  // namespace qgpu
