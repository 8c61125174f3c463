#include "services/attach/pages/guest_task.h"

#include <algorithm>
#include <utility>

namespace qgpu {
namespace {

qgpu_class classOf(schema::TaskClass taskClass) {
  switch (taskClass) {
    case schema::TaskClass::ONLINE:
      return QGPU_ONLINE;
    case schema::TaskClass::OFFLINE:
      return QGPU_OFFLINE;
    default:
      return QGPU_ORDINARY;
  }
}

qgpu_suspend suspendOf(schema::Suspend suspend) {
  switch (suspend) {
    case schema::Suspend::FREEZE:
      return QGPU_SUSPEND_FREEZE;
    case schema::Suspend::RM:
      return QGPU_SUSPEND_RM;
    default:
      return QGPU_SUSPEND_GATE;
  }
}

// Of the driver of all its cards: what one of them did not show is believed of none.
std::uint32_t layoutSeen(const std::vector<Card>& cards, const std::vector<std::uint32_t>& its) {
  const std::uint32_t first = cards[its.front()].layoutSeen;
  const bool all = std::all_of(its.begin(), its.end(),
                               [&](std::uint32_t card) { return cards[card].layoutSeen == first; });
  return all ? first : 0;
}

}  // namespace

Result<std::unique_ptr<GuestTask>> makeGuestTask(
    schema::TaskKnown::Reader known, std::uint32_t incarnation, const std::vector<Card>& cards,
    const std::vector<ActorId>& cardActors, const GuestTaskOptions& options, PagePlatform& around) {
  if (known.getToken().size() != QGPU_TOKEN_LEN) {
    return fail(ErrorCode::InvalidArgument, "its token has a wrong length");
  }
  std::vector<std::uint32_t> its;
  for (const std::uint32_t card : known.getCards()) {
    if (card >= cards.size()) return fail(ErrorCode::NotFound, "no card " + std::to_string(card));
    its.push_back(card);
  }
  if (its.empty()) return fail(ErrorCode::InvalidArgument, "it has no card");
  const Card& first = cards[its.front()];
  const bool single = its.size() == 1;
  // A task with several cards is not divided: its channels are on all of them.
  schema::Suspend suspend = first.suspend;
  if (suspend == schema::Suspend::RM && !single) suspend = schema::Suspend::GATE;
  TaskPagesSpec spec;
  spec.task = known.getTask();
  spec.taskClass = classOf(known.getClass());
  spec.suspend = suspendOf(suspend);
  spec.incarnation = incarnation;
  spec.quota = Bytes(static_cast<std::int64_t>(known.getQuotaBytes()));
  spec.window = suspend == schema::Suspend::GATE && single ? options.window : Nanos(0);
  spec.orphanGrace = options.orphanGrace;
  spec.pageable = std::min(Bytes(static_cast<std::int64_t>(known.getPageableBytes())), spec.quota);
  if (known.getOvercommitted()) spec.needWait = options.needWait;
  spec.timeslices = options.timeslices && first.backend == "nvidia" && single;
  spec.layoutSeen = layoutSeen(cards, its);
  Result<TaskPages> pages = TaskPages::create(spec, around);
  if (!pages) return pages.error();

  auto task = std::make_unique<GuestTask>(std::move(*pages));
  task->id = spec.task;
  task->token.assign(known.getToken().begin(), known.getToken().size());
  task->taskClass = spec.taskClass;
  if (spec.taskClass != QGPU_ONLINE) task->heldBy = spec.suspend;
  task->window = options.window;
  task->actor = static_cast<ActorId>(known.getActor());
  for (const std::uint32_t card : its) task->cardActors.push_back(cardActors[card]);
  task->cards = std::move(its);
  return task;
}

}  // namespace qgpu
