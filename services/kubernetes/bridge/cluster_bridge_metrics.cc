// What /metrics shows of the bridge: how well it follows the API server, and what it knows.
#include "services/base/metrics_text.h"
#include "services/kubernetes/bridge/cluster_bridge.h"

namespace qgpu {

std::string ClusterBridge::metrics() const {
  MetricsText page;
  const Figures now = figures();
  page.one("qgpu_kube_acting", "gauge", "1 while this scheduler may bind pods.",
           countText(options_.mayBind() ? 1 : 0));
  page.one("qgpu_kube_api_reachable", "gauge", "1 where the API server answered the last call.",
           countText(api_.reachable() ? 1 : 0));
  page.one("qgpu_kube_api_calls_total", "counter", "Calls to the API server.",
           countText(api_.calls()));
  page.family("qgpu_kube_nodes", "gauge", "Labelled nodes, by whether they are members.");
  page.sample({{"state", "member"}}, countText(now.nodes));
  page.sample({{"state", "refused"}}, countText(now.refused));
  page.family("qgpu_kube_containers", "gauge",
              "Containers that hold cards: bound, or assumed until their pods are seen bound.");
  page.sample({{"state", "bound"}}, countText(now.held));
  page.sample({{"state", "assumed"}}, countText(now.assumed));
  page.family("qgpu_kube_settled_total", "counter",
              "Answers to what became of a bind whose pod was not seen bound in time.");
  page.sample({{"result", "bound"}}, countText(settled_.bound));
  page.sample({{"result", "unbound"}}, countText(settled_.unbound));
  page.sample({{"result", "unknown"}}, countText(settled_.unknown));
  if (nodeWatch_ && podWatch_) {
    const auto both = [&](std::string_view name, std::string_view type, std::string_view help,
                          auto value) {
      page.family(name, type, help);
      page.sample({{"of", "nodes"}}, value(*nodeWatch_));
      page.sample({{"of", "pods"}}, value(*podWatch_));
    };
    both("qgpu_kube_objects", "gauge", "Known now; of pods those that ask for cards or hold some.",
         [](const auto& watch) { return countText(watch.size()); });
    both("qgpu_kube_lists_total", "counter", "Times that all of them were listed.",
         [](const auto& watch) { return countText(watch.lists()); });
    both("qgpu_kube_watches_total", "counter", "Watches that were begun.",
         [](const auto& watch) { return countText(watch.watches()); });
    both("qgpu_kube_watch_age_seconds", "gauge", "Since the API server was heard of them.",
         [](const auto& watch) {
           return secondsText(static_cast<std::uint64_t>(watch.age() / kj::NANOSECONDS));
         });
  }
  return page.take();
}

}  // namespace qgpu
