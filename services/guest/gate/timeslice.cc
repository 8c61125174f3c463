#include "services/guest/gate/timeslice.h"

#include "services/guest/gate/attach.h"
#include "services/nvidia_abi/rm_card.h"

namespace qgpu::guest {
namespace {

std::atomic<bool> said{false};

}  // namespace

void giveTimeslice(const RmChannelEvent& group) {
  const std::uint64_t us = loadRelaxed(session.gate->timeslice_us);
  if (us == 0) return;
  const int saved = errno;
  const std::uint32_t status = rm::setTimeslice(group.fd, {group.client, group.object}, us);
  if (status != rm::kOk && !said.exchange(true)) {
    say("the driver gives no timeslices of %llu us (status 0x%x); this program runs with its own",
        static_cast<unsigned long long>(us), status);
  }
  errno = saved;
}

}  // namespace qgpu::guest
