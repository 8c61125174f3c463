#pragma once
// What the attach room tells the node and the task actors, on the control lane. The order of these
// messages in the life of a binding stands at the head of schema/envelope.capnp.

#include <cstdint>
#include <string>

#include "runtime/dispatcher.h"
#include "services/attach/pages/guest_task.h"

namespace qgpu {

class AttachMessages {
 public:
  AttachMessages(Outlet& outlet, ActorId node) : outlet_(outlet), node_(node) {}

  // --- to the node ---
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
  void ownerGone(std::uint64_t task) {
    outlet_.sendUrgent(node_, [&](auto message) {
      auto gone = message.initOwnerGone();
      gone.setTask(task);
      gone.setReason("the process that the task was bound for is dead");
    });
  }
  void incarnationSeen(std::uint32_t seen) {
    outlet_.sendUrgent(node_, [&](auto message) { message.initIncarnationSeen().setValue(seen); });
  }

  // --- to the task's actor ---
  void processAttached(const GuestTask& task, std::uint32_t pid, std::uint32_t slot) {
    outlet_.sendUrgent(task.actor, [&](auto message) {
      auto attached = message.initProcessAttached();
      attached.setTask(task.id);
      attached.setPid(pid);
      attached.setSlot(slot);
    });
  }
  // `last`: no other process is attached to the task.
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
