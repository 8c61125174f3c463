#include "services/api/metrics/pages.h"

#include "services/api/commands/schema_names.h"
#include "services/api/metrics/cluster_metrics.h"

namespace qgpu {
namespace {

Peer nobody() {
  Peer peer;
  peer.uid = 65534;
  return peer;
}

// The daemon itself: it is heard where nobodies take every place.
Peer self() {
  Peer peer;
  peer.mayChange = true;
  peer.name = "health";
  return peer;
}

HttpPage unwell(const Error& error) {
  return {503, "text/plain; charset=utf-8",
          std::string(errorName(error.code)) + ": " + error.message + "\n"};
}

HttpPage prometheus(std::string text) {
  return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(text)};
}

template <typename Api>
ActorClientCounts countsOf(const ActorClient<Api>& actor) {
  return {actor.outstanding(), actor.watchers(), actor.refused(), actor.late()};
}

}  // namespace

std::vector<HttpRoute> scrapeRoutes(HttpPages& pages) {
  return {HttpRoute::get("/metrics", [&pages] { return pages.metrics(); })};
}

std::vector<HttpRoute> routesOf(HttpPages& pages, const Health& health) {
  return {HttpRoute::get("/metrics", [&pages] { return pages.metrics(); }),
          HttpRoute::get("/healthz", [&health]() -> kj::Promise<HttpPage> {
            constexpr const char* kPlain = "text/plain; charset=utf-8";
            std::string trouble = health.trouble();
            if (trouble.empty()) return HttpPage{200, kPlain, "ok\n"};
            return HttpPage{503, kPlain, std::move(trouble)};
          })};
}

kj::Promise<HttpPage> NodePages::metrics() {
  struct Facts {
    std::vector<Answer> answers;  // info, cards
  };
  auto facts = kj::heap<Facts>();
  Facts& f = *facts;
  return actor_.ask(nobody(), [](schema::Request::Builder request) { request.setInfo(); })
      .then([this, &f](Result<Answer> info) -> kj::Promise<Result<Answer>> {
        if (!info) return kj::mv(info);
        f.answers.push_back(std::move(*info));
        return actor_.ask(nobody(), [](schema::Request::Builder request) { request.setCards(); });
      })
      .then([this, &f](Result<Answer> cards) -> kj::Promise<Result<Answer>> {
        if (!cards) return kj::mv(cards);
        f.answers.push_back(std::move(*cards));
        return actor_.ask(nobody(), [](schema::Request::Builder request) { request.setTasks(); });
      })
      .then([this, &f](Result<Answer> tasks) {
        if (!tasks) return unwell(tasks.error());
        std::string text =
            renderMetrics(f.answers[0].reply().getInfo(), f.answers[1].reply().getCards(),
                          tasks->reply().getTasks(), countsOf(actor_), podOf_);
        if (more_) text += more_();
        return prometheus(std::move(text));
      })
      .attach(kj::mv(facts));
}

kj::Promise<Result<std::string>> NodePages::storage() {
  return actor_.ask(self(), [](schema::Request::Builder request) { request.setInfo(); })
      .then([](Result<Answer> info) -> Result<std::string> {
        if (!info) return info.error();
        return std::string(view(info->reply().getInfo().getStorage()));
      });
}

kj::Promise<HttpPage> ClusterPages::metrics() {
  if (acts_ && !acts_()) {
    return prometheus(renderStandingBy(countsOf(actor_)) + (more_ ? more_() : ""));
  }
  return actor_.ask(nobody(), [](schema::ClusterRequest::Builder request) { request.setInfo(); })
      .then([this](Result<ClusterAnswer> info) -> kj::Promise<HttpPage> {
        if (!info) return unwell(info.error());
        return actor_
            .ask(nobody(), [](schema::ClusterRequest::Builder request) { request.setNodes(); })
            .then([this, info = std::move(*info)](Result<ClusterAnswer> nodes) {
              if (!nodes) return unwell(nodes.error());
              std::string text = renderClusterMetrics(info.reply().getInfo(),
                                                      nodes->reply().getNodes(), countsOf(actor_));
              if (more_) text += more_();
              return prometheus(std::move(text));
            });
      });
}

kj::Promise<Result<std::string>> ClusterPages::storage() {
  return actor_.ask(self(), [](schema::ClusterRequest::Builder request) { request.setInfo(); })
      .then([](Result<ClusterAnswer> info) -> Result<std::string> {
        if (!info) return info.error();
        return std::string(view(info->reply().getInfo().getStorage()));
      });
}

}  // namespace qgpu
