#pragma once
// Between card actors and the pages, of memory that may leave a card: carries out their words and
// limits, and tells them how each task stands that they watch (docs/internals/paging.md).
//
// A task is told of as a whole, again whenever something of it changed: what each process answered,
// the sums over all, and which limit stood in the page when they were read. So nothing depends on
// what was told before. Answers are read before the sums, which a process stores first; a limit is
// stored before the sums are read, so that of a process that adds its bytes and this one of the two
// sees the other (M3). Who may run is who is attached and not seen dead; bytes count until its
// pidfd says dead (M7). Nothing that stands in a page is believed beyond the task's quota (A10,
// C7).
//
// The gate port has one and asks it to look when it looks itself. Tasks that no card watches cost
// one comparison.

#include <cstdint>

#include "runtime/dispatcher.h"
#include "services/attach/pages/guest_task.h"

namespace qgpu {

class PagingNews {
 public:
  PagingNews(Outlet& outlet, TaskTable& tasks) : outlet_(outlet), tasks_(tasks) {}

  // Of an unknown task it changes nothing.
  void order(schema::PagingOrder::Reader order, ActorId from);
  // Tells what changed. Where the card refused somebody memory, or its limit did, first of all
  // others of that card: what they took rings no doorbell.
  void look(GuestTask& task);

 private:
  void tellOthers(const GuestTask& task);
  void tell(GuestTask& task, PagingState::Told now);

  Outlet& outlet_;
  TaskTable& tasks_;
};

}  // namespace qgpu
