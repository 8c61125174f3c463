#include "services/api/metrics/prometheus.h"

#include "actors/base/codec.h"
#include "actors/base/latency_times.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

using Card = schema::CardStatus::Reader;
using Task = schema::TaskInfo::Reader;
using Cards = capnp::List<schema::CardStatus>::Reader;
using Tasks = capnp::List<schema::TaskInfo>::Reader;

std::string seconds(std::uint64_t ns) {
  return secondsText(ns);
}
std::string count(std::uint64_t n) {
  return countText(n);
}

class Page : public MetricsText {
 public:
  Page(std::string_view node, const PodOfTask& podOf) : node_(node), podOf_(podOf) {}

  std::string_view node() const { return node_; }

  // A family with one sample a card; `value` gives its text.
  template <typename Value>
  void perCard(Cards cards, std::string_view name, std::string_view type, std::string_view help,
               Value value) {
    family(name, type, help);
    for (const Card card : cards) {
      sample({{"node", node_}, {"card", view(card.getInfo().getId())}}, value(card));
    }
  }

  template <typename Value>
  void perTask(Tasks tasks, std::string_view name, std::string_view type, std::string_view help,
               Value value) {
    family(name, type, help);
    for (const Task task : tasks) {
      const std::string id = count(task.getId());
      const std::string_view called = view(task.getSpec().getName());
      const std::string_view kind = className(task.getSpec().getClass());
      const std::string_view card = view(task.getCard());
      if (!podOf_) {
        sample({{"node", node_}, {"task", id}, {"name", called}, {"class", kind}, {"card", card}},
               value(task));
        continue;
      }
      const PodLabels pod = podOf_(task.getId());
      sample({{"node", node_},
              {"task", id},
              {"name", called},
              {"class", kind},
              {"card", card},
              {"namespace", pod.nameSpace},
              {"pod", pod.pod},
              {"container", pod.container}},
             value(task));
    }
  }

  // A recent latency as a summary without sum: quantiles and how many were counted.
  template <typename P50, typename P99, typename Count>
  void summary(Cards cards, std::string_view name, std::string_view help, P50 p50, P99 p99,
               Count n) {
    family(name, "summary", help);
    const std::string counted = std::string(name) + "_count";
    for (const Card card : cards) {
      const std::string_view id = view(card.getInfo().getId());
      sample({{"node", node_}, {"card", id}, {"quantile", "0.5"}}, seconds(p50(card)));
      sample({{"node", node_}, {"card", id}, {"quantile", "0.99"}}, seconds(p99(card)));
      sampleNamed(counted, {{"node", node_}, {"card", id}}, count(n(card)));
    }
  }

  // All latencies since the start.
  template <typename Times>
  void histogram(Cards cards, std::string_view name, std::string_view help, Times times) {
    family(name, "histogram", help);
    const std::string bucket = std::string(name) + "_bucket";
    const std::string sum = std::string(name) + "_sum";
    const std::string counted = std::string(name) + "_count";
    std::vector<std::string> bounds;
    for (const Nanos bound : kLatencyBounds) bounds.push_back(boundText(bound));
    bounds.emplace_back("+Inf");
    for (const Card card : cards) {
      const std::string_view id = view(card.getInfo().getId());
      const LatencyTimes told = readTimes(times(card));
      std::uint64_t all = 0;
      for (std::size_t i = 0; i < bounds.size(); ++i) {
        all += told.counts[i];
        sampleNamed(bucket, {{"node", node_}, {"card", id}, {"le", bounds[i]}}, count(all));
      }
      sampleNamed(sum, {{"node", node_}, {"card", id}}, seconds(told.sumNs));
      sampleNamed(counted, {{"node", node_}, {"card", id}}, count(all));
    }
  }

 private:
  // "0.00001", without zeros behind.
  static std::string boundText(Nanos bound) {
    std::string text = seconds(static_cast<std::uint64_t>(bound.value));
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
    return text;
  }

  const std::string_view node_;
  const PodOfTask& podOf_;
};

void nodeFamilies(Page& page, schema::NodeInfo::Reader node, const ActorClientCounts& clients) {
  page.family("qgpu_node_info", "gauge", "The node: always 1, facts are labels.");
  const std::string_view realtime = view(node.getRealtime());
  page.sample({{"node", view(node.getName())},
               {"version", view(node.getVersion())},
               {"realtime", realtime.substr(0, realtime.find(':'))}},
              "1");
  page.one("qgpu_node_uptime_seconds", "gauge", "Since this manager started.",
           seconds(node.getUptimeNs()));
  page.one("qgpu_node_storage_ok", "gauge", "1 where new tasks can be stored.",
           view(node.getStorage()) == "ok" ? "1" : "0");
  page.family("qgpu_node_cluster", "gauge",
              "How the node stands with its scheduler: always 1, the state is a label.");
  const std::string_view standing = view(node.getCluster());
  page.sample({{"state", standing.substr(0, standing.find(':'))}}, "1");
  page.one("qgpu_node_cards", "gauge", "Cards of this node.", count(node.getCards()));
  page.one("qgpu_node_tasks", "gauge", "Tasks bound on this node.", count(node.getTasks()));
  actorClientFamilies(page, clients, "the node actor");
}

void cardInfo(Page& page, Cards cards) {
  page.family("qgpu_card_info", "gauge", "The card: always 1, facts are labels.");
  for (const Card card : cards) {
    const auto info = card.getInfo();
    const std::string index = count(info.getIndex());
    page.sample({{"node", page.node()},
                 {"card", view(info.getId())},
                 {"index", index},
                 {"model", view(info.getModel())},
                 {"backend", view(info.getBackend())},
                 {"policy", policyName(card.getPolicy())},
                 {"kind", tenancyName(card.getTenancy())},
                 {"suspend", suspendName(info.getSuspend())},
                 {"state", cardStateName(card.getState())}},
                "1");
  }
}

void cardFamilies(Page& page, Cards cards) {
  cardInfo(page, cards);
  page.perCard(cards, "qgpu_card_memory_bytes", "gauge", "Memory of the card.",
               [](Card c) { return count(c.getInfo().getMemBytes()); });
  page.perCard(
      cards, "qgpu_card_memory_counted_by_driver", "gauge",
      "1 where its tasks' memory counts at the driver in the kernel, 0 at library calls.",
      [](Card c) { return count(c.getInfo().getCounting() == schema::Counting::DRIVER ? 1 : 0); });
  page.perCard(cards, "qgpu_card_memory_bound_bytes", "gauge", "Memory promised to tasks.",
               [](Card c) { return count(c.getMemBound()); });
  page.perCard(cards, "qgpu_card_share_bound_permille", "gauge",
               "Share promised to ordinary tasks.",
               [](Card c) { return count(c.getShareBound()); });
  page.perCard(cards, "qgpu_card_greedy_bound_permille", "gauge",
               "Share promised to offline tasks.",
               [](Card c) { return count(c.getGreedyBound()); });
  page.perCard(cards, "qgpu_card_tasks", "gauge", "Tasks bound to the card.",
               [](Card c) { return count(c.getTasks()); });
  page.perCard(cards, "qgpu_card_online_active", "gauge", "1 while an online task has the card.",
               [](Card c) { return count(c.getOnlineActive() ? 1 : 0); });
  page.perCard(cards, "qgpu_card_used_seconds_total", "counter", "Time in slices.",
               [](Card c) { return seconds(c.getUsedNs()); });
  page.perCard(cards, "qgpu_card_online_seconds_total", "counter", "Time kept for online tasks.",
               [](Card c) { return seconds(c.getOnlineNs()); });
  page.perCard(cards, "qgpu_card_idle_seconds_total", "counter", "Time that nobody wanted.",
               [](Card c) { return seconds(c.getIdleNs()); });
  page.perCard(cards, "qgpu_card_holds_total", "counter", "Slices that were ended by a hold.",
               [](Card c) { return count(c.getHolds()); });
  page.perCard(cards, "qgpu_card_overruns_total", "counter",
               "Holds that did not settle within their bound.",
               [](Card c) { return count(c.getOverruns()); });
  page.summary(
      cards, "qgpu_card_settle_seconds", "From hold to settled, recent.",
      [](Card c) { return c.getSettleP50Ns(); }, [](Card c) { return c.getSettleP99Ns(); },
      [](Card c) { return c.getSettleCount(); });
  page.histogram(cards, "qgpu_card_preempt_seconds",
                 "From online submit to the last other gate shut.",
                 [](Card c) { return c.getPreemptTimes(); });
  page.histogram(cards, "qgpu_card_release_seconds",
                 "From the last retired online work to the others' resume.",
                 [](Card c) { return c.getReleaseTimes(); });
}

void taskFamilies(Page& page, Tasks tasks) {
  page.perTask(tasks, "qgpu_task_memory_quota_bytes", "gauge", "Memory that it may allocate.",
               [](Task t) { return count(t.getSpec().getMemBytes()); });
  page.perTask(
      tasks, "qgpu_task_memory_used_bytes", "gauge", "Memory that it has allocated.",
      [](Task t) { return count(t.getUse().getMemBytes() + t.getUse().getPageableHeld()); });
  page.perTask(tasks, "qgpu_task_memory_away_bytes", "gauge",
               "Of that, what was moved off its card to make room (paging).",
               [](Task t) { return count(t.getUse().getPageableOut()); });
  page.perTask(tasks, "qgpu_task_memory_peak_bytes", "gauge", "The most it had allocated.",
               [](Task t) { return count(t.getUse().getMemPeak()); });
  page.perTask(tasks, "qgpu_task_share_permille", "gauge", "Share of its card.",
               [](Task t) { return count(t.getSpec().getSharePermille()); });
  page.perTask(tasks, "qgpu_task_processes", "gauge", "Attached processes.",
               [](Task t) { return count(t.getUse().getProcesses()); });
  page.perTask(tasks, "qgpu_task_quarantined", "gauge", "1 while it gets no slices.",
               [](Task t) { return count(t.getQuarantined() ? 1 : 0); });
  page.perTask(tasks, "qgpu_task_used_seconds_total", "counter",
               "Card time charged to it: gate open to settled.",
               [](Task t) { return seconds(t.getUse().getUsedNs()); });
  page.perTask(tasks, "qgpu_task_gpu_seconds_total", "counter",
               "Time of its kernels as profiling measured it.",
               [](Task t) { return seconds(t.getUse().getGpuNs()); });
  page.perTask(tasks, "qgpu_task_held_seconds_total", "counter",
               "Time in which it wanted the card and was held.",
               [](Task t) { return seconds(t.getUse().getHeldNs()); });
  page.perTask(tasks, "qgpu_task_overrun_seconds_total", "counter",
               "Time it ran on after a hold, beyond the settle bound.",
               [](Task t) { return seconds(t.getUse().getOverrunNs()); });
  page.perTask(tasks, "qgpu_task_slices_total", "counter", "Slices that it had.",
               [](Task t) { return count(t.getUse().getTurns()); });
  page.perTask(tasks, "qgpu_task_launches_total", "counter", "Kernels that it launched.",
               [](Task t) { return count(t.getUse().getLaunches()); });
}

}  // namespace

std::string renderMetrics(schema::NodeInfo::Reader node, Cards cards, Tasks tasks,
                          const ActorClientCounts& clients, const PodOfTask& podOf) {
  Page page(view(node.getName()), podOf);
  nodeFamilies(page, node, clients);
  cardFamilies(page, cards);
  taskFamilies(page, tasks);
  return page.take();
}

}  // namespace qgpu
