// Whether this card's driver lets work be taken off it and put back, by which calls, and how long
// they take. Only our own probe is ever stopped.

#include <algorithm>
#include <cstdlib>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "runtime/fd.h"
#include "services/attach/pages/timeslices.h"
#include "services/cards/suspend/driver_calls.h"
#include "services/cards/suspend/layout_program.h"
#include "services/cards/suspend/probe_process.h"
#include "services/nvidia_abi/rm_abi.h"
#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/ranks.h"
#include "tests/testing/forked_process.h"

namespace qgpu::gpu {
namespace {

double usOf(Nanos time) {
  return static_cast<double>(time.value) / 1'000;
}

void figures(Json& out, const std::string& name, std::vector<Nanos> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  out[name + "_p50_us"] = usOf(rank(times, 500));
  out[name + "_p99_us"] = usOf(rank(times, 990));
  out[name + "_max_us"] = usOf(times.back());
}

suspend::SelfTestOptions optionsOf(const CheckContext& context) {
  suspend::SelfTestOptions options;
  options.uuid = context.card.uuid;
  options.driverVersion = context.card.driver;
  options.minor = context.card.minor;
  options.probe = testing::binary("qgpu-suspend-probe");
  options.toggles = static_cast<std::uint32_t>(context.count(200, 5));
  return options;
}

// One client of the driver, and a program that it takes off the card.
class Hand {
 public:
  Hand(const suspend::SelfTestOptions& options, suspend::SuspendMethod method,
       const suspend::ProbeProcess& probe)
      : method_(method), channels_(probe.channels()), suspender_(method) {
    auto opened = suspend::DriverCalls::open(options);
    if (!opened) throw crash::Violation(opened.error().message);
    calls_ = std::move(*opened);
    calls_->process(suspend::ProbeProcess::kProcess, probe.pidfd());
    for (const suspend::Channel& channel : channels_) suspender_.made(channel);
  }
  void off() {
    suspender_.hold(suspend::now());
    callAll();
    if (!suspender_.stopped())
      throw crash::Violation("not taken off the card: " + suspender_.why());
  }
  // Also what another client took off.
  void on() {
    if (calls_->carryOut({suspend::Step::kEnable, channels_}, method_).answer !=
        suspend::Answer::kDone) {
      throw crash::Violation("not put back");
    }
  }

 private:
  void callAll() {
    while (const auto order = suspender_.next(suspend::now())) {
      const auto outcome = calls_->carryOut(*order, method_);
      suspender_.answered(outcome.answer, outcome.gone, suspend::now());
    }
  }
  const suspend::SuspendMethod method_;
  const std::vector<suspend::Channel> channels_;
  suspend::ChannelSuspender suspender_;
  std::unique_ptr<suspend::DriverCalls> calls_;
};

void begin(suspend::ProbeProcess& probe) {
  const std::string why = probe.begin();
  if (!why.empty()) throw crash::Violation(why);
}

// Who took work off the card dies: does it stay off, and can another put it back?
void checkHolderDies(CheckContext& context, suspend::SuspendMethod method) {
  const suspend::SelfTestOptions options = optionsOf(context);
  suspend::ProbeProcess probe(options);
  begin(probe);
  testing::ForkedProcess child([&] {
    try {
      Hand hand(options, method, probe);
      hand.off();
      ::_exit(0);    // as it is
    } catch (...) {  // or it would go on as a second one of us
      return 1;
    }
  });
  if (child.wait() != 0) throw crash::Violation("the work was not taken off");
  using Goes = suspend::ProbeProcess::Goes;
  const bool byItself = probe.goesOnWithin(context.quick ? millis(50) : seconds(3)) == Goes::On;
  Hand(options, method, probe).on();
  const bool again = probe.goesOnWithin(seconds(2)) == Goes::On;
  const std::string wrong = probe.end();
  Finding finding{"who took work off the card is gone", "another client puts it back"};
  finding.figures = {{"goes_on_by_itself", byItself}, {"goes_on_again", again}};
  finding.verdict = again && wrong.empty() ? Verdict::kMet : Verdict::kMissed;
  finding.why = wrong;
  context.record.add(std::move(finding));
}

void checkKilledWhileOff(CheckContext& context, suspend::SuspendMethod method) {
  constexpr std::uint64_t kRest = 64 << 20;  // the driver's own
  const suspend::SelfTestOptions options = optionsOf(context);
  const std::uint64_t before = context.card.used();
  const std::int64_t from = [&] {
    suspend::ProbeProcess probe(options);
    begin(probe);
    Hand(options, method, probe).off();
    const std::int64_t killed = testing::monotonicNs();
    probe.kill();
    return killed;
  }();
  const bool freed = testing::eventually([&] { return context.card.used() <= before + kRest; });
  const double ms = static_cast<double>(testing::monotonicNs() - from) / 1e6;
  suspend::ProbeProcess next(options);
  begin(next);
  const std::string wrong = next.end();
  Finding finding{"a program killed while it is off the card", "its memory is free, others run"};
  finding.figures = {{"freed", freed}, {"freed_ms", ms}};
  finding.verdict = freed && wrong.empty() ? Verdict::kMet : Verdict::kMissed;
  finding.why = wrong;
  context.record.add(std::move(finding));
}

Json probeBare(CheckContext& context) {
  Child child(Scene::work({"probe", "--iterations", context.spins(0.05), "--every", "20", "--count",
                           std::to_string(context.count(300, 10))}),
              {{"CUDA_VISIBLE_DEVICES", context.card.uuid}});
  return resultOf(child, "a bare program");
}

// The driver's answers together; 0: each group of the probe's runs for at most so long from now on.
std::uint32_t slice(const suspend::ProbeProcess& probe, std::uint64_t us) {
  std::uint32_t answers = rm::kOk;
  for (const suspend::Channel& channel : probe.channels()) {
    if (channel.group == 0) continue;
    const Fd file(static_cast<int>(::syscall(SYS_pidfd_getfd, probe.pidfd(), channel.fd, 0)));
    answers |= rm::setTimeslice(file.get(), {channel.client, channel.group}, us);
  }
  return answers;
}

// What the driver's means reach by themselves: online beside a program that runs, that runs in
// short slices, and whose work is off.
void checkFloor(CheckContext& context, suspend::SuspendMethod method) {
  suspend::SelfTestOptions options = optionsOf(context);
  options.iterations = context.spinPerMs * 10;
  const Json alone = probeBare(context);
  suspend::ProbeProcess probe(options);
  begin(probe);
  const Json beside = probeBare(context);
  const std::uint32_t sliced = slice(probe, kOfflineTimesliceUs);
  const Json slices = probeBare(context);
  Hand hand(options, method, probe);
  hand.off();
  const Json off = probeBare(context);
  hand.on();
  const std::string wrong = probe.end();
  Finding finding{"online's start beside 10 ms kernels: that run, in slices, and off the card",
                  "off: p99 at most 0.1 ms more than alone"};
  for (const char* name : {"start_p50_us", "start_p99_us"}) {
    finding.figures[std::string("alone_") + name] = alone[name];
    finding.figures[std::string("beside_") + name] = beside[name];
    finding.figures[std::string("slices_") + name] = slices[name];
    finding.figures[std::string("off_") + name] = off[name];
  }
  finding.figures["slices_status"] = sliced;
  const double added = off["start_p99_us"].get<double>() - alone["start_p99_us"].get<double>();
  finding.verdict = wrong.empty() ? context.timed(added <= 100) : Verdict::kMissed;
  finding.why = wrong;
  context.record.add(std::move(finding));
}

// The manager's own test at its start, in a process of its own, must find the same.
void checkManagerFinds(CheckContext& context) {
  Scene scene(context.card, {});
  const Json card = scene.card();
  Finding finding{"the manager's own test, at its start", "suspend is rm"};
  finding.figures = {{"suspend", card["suspend"]}};
  finding.verdict = card["suspend"] == "rm" ? Verdict::kMet : Verdict::kMissed;
  finding.why = card.value("suspend_why", "");
  context.record.add(std::move(finding));
}

}  // namespace

void checkSuspendMethods(CheckContext& context) {
  const suspend::SelfTest found = suspend::testSuspend(optionsOf(context));
  for (const suspend::MethodTried& tried : found.tried) {
    Finding finding{std::string("suspend by: ") + suspend::nameOf(tried.method)};
    finding.figures = {
        {"works", tried.works}, {"times", tried.off.size()}, {"channels", found.channels}};
    figures(finding.figures, "off", tried.off);
    figures(finding.figures, "on", tried.on);
    finding.why = tried.why;
    context.record.add(std::move(finding));
  }
  Finding finding{"work is taken off the card and put back", "a method works, the count is exact"};
  finding.figures = {{"method", found.method ? suspend::nameOf(*found.method) : "none"}};
  finding.verdict = found.method ? Verdict::kMet : Verdict::kMissed;
  finding.why = found.why;
  context.record.add(std::move(finding));
  if (!found.method) return;
  checkManagerFinds(context);
  checkHolderDies(context, *found.method);
  checkKilledWhileOff(context, *found.method);
  checkFloor(context, *found.method);
}

// As a manager tries a driver that is newer than all that it knows. The layouts of 525 and 535
// differ in where the status of an allocation is.
void checkLayout(CheckContext& context) {
  const std::string& version = context.card.driver;
  const auto says = [&](std::uint64_t major) {
    Child child({testing::binary("qgpu-suspend-probe"), "layout", version, std::to_string(major),
                 context.card.uuid},
                {{"CUDA_VISIBLE_DEVICES", context.card.uuid}});
    child.wait(std::chrono::seconds(30));
    return child.output().substr(0, child.output().find('\n'));
  };
  const std::uint64_t driver = std::strtoul(version.c_str(), nullptr, 10);
  const std::uint64_t own = std::min<std::uint64_t>(driver, rm::kNewestKnown);
  Finding finding{"the driver's calls, read in a layout", "agree with its own and with no other"};
  const std::string right = says(own), wrong = says(own < 535 ? 535 : 525);
  finding.figures = {{"own", right}, {"other", wrong}};
  const bool met = right == suspend::kAgrees && wrong != suspend::kAgrees && !wrong.empty();
  finding.verdict = met ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

}  // namespace qgpu::gpu
