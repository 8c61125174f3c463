#include "services/kubernetes/client/api_server.h"

#include <string_view>

#include "runtime/check.h"

namespace qgpu {

PodEvent podEvent(PodRef pod, EventReason reason, const std::vector<std::string>& values,
                  std::uint64_t times) {
  const EventEntry& entry = eventEntry(reason);
  std::string message;
  std::size_t used = 0;
  std::string_view rest = entry.shape;
  for (std::size_t open; (open = rest.find('{')) != std::string_view::npos;) {
    QGPU_CHECK(used < values.size(), "an event has a value for each place of its shape");
    message.append(rest.substr(0, open)).append(values[used++]);
    rest.remove_prefix(rest.find('}', open) + 1);
  }
  QGPU_CHECK(used == values.size(), "an event has no more values than places");
  message.append(rest);
  std::string about =
      entry.same == EventSame::Subject && !values.empty() ? values.front() : message;
  return {std::move(pod), reason, std::move(message), std::move(about), times};
}

}  // namespace qgpu
