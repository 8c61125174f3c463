#include "services/attach/paging_news.h"

#include <algorithm>
#include <utility>

#include "services/wire/paging.h"

namespace qgpu {
namespace {

using What = schema::PagingOrder::What;

// Answers first, see the header.
PagingState::Told readTask(GuestTask& task) {
  PagingState::Told told;
  std::uint64_t mayNeed = task.pages.firmLeft();
  for (auto& [slot, process] : task.processes) {
    if (task.pages.slotDead(slot)) continue;
    SlotPaging said = task.pages.slotPaging(slot);
    if (said.takesNoPart()) continue;
    said.need = std::min(said.need, mayNeed);  // all of them together
    mayNeed -= said.need;
    if (process->number == 0) process->number = ++task.paging.numbered;
    told.processes.emplace_back(process->number, said);
  }
  told.sums = task.pages.pagingSums();
  told.limitOrder = task.paging.limitOrder;
  return told;
}

bool anyNeedIsNew(const PagingState::Told& now, const PagingState::Told& before) {
  return std::any_of(now.processes.begin(), now.processes.end(), [&](const auto& process) {
    if (process.second.need == 0) return false;
    return std::none_of(before.processes.begin(), before.processes.end(), [&](const auto& other) {
      return other.first == process.first && other.second.need == process.second.need &&
             other.second.needSince == process.second.needSince;
    });
  });
}

}  // namespace

void PagingNews::order(schema::PagingOrder::Reader order, ActorId from) {
  const auto found = tasks_.find(order.getTask());
  if (found == tasks_.end()) return;
  GuestTask& task = *found->second;
  task.paging.card = from;
  switch (order.getWhat()) {
    case What::WATCH:
      task.paging.told.reset();
      break;
    case What::WORD:
      task.pages.storePaging(paging::pack(
          {order.getEpoch(), static_cast<paging::Phase>(order.getPhase()), order.getPermille()}));
      break;
    case What::LIMIT:
      task.pages.storePageableLimit(Bytes(static_cast<std::int64_t>(order.getLimitBytes())));
      task.paging.limitOrder = order.getOrder();
      break;
  }
  look(task);
}

void PagingNews::look(GuestTask& task) {
  if (task.paging.card == ActorId::kNobody) return;
  PagingState::Told now = readTask(task);
  if (task.paging.told == now) return;
  const PagingState::Told before = task.paging.told.value_or(PagingState::Told());
  if (now.sums.more > before.sums.more || anyNeedIsNew(now, before)) tellOthers(task);
  tell(task, std::move(now));
}

// What it is to be given is decided by what they have.
void PagingNews::tellOthers(const GuestTask& task) {
  for (auto& [id, other] : tasks_) {
    if (other.get() == &task || other->paging.card != task.paging.card) continue;
    PagingState::Told now = readTask(*other);
    if (other->paging.told != now) tell(*other, std::move(now));
  }
}

void PagingNews::tell(GuestTask& task, PagingState::Told now) {
  const PagingState::Told& told = task.paging.told.emplace(std::move(now));
  outlet_.sendUrgent(task.paging.card, [&](schema::Envelope::Builder message) {
    auto paged = message.initPaged();
    paged.setTask(task.id);
    paged.setFirmBytes(told.sums.firm);
    paged.setHeldBytes(told.sums.held);
    paged.setOutBytes(told.sums.out);
    paged.setMoreBytes(told.sums.more);
    paged.setLimitOrder(told.limitOrder);
    auto list = paged.initProcesses(static_cast<unsigned>(told.processes.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      const auto& [number, says] = told.processes[i];
      list[i].setProcess(number);
      list[i].setEpoch(says.epoch);
      list[i].setAnswer(says.answer);
      list[i].setOutBytes(says.out);
      list[i].setNeedBytes(says.need);
      list[i].setNeedSinceNs(says.needSince);
    }
  });
}

}  // namespace qgpu
