#pragma once
// What the attach room tells the node and the task actors, on the control lane. The order of these
// messages in the life of a binding stands at the head of schema/envelope.capnp.

#include <cstdint>
#include <string>

#include "runtime/dispatcher.h"
#include "services/attach/pages/guest_task.h"

namespace qgpu {

// AttachServer has the only one, and calls it on the card loop. Nothing can be refused on the
// control lane, so no method fails; `task` is the node's number of the binding.
class AttachMessages {
 public:
  // `outlet`: of the attach room; it outlives this.
  AttachMessages(Outlet& outlet, ActorId node) : outlet_(outlet), node_(node) {}

  // --- to the node ---
  // Its pages exist, and its gate can be driven: the card may be told of it.
  void gateOpened(std::uint64_t task) {
    outlet_.sendUrgent(node_, [&](auto message) { message.initGateOpened().setTask(task); });
  }
  // Its pages could not be made.
  void gateFailed(std::uint64_t task, const std::string& why) {
    outlet_.sendUrgent(node_, [&](auto message) {
      auto opened = message.initGateOpened();
      opened.setTask(task);
      opened.setFailed(why);
    });
  }
  // The process whose death ends the task is dead.
  void ownerGone(std::uint64_t task) {
    outlet_.sendUrgent(node_, [&](auto message) {
      auto gone = message.initOwnerGone();
      gone.setTask(task);
      gone.setReason("the process that the task was bound for is dead");
    });
  }
  // A guest has met a manager of this number: the node answers with incarnationChosen, above it.
  void incarnationSeen(std::uint32_t seen) {
    outlet_.sendUrgent(node_, [&](auto message) { message.initIncarnationSeen().setValue(seen); });
  }

  // --- to the task's actor ---
  // `pid` as this pid namespace has it, `slot` of the task's report page.
  void processAttached(const GuestTask& task, std::uint32_t pid, std::uint32_t slot) {
    outlet_.sendUrgent(task.actor, [&](auto message) {
      auto attached = message.initProcessAttached();
      attached.setTask(task.id);
      attached.setPid(pid);
      attached.setSlot(slot);
    });
  }
  // The pidfd of that process said dead. `last`: no other process is attached to the task.
  void processGone(const GuestTask& task, std::uint32_t pid, std::uint32_t slot, bool last) {
    outlet_.sendUrgent(task.actor, [&](auto message) {
      auto gone = message.initProcessGone();
      gone.setTask(task.id);
      gone.setPid(pid);
      gone.setSlot(slot);
      gone.setLast(last);
    });
  }

 private:
  Outlet& outlet_;
  const ActorId node_;
};

}  // namespace qgpu
