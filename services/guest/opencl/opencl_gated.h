#pragma once
// The one way in which a wrapper launches: ask the gate, call the driver, follow the event. What
// the driver refuses is retired at once; a blocking call is finished when it returns.

#include "services/guest/gate/estimates.h"
#include "services/guest/opencl/callbacks.h"
#include "services/guest/opencl/retirement.h"

namespace qgpu::guest {

enum class Blocking { kNo, kYes };

inline Work transferWork(std::uint64_t bytes, cl_uint waits) {
  return {0, nullptr, transferNs(bytes), waits != 0};
}

// A blocking call may wait for an event that the host sets after launches of its other threads.
// Admitted, it would be in flight all that time and the gate would hold those launches back
// (HAZARDS 3), so it waits first and is admitted when only its own work is left. Behind an event
// that failed the call fails as the standard says (PoCL would wait there for ever); a list that is
// wrong is the driver's to refuse in the call itself.
inline cl_int waitBeforeAdmission(Blocking blocking, cl_uint waits, const cl_event* wait) {
  if (blocking == Blocking::kNo || waits == 0 || !wait) return CL_SUCCESS;
  cl_int rc = driver->clWaitForEvents(waits, wait);
  return rc == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? rc : CL_SUCCESS;
}

// `enqueue(cl_event*)` is the driver's call; `out` is where the application wants its event.
template <typename Enqueue>
cl_int gated(cl_command_queue queue, const Work& work, Blocking blocking, MayBlock mayBlock,
             cl_event* out, Enqueue enqueue) {
  if (session.state.load(std::memory_order_relaxed) != State::kAttached && !ensureAttached()) {
    return CL_OUT_OF_RESOURCES;
  }
  Pass pass = admit(work.estimateNs, mayBlock);
  if (!pass.admitted) return CL_OUT_OF_RESOURCES;
  if (blocking == Blocking::kYes) {
    std::uint64_t mark = isInOrder(queue) ? syncMark(queue) : 0;
    cl_int rc = enqueue(out);
    retire(1, pass.windowNs, nowNs());
    if (rc == CL_SUCCESS) shared(session.slot->launches).fetch_add(1, std::memory_order_relaxed);
    synced(queue, mark, rc == CL_SUCCESS ? Finished::kAll : Finished::kUnknown);
    return rc;
  }
  const bool followed = out || needsEvent(queue, pass, work);
  cl_event event = nullptr;
  cl_int rc = enqueue(followed ? &event : nullptr);
  if (rc != CL_SUCCESS) {
    retire(1, pass.windowNs, nowNs());
    return rc;
  }
  if (out) driver->clRetainEvent(*out = event);
  track(queue, event, pass, work);
  return rc;
}

}  // namespace qgpu::guest
