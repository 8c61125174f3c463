#include "actors/node/node_reports.h"

#include <algorithm>

#include "actors/node/node_requests.h"
#include "runtime/planted.h"

namespace qgpu {

void NodeReports::setStanding(const std::string& standing) {
  const auto word = [](const std::string& said) { return said.substr(0, said.find(':')); };
  if (word(standing) != word(standing_)) node_.note("cluster", 0, "", standing);
  standing_ = standing;
}

bool NodeReports::onQuestion(const Asker& asker, schema::Request::Reader request, Turn& turn) {
  switch (request.which()) {
    case schema::Request::INFO:
      info(asker);
      return true;
    case schema::Request::CARDS:
      gather(asker, About::Cards, turn);
      return true;
    case schema::Request::TASKS:
      gather(asker, About::Tasks, turn);
      return true;
    case schema::Request::EVENTS:
      events(asker, request.getEvents());
      return true;
    case schema::Request::TRACE:
      trace(asker, request.getTrace());
      return true;
    case schema::Request::LIMITS:
      node_.reply(asker, [this](schema::Reply::Builder answer) {
        unsigned next = 0;
        auto add = [&, list = answer.initLimits(3)](const char* what, std::size_t now,
                                                    std::size_t most, const char* beyond) mutable {
          auto limit = list[next++];
          limit.setWhat(what);
          limit.setNow(now);
          limit.setMost(most);
          limit.setBeyond(beyond);
        };
        add("tasks", bindings_.all().size(), node_.peers().tasks.size(),
            "a bind is refused until one ends");
        add("questions that wait for reports", gathers_.size(), kGathersMax,
            "one more is refused: ask again");
        add("messages that wait to leave", node_.shell().outbox().size(), NodeRequests::kOutboxMax,
            "a change is refused: try again");
      });
      return true;
    default:
      return false;
  }
}

void NodeReports::info(const Asker& asker) {
  const Nanos uptime = startedAt_ ? node_.now() - *startedAt_ : Nanos(0);
  node_.reply(asker, [this, uptime](schema::Reply::Builder answer) {
    auto info = answer.initInfo();
    info.setName(node_.options().name);
    info.setVersion(node_.options().version);
    info.setIncarnation(numbers_.incarnation());
    info.setPid(node_.options().pid);
    info.setUptimeNs(static_cast<std::uint64_t>(uptime.value));
    info.setCards(static_cast<std::uint32_t>(cards_.size()));
    info.setTasks(static_cast<std::uint32_t>(bindings_.all().size()));
    info.setPolicy(word(node_.options().policy));
    info.setMixed(bindings_.mixed());
    const TaskLimit limit = taskLimitOf(node_.options());
    info.setMaxTasksPerCard(limit.configured);
    info.setLeastTasksPerCard(limit.least);
    info.setRealtime(node_.options().realtime);
    info.setStorage(node_.shell().storageText());
    info.setCluster(standing_);
    info.setClusterTerm(numbers_.term());
    info.setOnlineIdleNs(static_cast<std::uint64_t>(node_.options().arbiter.onlineIdle.value));
    info.setSliceMinNs(static_cast<std::uint64_t>(node_.options().arbiter.sliceMin.value));
    info.setSliceMaxNs(static_cast<std::uint64_t>(node_.options().arbiter.sliceMax.value));
  });
}

void NodeReports::events(const Asker& asker, std::uint64_t since) {
  node_.reply(asker, [found = node_.feed().after(since)](schema::Reply::Builder answer) {
    auto list = answer.initEvents(static_cast<unsigned>(found.size()));
    for (unsigned i = 0; i < list.size(); ++i) writeEvent(found[i], list[i]);
  });
}

void NodeReports::trace(const Asker& asker, schema::TraceQuery::Reader query) {
  const Result<std::size_t> card = cards_.find(text(query.getCard()).substr(0, kNameMax + 1));
  if (!card) return node_.replyFailed(asker, card.error());
  const bool asked =
      node_.tellWithin(node_.peers().cards[*card], kAsksPerPeer,
                       [asker, since = query.getSince(),
                        id = cards_.facts(*card).id](schema::Envelope::Builder envelope) {
                         auto trace = envelope.initTraceAsked();
                         trace.setClient(static_cast<std::uint32_t>(asker.client));
                         trace.setCorr(asker.corr);
                         trace.initQuery().setCard(id);
                         trace.getQuery().setSince(since);
                       });
  if (asked) return;
  node_.replyFailed(asker,
                    fail(ErrorCode::Overloaded, std::to_string(kAsksPerPeer) +
                                                    " questions wait for this card already: try "
                                                    "again in a moment"));
}

// --- gathering ---

void NodeReports::gather(const Asker& asker, About about, Turn& turn) {
  if (gathers_.size() >= kGathersMax) {
    return node_.replyFailed(asker,
                             fail(ErrorCode::Overloaded, std::to_string(gathers_.size()) +
                                                             " reports are gathered already: "
                                                             "try again in a moment"));
  }
  const std::uint64_t id = ++lastGather_;
  Gather& gather = gathers_[id];
  gather.asker = asker;
  gather.about = about;
  NodeContext::later(turn, node_.options().gatherMax, NodeTick::Gather, id);
  goOn();
}

bool NodeReports::ask(ActorId peer, std::uint64_t gather) {
  return node_.tellWithin(peer, kAsksPerPeer, [gather](schema::Envelope::Builder envelope) {
    envelope.initReportAsked().setCorr(gather);
  });
}

void NodeReports::goOn() {
  std::size_t room = kAsksAtOnce;
  for (const auto& [id, gather] : gathers_) {
    room -= std::min(room, gather.cards.size() + gather.tasks.size());
  }
  for (auto at = gathers_.begin(); at != gathers_.end();) {
    Gather& gather = at->second;
    const bool allAsked = askRest(at->first, gather, room);
    if (allAsked && gather.cards.empty() && gather.tasks.empty()) {
      answer(gather);
      at = gathers_.erase(at);
    } else {
      ++at;
    }
  }
}

bool NodeReports::askRest(std::uint64_t id, Gather& gather, std::size_t& room) {
  for (; gather.nextCard < cards_.size(); ++gather.nextCard) {
    if (room == 0) return false;
    if (ask(node_.peers().cards[gather.nextCard], id)) {
      gather.cards.insert(gather.nextCard);
      --room;
    }
  }
  if (gather.about == About::Cards) return true;
  const auto& bound = bindings_.all();
  for (auto at = bound.lower_bound(gather.nextTask); at != bound.end(); ++at) {
    gather.nextTask = at->first;
    if (room == 0) return false;
    if (ask(bindings_.actorOf(at->second), id)) {
      gather.tasks.insert(at->first);
      --room;
    }
    ++gather.nextTask;
  }
  return true;
}

void NodeReports::onCardReport(schema::CardReport::Reader report) {
  const std::optional<std::size_t> card = cards_.onReport(report);
  const auto waiting = gathers_.find(report.getCorr());
  if (!card || waiting == gathers_.end()) return;
  waiting->second.cards.erase(*card);
  goOn();
}

void NodeReports::onTaskReport(schema::TaskReport::Reader report) {
  if (Binding* binding = bindings_.find(report.getTask())) {
    binding->phase = readPhase(report.getState());
    binding->figures = readFigures(report.getUse());
  }
  const auto waiting = gathers_.find(report.getCorr());
  if (waiting == gathers_.end()) return;
  waiting->second.tasks.erase(report.getTask());
  goOn();
}

void NodeReports::onGatherDue(std::uint64_t id) {
  const auto found = gathers_.find(id);
  if (found == gathers_.end()) return;
  QGPU_MARK(GatherTimedOut);
  answer(found->second);
  gathers_.erase(found);
  goOn();
}

void NodeReports::answer(const Gather& gather) {
  if (gather.about == About::Cards) {
    return node_.reply(gather.asker, [this](schema::Reply::Builder answer) {
      auto list = answer.initCards(static_cast<unsigned>(cards_.size()));
      for (unsigned i = 0; i < list.size(); ++i) cards_.write(i, list[i]);
    });
  }
  node_.reply(gather.asker, [this](schema::Reply::Builder answer) {
    auto list = answer.initTasks(static_cast<unsigned>(bindings_.all().size()));
    unsigned i = 0;
    for (const auto& [task, binding] : bindings_.all()) writeTask(task, binding, list[i++]);
  });
}

void NodeReports::writeTask(std::uint64_t task, const Binding& binding,
                            schema::TaskInfo::Builder builder) const {
  const Placement& placement = bindings_.placement(task);
  builder.setId(task);
  writeSpec(binding.spec, builder.initSpec());
  builder.setCard(bindings_.cardIds(placement));
  builder.setState(word(binding.phase));
  builder.setEvicting(binding.evicting);
  auto use = builder.initUse();
  writeFigures(binding.figures, use);
  use.setProcesses(binding.processes);
  const ShareFigures shares = cards_.sharesOf(task, placement);
  writeShares(shares, use);
  builder.setQuarantined(shares.quarantined);
  builder.setNote(shares.note);
}

}  // namespace qgpu
