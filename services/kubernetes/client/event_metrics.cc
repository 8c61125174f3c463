#include "services/kubernetes/client/event_metrics.h"

#include "services/base/metrics_text.h"

namespace qgpu {

std::string eventMetrics(const PodWriter& writer) {
  MetricsText page;
  page.family("qgpu_kube_events_total", "counter", "What was to be told to pods and nodes.");
  for (const EventEntry& entry : kEventEntries) {
    const std::uint64_t count = writer.eventsOf(entry.reason);
    if (count == 0) continue;
    const char* type = entry.type == EventType::Normal ? "Normal" : "Warning";
    page.sample({{"reason", entry.name}, {"type", type}}, countText(count));
  }
  page.one("qgpu_kube_events_sent_total", "counter",
           "Calls that the API server took: an event, or a new count of one.",
           countText(writer.eventsSent()));
  page.one("qgpu_kube_events_dropped_total", "counter",
           "Events that found no place in the queue, or that the API server refused.",
           countText(writer.eventsDropped()));
  page.one("qgpu_kube_events_waiting", "gauge", "Events that are not sent yet.",
           countText(writer.eventsWaiting()));
  return page.take();
}

}  // namespace qgpu
