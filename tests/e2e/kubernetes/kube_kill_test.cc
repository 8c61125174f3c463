// kill -9 of the scheduler, of the manager, of the device plugin, after each step of a pod's life
// that somebody has stored, with all of them real. Afterwards the pod reaches its end, another one
// that ran before never noticed, and what is granted is what those that live ask for.

#include <atomic>
#include <fstream>
#include <signal.h>

#include "tests/e2e/kubernetes/kube_world.h"

namespace qgpu::e2e::kube_kill_test {
namespace {

enum class Victim { Scheduler, Manager, Plugin };
enum class After { Filter, Annotate, Bind, Allocate, Prestart, Release };

std::string wordOf(Victim victim) {
  switch (victim) {
    case Victim::Scheduler:
      return "Scheduler";
    case Victim::Manager:
      return "Manager";
    case Victim::Plugin:
      return "Plugin";
  }
  return "";
}

std::string wordOf(After after) {
  switch (after) {
    case After::Filter:
      return "Filter";
    case After::Annotate:
      return "Annotate";
    case After::Bind:
      return "Bind";
    case After::Allocate:
      return "Allocate";
    case After::Prestart:
      return "Prestart";
    case After::Release:
      return "Release";
  }
  return "";
}

bool isDead(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return !(stat >> number >> name >> state) || state == "Z";
}

using Case = std::tuple<Victim, After>;

struct KubeKill : KubeWorld, ::testing::WithParamInterface<Case> {
  static constexpr const char* kJob = "job";

  Victim victim() const { return std::get<Victim>(GetParam()); }
  After after() const { return std::get<After>(GetParam()); }

  // On whichever thread the step was seen; once.
  void strike() {
    if (struck_.exchange(true)) return;
    const pid_t pid = victim() == Victim::Scheduler ? scheduler->pid()
                      : victim() == Victim::Manager ? manager->pid()
                                                    : pluginPid();
    ::kill(pid, SIGKILL);
    eventually([pid] { return isDead(pid); });
    dead_ = pid;
  }
  void strikeAt(After step) {
    if (step == after()) strike();
  }
  // Before any pod is there.
  void arm() {
    kubelet.setHook([this](SmallKubelet::Step step, const std::string& name) {
      if (name != kJob) return;
      if (step == SmallKubelet::Step::Allocated) strikeAt(After::Allocate);
      if (step == SmallKubelet::Step::Prestarted) strikeAt(After::Prestart);
      if (step == SmallKubelet::Step::Released) strikeAt(After::Release);
    });
    api.with([this](testing::ApiStandIn& server) {
      server.onDone = [this](const std::string& what) {
        const std::string path = std::string("/api/v1/namespaces/web/pods/") + kJob;
        if (what == "PATCH " + path + "/status") strikeAt(After::Annotate);
        if (what == "POST " + path + "/binding") strikeAt(After::Bind);
      };
    });
  }
  bool bound() {
    const Json object = pod(kJob);
    return !object.is_null() && object["spec"].contains("nodeName");
  }
  // Until the victim is dead; the pod's life goes as far as it takes.
  bool untilStruck() {
    if (after() == After::Filter) {
      const Json args{{"Pod", pod(kJob)}, {"Nodes", nullptr}, {"NodeNames", {kNode}}};
      EXPECT_EQ(scheduler->post("filter", args)["NodeNames"], Json{kNode});
      strike();
    } else if (after() == After::Release) {
      EXPECT_TRUE(schedule(kJob));
      EXPECT_TRUE(reaches(kJob, "Running"));
      job.end();
    }
    return eventually(
        [this] {
          if (!struck_ && !bound()) cycle(kJob);
          return dead_ != 0;
        },
        std::chrono::seconds(30));
  }
  void recover() {
    if (victim() == Victim::Scheduler) {
      scheduler->kill();
      scheduler->start();
    } else if (victim() == Victim::Manager) {
      manager->kill();
      manager->start();
    }
    ASSERT_TRUE(eventually([this] { return pluginPid() != 0 && pluginPid() != dead_ && served(); },
                           std::chrono::seconds(30)));
  }
  // Kubelet refuses a pod for good that comes while no plugin serves: its controller makes another
  // one then, of the same name.
  bool runs() {
    return eventually(
        [this] {
          if (phase(kJob) == "Running") return true;
          if (phase(kJob) == "Failed") {
            ++replaced;
            api.remove("pods", kSpace, kJob);
            create(kJob, {30, 5}, job.command());
          }
          if (!bound()) cycle(kJob);
          return false;
        },
        std::chrono::seconds(60));
  }

  PlainTenant stays{dir.path() + "/stays"};
  PlainTenant job{dir.path() + "/job"};
  int replaced = 0;

 private:
  std::atomic<bool> struck_{false};
  std::atomic<pid_t> dead_{0};
};

TEST_P(KubeKill, LeavesNothingTwiceAndNothingLost) {
  arm();
  startAll();
  create("stays", {20, 3}, stays.command());
  ASSERT_TRUE(schedule("stays"));
  ASSERT_TRUE(reaches("stays", "Running"));
  ASSERT_TRUE(stays.launchesOn());

  create(kJob, {30, 5}, job.command());
  ASSERT_TRUE(untilStruck());
  recover();
  if (after() != After::Release) {
    ASSERT_TRUE(runs()) << kubelet.trouble(kJob);
    ASSERT_TRUE(job.launchesOn()) << kubelet.trouble(kJob);
    EXPECT_TRUE(agrees());
    EXPECT_EQ(boundGib(), 8u);
    EXPECT_EQ(scheduler->tasks().size(), 2u) << scheduler->tasks();
    EXPECT_EQ(manager->tasks().size(), 2u) << manager->tasks();
    job.end();
  }
  EXPECT_TRUE(reaches(kJob, "Succeeded"));
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 3u);
  EXPECT_TRUE(eventually([&] { return scheduler->tasks().size() == 1; })) << scheduler->tasks();
  EXPECT_TRUE(eventually([&] { return manager->tasks().size() == 1; })) << manager->tasks();
  EXPECT_LE(replaced, victim() == Victim::Scheduler ? 0 : 1);

  EXPECT_TRUE(stays.launchesOn()) << "who ran before runs on";
  EXPECT_EQ(phase("stays"), "Running");
  stays.end();
  EXPECT_TRUE(reaches("stays", "Succeeded"));
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, KubeKill,
    ::testing::Combine(::testing::Values(Victim::Scheduler, Victim::Manager, Victim::Plugin),
                       ::testing::Values(After::Filter, After::Annotate, After::Bind,
                                         After::Allocate, After::Prestart, After::Release)),
    [](const ::testing::TestParamInfo<Case>& one) {
      return wordOf(std::get<Victim>(one.param)) + "After" + wordOf(std::get<After>(one.param));
    });

}  // namespace
}  // namespace qgpu::e2e::kube_kill_test
