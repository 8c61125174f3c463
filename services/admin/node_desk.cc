#include "services/admin/node_desk.h"

#include <optional>

#include "services/admin/words.h"
#include "services/base/process.h"

namespace qgpu {
namespace {

// The request that a command stands for. Help, watch and run are the desk's own.
void fillRequest(schema::Request::Builder request, const Command& command) {
  switch (command.verb) {
    case Verb::Info: request.setInfo(); return;
    case Verb::Cards: request.setCards(); return;
    case Verb::Tasks: request.setTasks(); return;
    case Verb::Events: request.setEvents(command.number); return;
    case Verb::Cordon: request.setCordon(ptr(command.card)); return;
    case Verb::Uncordon: request.setUncordon(ptr(command.card)); return;
    case Verb::Drain: request.setDrain(ptr(command.card)); return;
    case Verb::Evict: request.setEvict(command.number); return;
    case Verb::End: request.setUnbind(command.number); return;
    case Verb::Snapshot: request.setSnapshot(); return;
    case Verb::LogLevel: request.setLogLevel(ptr(command.level)); return;
    case Verb::Policy: {
      auto policy = request.initPolicy();
      policy.setCard(ptr(command.card));
      policy.setPolicy(command.policy);
      return;
    }
    case Verb::Help:
    case Verb::Watch:
    case Verb::Run: break;
  }
  QGPU_CHECK(false, "the desk answers help, watch and run itself");
}

}  // namespace

kj::Promise<AdminAnswer> NodeDesk::answer(const Peer& peer, std::string line) {
  Result<Command> command = parseCommand(line);
  if (!command) return AdminAnswer(renderError(command.error()));
  switch (command->verb) {
    case Verb::Help: return AdminAnswer(renderHelp(commandInfos()));
    case Verb::Watch: return watchFrom(door_, peer, command->number);
    case Verb::Run: return bind(peer, command->spec);
    default: break;
  }
  if (command->changes && !peer.mayChange) return AdminAnswer(refuseChange(peer, "a node"));
  return ask(peer, std::move(*command));
}

kj::Promise<AdminAnswer> NodeDesk::ask(const Peer& peer, Command command) {
  auto asked = door_.ask(
      peer, [&command](schema::Request::Builder request) { fillRequest(request, command); });
  return asked.then(
      [this, command = std::move(command)](Result<Answer> got) -> kj::Promise<AdminAnswer> {
        if (!got) return AdminAnswer(renderError(got.error()));
        const auto reply = got->reply();
        const std::string done(reply.isDone() ? view(reply.getDone()) : std::string_view());
        if (command.verb == Verb::Snapshot) return keepSnapshot(keeping_, done);
        if (command.verb == Verb::LogLevel) return keepLogLevel(keeping_, command.level, done);
        return AdminAnswer(renderReply(reply, nodeName_));
      });
}

kj::Promise<AdminAnswer> NodeDesk::bind(const Peer& peer, const RunSpec& spec) {
  std::uint64_t start = 0;
  if (spec.owned) {
    const auto known = peer.pid == 0 ? std::nullopt : processStart(peer.pid);
    if (!known) {
      return AdminAnswer(renderError(
          fail(ErrorCode::InvalidArgument,
               "the process that asks (pid " + std::to_string(peer.pid) +
                   ") is not visible here, so its end can't be seen; ask with "
                   "\"owner\":\"none\" and end the task by hand")));
    }
    start = *known;
  }
  auto asked = door_.ask(peer, [&](schema::Request::Builder request) {
    auto task = request.initBind();
    fillTask(task, spec, peer.uid);
    if (!spec.owned) return;
    task.setOwnerPid(peer.pid);
    task.setOwnerStart(start);
  });
  return asked.then([this](Result<Answer> got) -> AdminAnswer {
    if (!got) return renderError(got.error());
    const auto reply = got->reply();
    if (!reply.isBound()) return renderReply(reply, nodeName_);
    return renderBound(reply.getBound(), environment_);
  });
}

}  // namespace qgpu
