#pragma once
// What the HTTP door of a daemon shows: the pages of a manager and those of a scheduler. Each asks
// the daemon's actor in the name of nobody, one question after the other, so that a scrape takes
// one place of the door's at a time.

#include <functional>
#include <kj/async.h>
#include <string>
#include <vector>

#include "services/admin/cluster_door.h"
#include "services/admin/node_door.h"
#include "services/http/http_server.h"

namespace qgpu {

class HttpPages {
 public:
  virtual kj::Promise<HttpPage> metrics() = 0;  // Prometheus text
  virtual kj::Promise<HttpPage> health() = 0;   // 200 while it answers and can store, else 503

 protected:
  ~HttpPages() = default;
};

// /metrics and /healthz.
std::vector<HttpRoute> routesOf(HttpPages& pages);

// Families that other parts of a daemon have, as text behind those of its actor.
using MoreMetrics = std::function<std::string()>;

class NodePages final : public HttpPages {
 public:
  explicit NodePages(NodeDoor& door, MoreMetrics more = nullptr)
      : door_(door), more_(std::move(more)) {}
  kj::Promise<HttpPage> metrics() override;
  kj::Promise<HttpPage> health() override;

 private:
  NodeDoor& door_;
  const MoreMetrics more_;
};

class ClusterPages final : public HttpPages {
 public:
  explicit ClusterPages(ClusterDoor& door, MoreMetrics more = nullptr)
      : door_(door), more_(std::move(more)) {}
  kj::Promise<HttpPage> metrics() override;
  kj::Promise<HttpPage> health() override;

 private:
  ClusterDoor& door_;
  const MoreMetrics more_;
};

}  // namespace qgpu
