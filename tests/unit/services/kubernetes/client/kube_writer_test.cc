#include <algorithm>
#include <cctype>
#include <set>

#include "services/kubernetes/client/event_metrics.h"
#include "services/kubernetes/client/pod_writer.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_writer_test {
namespace {

using testing::ApiStandIn;
using testing::Json;
using testing::KubeFixture;

struct KubeWriter : KubeFixture {
  ~KubeWriter() noexcept override = default;
  KubeWriter() { server->put("pods", ApiStandIn::pod("web", "p", "u1")); }

  static PodWriterLimits brisk() {
    PodWriterLimits limits;
    limits.eventEvery = millis(1);
    limits.retryFirst = millis(1);
    return limits;
  }
  ErrorCode code(const Status& status) {
    return status.ok() ? ErrorCode::Internal : status.error().code;
  }
  Json annotations() { return server->find("pods", "web", "p")["metadata"]["annotations"]; }
  Status annotate(const PodRef& pod, const std::string& value, const std::string& version = "") {
    return wait(writer.annotatePod(pod, {{"qgpu.io/assigned", value}}, version));
  }
  static PodEvent event(const std::string& message) {
    return podEvent({"web", "p", "u1"}, EventReason::Rejected, {message});
  }

  const PodRef mine{"web", "p", "u1"};
  const PodRef later{"web", "p", "u2"};
  const PodRef none{"web", "q", "u1"};
  ApiClient& api = client(plain());
  PodWriter writer{api, "qgpu-scheduler", "node-1", brisk()};
};

TEST_F(KubeWriter, AnnotationsAreSetAndTakenBack) {
  EXPECT_TRUE(annotate(mine, R"({"main":["GPU-1"]})").ok());
  EXPECT_EQ(annotations(), (Json{{"qgpu.io/assigned", R"({"main":["GPU-1"]})"}}));
  EXPECT_TRUE(wait(writer.annotatePod(mine, {{"qgpu.io/assigned", std::nullopt}}, "")).ok());
  EXPECT_EQ(annotations(), Json::object());
}

TEST_F(KubeWriter, AnnotatingTellsAnotherPodAndAnotherVersionApart) {
  EXPECT_EQ(code(annotate(later, "x")), ErrorCode::NotFound);
  EXPECT_EQ(code(annotate(none, "x")), ErrorCode::NotFound);
  EXPECT_EQ(code(annotate(mine, "x", "17")), ErrorCode::Conflict);
  const std::string now = server->find("pods", "web", "p")["metadata"]["resourceVersion"];
  EXPECT_TRUE(annotate(mine, "x", now).ok());
}

TEST_F(KubeWriter, ABindOfWhichNobodyKnowsIsSettledByTheNewestOfThePod) {
  const auto settled = [&](const PodRef& pod, const char* node = "n1") {
    const Result<bool> bound = wait(writer.settle(pod, node));
    return !bound ? errorName(bound.error().code) : *bound ? "bound" : "not bound";
  };
  EXPECT_STREQ(settled(none), "not bound");
  EXPECT_STREQ(settled(later), "not bound");
  EXPECT_TRUE(annotate(mine, "x").ok());
  EXPECT_STREQ(settled(later), "not bound");
  EXPECT_TRUE(annotations().contains("qgpu.io/assigned")) << "it is that of another pod";
  // It changes between the read and the patch: nobody knows.
  server->onDone = [&](const std::string& asked) {
    if (!asked.starts_with("GET")) return;
    server->onDone = nullptr;
    server->put("pods", server->find("pods", "web", "p"));
  };
  EXPECT_STREQ(settled(mine), "conflict");
  EXPECT_TRUE(annotations().contains("qgpu.io/assigned"));
  EXPECT_STREQ(settled(mine), "not bound");
  EXPECT_EQ(annotations(), Json::object()) << "a Binding from here on brings no cards";
  EXPECT_TRUE(annotate(mine, "x").ok());
  ASSERT_TRUE(wait(writer.bindPod(mine, "n1")).ok());
  EXPECT_STREQ(settled(mine), "bound");
  EXPECT_STREQ(settled(mine, "n2"), "not bound");
  EXPECT_TRUE(annotations().contains("qgpu.io/assigned"));
  server->refusals.push_back({500, "InternalError", "not now", ""});
  EXPECT_STREQ(settled(mine), "unavailable");
}

TEST_F(KubeWriter, BindingTwiceToTheSameNodeIsNoFailure) {
  EXPECT_TRUE(wait(writer.bindPod(mine, "n1")).ok());
  EXPECT_EQ(server->find("pods", "web", "p")["spec"]["nodeName"], "n1");
  EXPECT_TRUE(wait(writer.bindPod(mine, "n1")).ok());
  const Status other = wait(writer.bindPod(mine, "n2"));
  EXPECT_EQ(code(other), ErrorCode::Conflict);
  EXPECT_NE(other.error().message.find("already assigned to node"), std::string::npos);
  EXPECT_EQ(code(wait(writer.bindPod(later, "n1"))), ErrorCode::NotFound);
  EXPECT_EQ(code(wait(writer.bindPod(none, "n1"))), ErrorCode::NotFound);
}

TEST_F(KubeWriter, RefusalsAreTold) {
  const auto after = [&](unsigned status, const std::string& reason) {
    server->refusals.push_back({status, reason, "no", ""});
    return code(wait(writer.bindPod(mine, "n1")));
  };
  EXPECT_EQ(after(403, "Forbidden"), ErrorCode::Denied);
  EXPECT_EQ(after(422, "Invalid"), ErrorCode::InvalidArgument);
  EXPECT_EQ(after(429, "TooManyRequests"), ErrorCode::Overloaded);
  EXPECT_EQ(after(500, "InternalError"), ErrorCode::Unavailable);
  server->cut();
  EXPECT_EQ(code(wait(writer.bindPod(mine, "n1"))), ErrorCode::Unavailable);
}

TEST_F(KubeWriter, C5_TooManyCallsAreRefusedAtOnce) {
  PodWriterLimits limits = brisk();
  limits.callsMax = 1;
  PodWriter small(api, "qgpu-scheduler", "node-1", limits);
  auto first = small.bindPod(mine, "n1");
  EXPECT_EQ(code(wait(small.bindPod(mine, "n1"))), ErrorCode::Overloaded);
  EXPECT_TRUE(wait(kj::mv(first)).ok());
  EXPECT_TRUE(wait(small.bindPod(mine, "n1")).ok());
}

TEST_F(KubeWriter, EvictionsNameThePodByItsUid) {
  EXPECT_TRUE(wait(writer.evictPod(later)).ok()) << "it is another one now";
  EXPECT_EQ(server->evictions(), 0u);
  EXPECT_TRUE(wait(writer.evictPod(mine)).ok());
  EXPECT_EQ(server->evictions(), 1u);
  EXPECT_TRUE(wait(writer.evictPod(none)).ok()) << "it is gone";
  server->refusals.push_back({429, "TooManyRequests", "Cannot evict pod: budget", ""});
  EXPECT_EQ(code(wait(writer.evictPod(mine))), ErrorCode::Overloaded);
}

TEST_F(KubeWriter, ServersBeforeTheNewEvictionAreAskedInTheOldWay) {
  server->refusals.push_back({400, "BadRequest", "no kind \"Eviction\" is registered", ""});
  EXPECT_TRUE(wait(writer.evictPod(mine)).ok());
  EXPECT_EQ(server->evictions(), 1u);
  EXPECT_NE(server->lastBody.find("policy/v1beta1"), std::string::npos);
}

TEST_F(KubeWriter, AnEventIsWhatKubectlShows) {
  writer.tellPod(event("no card has 5 GiB"));
  ASSERT_TRUE(served([&] { return server->all("events").size() == 1; }));
  const Json told = server->all("events")[0];
  EXPECT_EQ(told["involvedObject"]["uid"], "u1");
  EXPECT_EQ(told["involvedObject"]["kind"], "Pod");
  EXPECT_EQ(told["metadata"]["namespace"], "web");
  EXPECT_EQ(told["type"], "Warning");
  EXPECT_EQ(told["reason"], "QGPURejected");
  EXPECT_EQ(told["message"], "no card has 5 GiB");
  EXPECT_EQ(told["source"]["component"], "qgpu-scheduler");
  EXPECT_EQ(told["count"], 1);
  EXPECT_EQ(told["firstTimestamp"].get<std::string>().size(), 20u);
}

TEST_F(KubeWriter, RepeatedEventsAreCounted) {
  for (int i = 0; i < 5; ++i) writer.tellPod(event("again"));
  writer.tellPod(event("other"));
  ASSERT_TRUE(served([&] { return server->all("events").size() == 2; }));
  writer.tellPod(event("again"));
  ASSERT_TRUE(served([&] {
    for (const Json& told : server->all("events")) {
      if (told["count"] == 6) return true;
    }
    return false;
  }));
  EXPECT_EQ(server->all("events").size(), 2u);
}

TEST_F(KubeWriter, WhatWasToldShowsInTheMetricsByReason) {
  for (int i = 0; i < 3; ++i) writer.tellPod(event("again"));
  writer.tellPod(podEvent(mine, EventReason::MemoryOverrun, {"main", "7 failed"}, 7));
  ASSERT_TRUE(served([&] { return writer.eventsSent() >= 2 && writer.eventsWaiting() == 0; }));
  server->refusals.push_back({403, "Forbidden", "no", ""});
  writer.tellPod(event("forbidden"));
  ASSERT_TRUE(served([&] { return writer.eventsDropped() == 1; }));
  const std::string page = eventMetrics(writer);
  for (const char* line :
       {"qgpu_kube_events_total{reason=\"QGPURejected\",type=\"Warning\"} 4\n",
        "qgpu_kube_events_total{reason=\"QGPUMemoryOverrun\",type=\"Warning\"} 7\n",
        "qgpu_kube_events_dropped_total 1\n", "qgpu_kube_events_waiting 0\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  }
}

TEST_F(KubeWriter, EventsOfOneSubjectAreOneWithItsLastWordsAndAllItsTimes) {
  const auto overrun = [&](const std::string& container, std::uint64_t all, std::uint64_t times) {
    writer.tellPod(podEvent(mine, EventReason::MemoryOverrun,
                            {container, std::to_string(all) + " failed"}, times));
  };
  overrun("main", 3, 3);
  overrun("side", 1, 1);
  ASSERT_TRUE(served([&] { return server->all("events").size() == 2; }));
  overrun("main", 10, 7);
  Json told;
  ASSERT_TRUE(served([&] {
    for (const Json& one : server->all("events")) {
      if (one["count"] == 10) told = one;
    }
    return !told.is_null();
  }));
  EXPECT_EQ(server->all("events").size(), 2u);
  EXPECT_NE(told["message"].get<std::string>().find("10 failed"), std::string::npos);
}

TEST(EventReasons, HaveNamesOfTheirOwnThatBeginAlike) {
  std::set<std::string> names;
  for (const EventEntry& entry : kEventEntries) {
    const std::string name = entry.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(name.starts_with("QGPU") && name.size() > 4 && name.size() <= 128) << name;
    EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalpha(c) != 0;
    })) << name;
  }
}

TEST(EventReasons, TheirShapesTakeValuesAsTheyAre) {
  const PodRef pod{"web", "p", "u1"};
  const PodEvent told = podEvent(pod, EventReason::Refused, {"container {x}", "no {why}"});
  EXPECT_EQ(told.message, "container {x}: no {why}");
  EXPECT_EQ(told.about, told.message);
  EXPECT_EQ(podEvent(pod, EventReason::Suspended, {"main", "5", "60"}).about, "main");
}

TEST_F(KubeWriter, AnEventThatTheServerForgotIsMadeAnew) {
  writer.tellPod(event("again"));
  ASSERT_TRUE(served([&] { return server->all("events").size() == 1; }));
  server->remove("events", "web", server->all("events")[0]["metadata"]["name"]);
  writer.tellPod(event("again"));
  ASSERT_TRUE(served([&] { return server->all("events").size() == 1; }));
  EXPECT_EQ(server->all("events")[0]["count"], 2);
}

TEST_F(KubeWriter, EventsWaitForAServerThatIsAway) {
  server->cut();
  writer.tellPod(event("later"));
  ASSERT_TRUE(served([&] { return !api.reachable(); }));
  server->restart();
  ASSERT_TRUE(served([&] { return server->all("events").size() == 1; }));
}

TEST_F(KubeWriter, C5_EventsBeyondTheQueueAreCountedAndDropped) {
  PodWriterLimits limits = brisk();
  limits.eventsMax = 10;
  limits.eventBurst = 1;
  PodWriter small(api, "qgpu-scheduler", "node-1", limits);
  for (int i = 0; i < 50; ++i) small.tellPod(event(std::to_string(i)));
  EXPECT_GE(small.eventsDropped(), 39u);
  ASSERT_TRUE(served([&] { return small.eventsWaiting() == 0; }));
  ASSERT_TRUE(served([&] { return server->all("events").size() + small.eventsDropped() == 50; }));
}

}  // namespace
}  // namespace qgpu::kube_writer_test
