#include "services/api/metrics/cluster_metrics.h"

#include <array>

#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

using Node = schema::ClusterNode::Reader;
using Nodes = capnp::List<schema::ClusterNode>::Reader;

void actingFamily(MetricsText& page, bool acts) {
  page.one("qgpu_cluster_acting", "gauge",
           "1 where this scheduler decides; 0 where another one does, and tells of the cluster.",
           acts ? "1" : "0");
}

void infoFamilies(MetricsText& page, schema::ClusterInfo::Reader info) {
  page.family("qgpu_cluster_info", "gauge", "The scheduler: always 1, facts are labels.");
  page.sample({{"version", view(info.getVersion())}, {"priority", scoreName(info.getPriority())}},
              "1");
  page.one("qgpu_cluster_uptime_seconds", "gauge", "Since this scheduler started.",
           secondsText(info.getUptimeNs()));
  page.one("qgpu_cluster_term", "gauge", "Grows with every start of a scheduler.",
           countText(info.getTerm()));
  page.one("qgpu_cluster_storage_ok", "gauge", "1 where new tasks can be stored.",
           view(info.getStorage()) == "ok" ? "1" : "0");
  page.one("qgpu_cluster_cards", "gauge", "Cards of nodes that were heard of.",
           countText(info.getCards()));
  page.one("qgpu_cluster_tasks", "gauge", "Tasks that live, waiting ones too.",
           countText(info.getTasks()));
  page.one("qgpu_cluster_tasks_waiting", "gauge", "Tasks that fit nowhere now.",
           countText(info.getWaiting()));
  page.one("qgpu_cluster_decisions_total", "counter", "Tasks that were given a place.",
           countText(info.getDecisions()));
  page.family("qgpu_pending_tasks", "gauge", "Tasks that wait, by what the nearest card lacks.");
  for (const auto pending : info.getPending()) {
    page.sample({{"class", className(pending.getClass())}, {"reason", view(pending.getReason())}},
                countText(pending.getTasks()));
  }
  page.family("qgpu_schedule_decisions_total", "counter",
              "Tasks that were placed, began to wait or were refused, and why.");
  for (const auto decided : info.getDecided()) {
    page.sample(
        {{"result", decidedName(decided.getResult())}, {"reason", view(decided.getReason())}},
        countText(decided.getCount()));
  }
}

template <typename Value>
void perNode(MetricsText& page, Nodes nodes, std::string_view name, std::string_view help,
             Value value) {
  page.family(name, "gauge", help);
  for (const Node node : nodes) {
    page.sample({{"node", view(node.getName())}}, countText(value(node)));
  }
}

void nodeFamilies(MetricsText& page, Nodes nodes) {
  std::array<std::uint64_t, 4> counts{};
  for (const Node node : nodes) {
    const auto state = static_cast<std::size_t>(node.getState());
    if (state < counts.size()) ++counts[state];
  }
  page.family("qgpu_cluster_nodes", "gauge", "Nodes by state.");
  for (std::size_t state = 0; state < counts.size(); ++state) {
    page.sample({{"state", nodeStateName(static_cast<schema::ClusterNode::State>(state))}},
                countText(counts[state]));
  }
  perNode(page, nodes, "qgpu_cluster_node_alive", "1 while its lease lives.",
          [](Node n) { return n.getState() == schema::ClusterNode::State::ALIVE ? 1U : 0U; });
  perNode(page, nodes, "qgpu_cluster_node_cordoned", "1 where it gets no new tasks.",
          [](Node n) { return n.getCordoned() || n.getDraining() ? 1U : 0U; });
  perNode(page, nodes, "qgpu_cluster_node_tasks", "Tasks that are or will be there.",
          [](Node n) { return n.getTasks(); });
  perNode(page, nodes, "qgpu_cluster_node_memory_bytes", "Memory of its cards.",
          [](Node n) { return n.getMemBytes(); });
  perNode(page, nodes, "qgpu_cluster_node_memory_bound_bytes", "Memory that its tasks may use.",
          [](Node n) { return n.getMemBound(); });
  perNode(page, nodes, "qgpu_cluster_node_share_bound_permille",
          "Shares of its ordinary tasks, in thousandths of a card.",
          [](Node n) { return n.getShareBound(); });
  perNode(page, nodes, "qgpu_cluster_node_greedy_bound_permille",
          "Shares of its offline tasks, in thousandths of a card.",
          [](Node n) { return n.getGreedyBound(); });
}

}  // namespace

std::string renderClusterMetrics(schema::ClusterInfo::Reader info, Nodes nodes,
                                 const ActorClientCounts& clients) {
  MetricsText page;
  actingFamily(page, true);
  infoFamilies(page, info);
  nodeFamilies(page, nodes);
  actorClientFamilies(page, clients, "the scheduler actor");
  return page.take();
}

std::string renderStandingBy(const ActorClientCounts& clients) {
  MetricsText page;
  actingFamily(page, false);
  actorClientFamilies(page, clients, "the scheduler actor");
  return page.take();
}

}  // namespace qgpu
