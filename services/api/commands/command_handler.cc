#include "services/api/commands/command_handler.h"

#include "services/api/commands/render.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

// The document of a peer that may read only and asked for a change of `what`.
std::string refuseChange(const Peer& peer, std::string_view what) {
  return renderError(fail(ErrorCode::Denied, "uid " + std::to_string(peer.uid) +
                                                 " may read only: root, the daemon's own user "
                                                 "and group qgpu may change " +
                                                 std::string(what)));
}

// Base64 needs no escapes.
std::string renderFile(const std::string& base64) {
  return "{\"ok\":true,\"file\":\"" + base64 + "\"}";
}

std::string renderStatus(const Status& status, std::string_view done) {
  return status ? renderDone(done) : renderError(status.error());
}

// Events after `since` of a client, as an answer to `watch`.
template <typename Api>
kj::Promise<AdminAnswer> watchFrom(ActorClient<Api>& actor, const Peer& peer, std::uint64_t since) {
  return Feed<Api>::open(actor, peer, since)
      .then([](Result<kj::Own<Feed<Api>>> feed) -> AdminAnswer {
        if (!feed) return renderError(feed.error());
        kj::Own<Feed<Api>> events = kj::mv(feed.value());
        return {renderWatching(), [events = kj::mv(events)]() mutable { return events->next(); }};
      });
}

}  // namespace

template <typename Api>
kj::Promise<AdminAnswer> CommandHandler<Api>::answer(const Peer& peer, std::string line) {
  Result<Command> command = parseCommand(line, kSideOf<Api>);
  if (!command) return AdminAnswer(renderError(command.error()));
  const CommandRow& row = *command->row;
  Arguments& given = command->given;
  if (row.does == Does::Help) return AdminAnswer(renderHelp(kSideOf<Api>));
  if (row.does == Does::Watch) return watchFrom(actor_, peer, given.number);
  if (row.right == Right::Change && !peer.mayChange) {
    return AdminAnswer(refuseChange(peer, Api::kChanged));
  }
  if (row.does == Does::Invite) return invite(peer, std::move(*command));
  given.spec.task.ownerUid = peer.uid;
  if (row.does == Does::Run && given.owned) {
    if (const Status owned = own(peer, given.spec.task); !owned) {
      return AdminAnswer(renderError(owned.error()));
    }
  }
  return command->isList() ? list(peer, std::move(*command)) : ask(peer, std::move(*command));
}

template <typename Api>
kj::Promise<AdminAnswer> CommandHandler<Api>::ask(const Peer& peer, Command command) {
  auto asked = actor_.ask(
      peer, [&command](typename Api::Request::Builder request) { fillRequest(request, command); });
  using Answered = Result<typename ActorClient<Api>::Answer>;
  return asked.then([this, command = std::move(command)](Answered got) -> kj::Promise<AdminAnswer> {
    if (!got) return AdminAnswer(renderError(got.error()));
    return finish(command, got->reply());
  });
}

// The actor permits and audits, then the daemon acts.
template <typename Api>
kj::Promise<AdminAnswer> CommandHandler<Api>::finish(const Command& command, Reply reply) {
  std::string done(reply.isDone() ? view(reply.getDone()) : std::string_view());
  if (command.row->does == Does::Snapshot) {
    return snapshotOf(keeping_).then([done = std::move(done)](const Status& status) {
      return AdminAnswer(renderStatus(status, done));
    });
  }
  if (command.row->does == Does::Save) {
    return saveOf(keeping_).then([](const Result<std::string>& file) {
      return AdminAnswer(file ? renderFile(*file) : renderError(file.error()));
    });
  }
  if (command.row->does == Does::LogLevel) {
    return AdminAnswer(renderStatus(keeping_.setLogLevel(command.given.level), done));
  }
  return AdminAnswer(render(reply));
}

template class CommandHandler<NodeApi>;
template class CommandHandler<ClusterApi>;

}  // namespace qgpu
