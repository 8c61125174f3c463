// Answers to clients. What cards and task actors know is asked of them for each question; whoever
// does not answer in time is shown as in its last report.
#include <algorithm>
#include <memory>

#include "actors/node/node_actor.h"

namespace qgpu {

void NodeActor::reply(const Asker& asker, Outbox::Build build) {
  shell_.outbox().putWithin(asker.client, kRepliesPerClient, std::move(build));
}

void NodeActor::replyFailed(const std::optional<Asker>& asker, const Error& error) {
  if (!asker) return;
  reply(*asker, [corr = asker->corr, error](schema::Envelope::Builder envelope) {
    auto failed = envelope.initReply();
    failed.setCorr(corr);
    failed.initFailed().setCode(errorName(error.code));
    failed.getFailed().setMessage(error.message);
  });
}

void NodeActor::replyDone(const std::optional<Asker>& asker, const std::string& said) {
  if (!asker) return;
  reply(*asker, [corr = asker->corr, said](schema::Envelope::Builder envelope) {
    auto done = envelope.initReply();
    done.setCorr(corr);
    done.setDone(said);
  });
}

void NodeActor::replyBound(const Asker& asker, std::uint64_t task, const Binding& binding) {
  std::vector<std::string> ids;
  for (const std::size_t card : ledger_.placement(TaskId{task})->cards) {
    ids.push_back(cards_[card].facts.id);
  }
  reply(asker, [this, corr = asker.corr, task, ids,
                token = binding.token](schema::Envelope::Builder envelope) {
    auto answer = envelope.initReply();
    answer.setCorr(corr);
    auto bound = answer.initBound();
    bound.setTask(task);
    bound.setToken(token);
    bound.setAttachSocket(options_.attachSocket);
    auto list = bound.initCards(static_cast<unsigned>(ids.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, ids[i]);
  });
}

void NodeActor::replyInfo(const Asker& asker, Turn& turn) {
  const Nanos uptime = startAsked_ ? turn.now() - startedAt_ : Nanos(0);
  reply(asker, [this, corr = asker.corr, uptime](schema::Envelope::Builder envelope) {
    auto answer = envelope.initReply();
    answer.setCorr(corr);
    auto info = answer.initInfo();
    info.setName(options_.name);
    info.setVersion(options_.version);
    info.setIncarnation(incarnation_);
    info.setPid(options_.pid);
    info.setUptimeNs(static_cast<std::uint64_t>(uptime.value));
    info.setCards(static_cast<std::uint32_t>(cards_.size()));
    info.setTasks(static_cast<std::uint32_t>(bindings_.size()));
    info.setPolicy(word(options_.policy));
    info.setMixed(mixed_);
    info.setMaxTasksPerCard(options_.maxTasksPerCard);
    info.setRealtime(options_.realtime);
    info.setStorage(shell_.storageText());
    info.setCluster(standing_);
    info.setClusterTerm(clusterTerm_);
    info.setOnlineIdleNs(static_cast<std::uint64_t>(options_.arbiter.onlineIdle.value));
    info.setSliceMinNs(static_cast<std::uint64_t>(options_.arbiter.sliceMin.value));
    info.setSliceMaxNs(static_cast<std::uint64_t>(options_.arbiter.sliceMax.value));
  });
}

void NodeActor::replyEvents(const Asker& asker, std::uint64_t since) {
  reply(asker, [corr = asker.corr, found = feed_.after(since)](schema::Envelope::Builder envelope) {
    auto answer = envelope.initReply();
    answer.setCorr(corr);
    auto list = answer.initEvents(static_cast<unsigned>(found.size()));
    for (unsigned i = 0; i < list.size(); ++i) writeEvent(found[i], list[i]);
  });
}

// --- gathering ---

void NodeActor::gather(const Asker& asker, Gather::About about, Turn& turn) {
  if (gathers_.size() >= kGathersMax) {
    return replyFailed(asker, fail(ErrorCode::Overloaded, std::to_string(gathers_.size()) +
                                                              " reports are gathered already: "
                                                              "try again in a moment"));
  }
  const std::uint64_t id = ++lastGather_;
  Gather& gather = gathers_[id];
  gather.asker = asker;
  gather.about = about;
  const auto ask = [this, id](ActorId to) {
    return shell_.outbox().putWithin(to, kAsksPerPeer, [id](schema::Envelope::Builder envelope) {
      envelope.initReportAsked().setCorr(id);
    });
  };
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (ask(peers_.cards[card])) gather.cards.insert(card);
  }
  if (about == Gather::About::Tasks) {
    for (const auto& [task, binding] : bindings_) {
      if (ask(peers_.tasks[binding.slot])) gather.tasks.insert(task);
    }
  }
  tick(turn, options_.gatherMax, TickKind::Gather, id);
  answerIfWhole(id);
}

void NodeActor::answerIfWhole(std::uint64_t id) {
  const auto found = gathers_.find(id);
  if (found == gathers_.end()) return;
  if (!found->second.cards.empty() || !found->second.tasks.empty()) return;
  answer(found->second);
  gathers_.erase(found);
}

void NodeActor::onCardReport(schema::CardReport::Reader report, Turn&) {
  const std::uint32_t index = report.getStatus().getInfo().getIndex();
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (cards_[card].facts.index != index) continue;
    cards_[card].figures = readFigures(report.getStatus());
    for (const auto share : report.getShares()) {
      if (find(share.getTask()) == nullptr) continue;
      cards_[card].shares[share.getTask()] = {share.getUsedNs(),    share.getHeldNs(),
                                              share.getTurns(),     share.getOverrunNs(),
                                              share.getQuarantined(), text(share.getNote())};
    }
    const auto waiting = gathers_.find(report.getCorr());
    if (waiting == gathers_.end()) return;
    waiting->second.cards.erase(card);
    return answerIfWhole(report.getCorr());
  }
}

void NodeActor::onTaskReport(schema::TaskReport::Reader report, Turn&) {
  if (Binding* binding = find(report.getTask())) {
    binding->phase = readPhase(report.getState());
    binding->figures = readFigures(report.getUse());
  }
  const auto waiting = gathers_.find(report.getCorr());
  if (waiting == gathers_.end()) return;
  waiting->second.tasks.erase(report.getTask());
  answerIfWhole(report.getCorr());
}

// Written when the reply leaves, from what is known then.
void NodeActor::answer(const Gather& gather) {
  const std::uint64_t corr = gather.asker.corr;
  if (gather.about == Gather::About::Cards) {
    return reply(gather.asker, [this, corr](schema::Envelope::Builder envelope) {
      auto answer = envelope.initReply();
      answer.setCorr(corr);
      auto list = answer.initCards(static_cast<unsigned>(cards_.size()));
      for (unsigned i = 0; i < list.size(); ++i) writeCard(i, list[i]);
    });
  }
  reply(gather.asker, [this, corr](schema::Envelope::Builder envelope) {
    auto answer = envelope.initReply();
    answer.setCorr(corr);
    auto list = answer.initTasks(static_cast<unsigned>(bindings_.size()));
    unsigned i = 0;
    for (const auto& [task, binding] : bindings_) writeTask(task, binding, list[i++]);
  });
}

std::string NodeActor::cardIds(const Placement& placement) const {
  std::string ids;
  for (const std::size_t card : placement.cards) {
    ids += (ids.empty() ? "" : ",") + cards_[card].facts.id;
  }
  return ids;
}

void NodeActor::writeCard(std::size_t card, schema::CardStatus::Builder builder) const {
  const CardRoom& use = ledger_.use(card);
  const CardMark mark = ledger_.mark(card);
  writeFigures(cards_[card].figures, builder);
  writeFacts(cards_[card].facts, builder.initInfo());
  schema::CardState state = schema::CardState::READY;
  if (mark != CardMark::Ready) state = schema::CardState::CORDONED;
  if (mark == CardMark::Draining && use.tasks != 0) state = schema::CardState::DRAINING;
  builder.setState(state);
  builder.setPolicy(word(ledger_.policy(card)));
  builder.setTenancy(word(ledger_.tenancy(card)));
  builder.setTasks(use.tasks);
  builder.setMemBound(static_cast<std::uint64_t>(use.memBound.value));
  builder.setShareBound(static_cast<std::uint32_t>(use.ordinary.value));
  builder.setGreedyBound(static_cast<std::uint32_t>(use.greedy.value));
}

void NodeActor::writeTask(std::uint64_t id, const Binding& binding,
                          schema::TaskInfo::Builder builder) const {
  const Placement* placement = ledger_.placement(TaskId{id});
  builder.setId(id);
  writeSpec(binding.spec, builder.initSpec());
  builder.setCard(cardIds(*placement));
  builder.setState(word(binding.phase));
  builder.setEvicting(binding.evicting);
  auto use = builder.initUse();
  writeFigures(binding.figures, use);
  use.setProcesses(binding.processes);
  ShareFigures sum;
  for (const std::size_t card : placement->cards) {
    const auto found = cards_[card].shares.find(id);
    if (found == cards_[card].shares.end()) continue;
    const ShareFigures& share = found->second;
    sum.usedNs += share.usedNs;
    sum.heldNs += share.heldNs;
    sum.turns += share.turns;
    sum.overrunNs += share.overrunNs;
    sum.quarantined = sum.quarantined || share.quarantined;
    sum.note = share.note;
  }
  use.setUsedNs(sum.usedNs);
  use.setHeldNs(sum.heldNs);
  use.setTurns(sum.turns);
  use.setOverrunNs(sum.overrunNs);
  builder.setQuarantined(sum.quarantined);
  builder.setNote(sum.note);
}

}  // namespace qgpu
