#pragma once
// What the HTTP server of a daemon shows: the pages of a manager and those of a scheduler. Each
// asks the daemon's actor in the name of nobody, one question after the other, so that a scrape
// takes one place among the requests at a time. /healthz asks nobody: health.h knows.

#include <functional>
#include <kj/async.h>
#include <string>
#include <vector>

#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/node_actor_client.h"
#include "services/api/metrics/health.h"
#include "services/api/metrics/prometheus.h"
#include "services/base/net/http_server.h"

namespace qgpu {

// What both daemons' pages have in common: their routes and Health ask by it.
class HttpPages {
 public:
  // Prometheus text (format 0.0.4); status 503 with a line of text where the actor does not answer.
  virtual kj::Promise<HttpPage> metrics() = 0;
  // For Health: "ok", or why nothing can be stored. An error where the actor does not answer.
  virtual kj::Promise<Result<std::string>> storage() = 0;

 protected:
  ~HttpPages() = default;
};

// /metrics and /healthz, which is 200 while all is well and else 503 with what is not.
std::vector<HttpRoute> routesOf(HttpPages& pages, const Health& health);
// /metrics alone, for an address beyond loopback.
std::vector<HttpRoute> scrapeRoutes(HttpPages& pages);

// Families that other parts of a daemon have, as text behind those of its actor.
using MoreMetrics = std::function<std::string()>;

// Of a manager: node, cards and tasks.
class NodePages final : public HttpPages {
 public:
  // `actor` outlives it. `podOf`: the pod of a task, for labels, on Kubernetes.
  explicit NodePages(NodeActorClient& actor, MoreMetrics more = nullptr, PodOfTask podOf = nullptr)
      : actor_(actor), more_(std::move(more)), podOf_(std::move(podOf)) {}
  kj::Promise<HttpPage> metrics() override;
  kj::Promise<Result<std::string>> storage() override;

 private:
  NodeActorClient& actor_;
  const MoreMetrics more_;
  const PodOfTask podOf_;
};

// Of a scheduler: the cluster and its nodes. Cards and tasks are told by their managers.
class ClusterPages final : public HttpPages {
 public:
  // `actor` outlives it. `acts`: whether this scheduler decides now; null: it does.
  explicit ClusterPages(ClusterActorClient& actor, MoreMetrics more = nullptr,
                        std::function<bool()> acts = nullptr)
      : actor_(actor), more_(std::move(more)), acts_(std::move(acts)) {}
  kj::Promise<HttpPage> metrics() override;
  kj::Promise<Result<std::string>> storage() override;

 private:
  ClusterActorClient& actor_;
  const MoreMetrics more_;
  const std::function<bool()> acts_;
};

}  // namespace qgpu
