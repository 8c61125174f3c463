#include "tests/sim/runner.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/sim/cluster/cluster_world.h"
#include "tests/sim/paging/paging_world.h"
#include "tests/testing/child_process.h"

namespace qgpu::sim {
namespace {

constexpr std::uint64_t kSeedsMax = 10'000'000;  // of one call

std::optional<std::uint64_t> number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A worker process: gets a seed at a time and answers in lines.
class Worker {
 public:
  explicit Worker(const RunnerOptions& options) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) std::abort();
    std::vector<std::string> words = {"/proc/self/exe", "--worker"};
    if (*optionOf(options.kind) != 0) words.emplace_back(optionOf(options.kind));
    for (const std::string& set : options.sets) words.insert(words.end(), {"--set", set});
    if (!options.plant.empty()) words.insert(words.end(), {"--plant", options.plant});
    pid_ = testing::startProgram(words, {}, {.in = in[0], .out = out[1]});
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~Worker() {
    ::close(in_);
    ::close(out_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int out() const { return out_; }
  std::optional<std::uint64_t> seed;  // that it has now
  std::uint64_t last = 0;             // that it was given

  void give(std::uint64_t next) {
    const std::string line = std::to_string(next) + "\n";
    seed = last = next;
    // A worker that died is noticed by the end of its output.
    if (::write(in_, line.data(), line.size()) < 0) return;
  }
  // No more seeds: it says its marks and ends.
  void finish() {
    ::close(in_);
    in_ = -1;
  }
  // Whole lines that came; `open` turns false at the end of its output.
  std::vector<std::string> read(bool& open) {
    char buffer[4096];
    const ssize_t got = ::read(out_, buffer, sizeof buffer);
    open = got > 0;
    if (got > 0) rest_.append(buffer, static_cast<std::size_t>(got));
    std::vector<std::string> lines;
    for (std::size_t end = 0; (end = rest_.find('\n')) != std::string::npos;) {
      lines.push_back(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
    return lines;
  }
  // How it ended, in words; empty: well.
  std::string reap() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return "exit status " + std::to_string(WEXITSTATUS(status));
    return "";
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string rest_;
};

// One pass over the seeds with several workers.
class Pass {
 public:
  Pass(const Seeds& seeds, const RunnerOptions& options, Summary& summary)
      : options_(options), left_(seeds.list.begin(), seeds.list.end()), summary_(summary) {}

  std::map<std::uint64_t, std::uint64_t> hashes;

  void run() {
    const unsigned cpus = std::max(1U, std::thread::hardware_concurrency());
    const std::size_t jobs = options_.jobs != 0 ? options_.jobs : cpus;
    total_ = left_.size();
    for (std::size_t i = 0; i < std::min(jobs, left_.size()); ++i) start();
    while (!workers_.empty()) turn();
    if (!options_.quiet) std::fprintf(stderr, "\r%40s\r", "");
  }

 private:
  void start() {
    workers_.push_back(std::make_unique<Worker>(options_));
    next(*workers_.back());
  }

  void next(Worker& worker) {
    const bool stop = options_.stopAtFirst && !summary_.bad.empty();
    worker.seed.reset();
    if (left_.empty() || stop) return worker.finish();
    worker.give(left_.front());
    left_.pop_front();
  }

  void turn() {
    std::vector<pollfd> polled;
    for (const auto& worker : workers_) polled.push_back({worker->out(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0) return;
    for (std::size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents != 0) serve(i);
    }
  }

  void serve(std::size_t index) {
    Worker& worker = *workers_[index];
    bool open = true;
    for (const std::string& line : worker.read(open)) hear(worker, line);
    if (open) return;
    const std::optional<std::uint64_t> seed = worker.seed;
    const std::uint64_t last = worker.last;
    const std::string how = worker.reap();
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
    if (!seed) {  // it had no more to do: leaks and the like are told now
      const std::string late = "the process ended after its last seed: " + how;
      if (!how.empty()) summary_.bad.push_back({last, {Failing::Crash, "crash", late, {}, 0}});
      return;
    }
    done(*seed);
    summary_.bad.push_back({*seed, {Failing::Crash, "crash", "the process ended: " + how, {}, 0}});
    if (!left_.empty() && !options_.stopAtFirst) start();
  }

  void hear(Worker& worker, const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "marks") {
      std::uint64_t hit = 0;
      for (std::size_t i = 0; i < summary_.marks.size() && words >> hit; ++i) {
        summary_.marks[i] += hit;
      }
      std::int64_t cpu = 0;
      if (words >> cpu) summary_.cpuNs += cpu;
      return;
    }
    Outcome outcome;
    words >> outcome.seed >> outcome.hash >> outcome.events >> outcome.lives >> outcome.tasks;
    if (kind == "bad") {
      int failing = 0;
      Failure failure;
      words >> failing >> failure.id >> failure.at.value >> failure.event;
      std::getline(words, failure.what);
      failure.failing = static_cast<Failing>(failing);
      summary_.bad.push_back({outcome.seed, failure});
    }
    hashes[outcome.seed] = outcome.hash;
    summary_.events += outcome.events;
    summary_.lives += outcome.lives;
    summary_.tasks += outcome.tasks;
    done(outcome.seed);
    next(worker);
  }

  void done(std::uint64_t seed) {
    ++summary_.seeds;
    ++done_;
    if (options_.quiet || done_ % 64 != 0) return;
    std::fprintf(stderr, "\r%zu of %zu seeds, %zu bad, last %llu", done_, total_,
                 summary_.bad.size(), static_cast<unsigned long long>(seed));
  }

  const RunnerOptions& options_;
  std::deque<std::uint64_t> left_;
  Summary& summary_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t total_ = 0;
  std::size_t done_ = 0;
};

// One line for the parent: a failure's text must not break it.
std::string oneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The kinds of worlds, with what --shrink may take away.
template <typename Drawn>
struct Number {
  std::string name;
  std::uint64_t least;
  std::function<std::uint64_t(const Drawn&)> get;
};
struct NodeKind {
  using Drawn = Options;
  using Life = World;
  static const auto& faults() { return faultNames(); }
  static std::vector<Number<Drawn>> numbers() {
    return {{"cards=", 1, [](const Drawn& o) { return std::uint64_t{o.cards}; }},
            {"tasks=", 1, [](const Drawn& o) { return std::uint64_t{o.tasks}; }},
            {"events=", 100, [](const Drawn& o) { return o.events; }}};
  }
};
struct ClusterKind {
  using Drawn = ClusterOptions;
  using Life = ClusterWorld;
  static const auto& faults() { return clusterFaultNames(); }
  static std::vector<Number<Drawn>> numbers() {
    return {{"nodes=", 1, [](const Drawn& o) { return std::uint64_t{o.nodes}; }},
            {"cards=", 1, [](const Drawn& o) { return std::uint64_t{o.cards}; }},
            {"tasks=", 1, [](const Drawn& o) { return std::uint64_t{o.tasks}; }},
            {"events=", 100, [](const Drawn& o) { return o.events; }}};
  }
};
struct PagingKind {
  using Drawn = PagingOptions;
  using Life = PagingWorld;
  static const auto& faults() { return pagingFaultNames(); }
  static std::vector<Number<Drawn>> numbers() {
    return {{"tasks=", 1, [](const Drawn& o) { return std::uint64_t{o.tasks}; }},
            {"processes=", 1, [](const Drawn& o) { return std::uint64_t{o.processes}; }},
            {"tenants=", 0, [](const Drawn& o) { return std::uint64_t{o.tenants}; }},
            {"events=", 100, [](const Drawn& o) { return o.events; }}};
  }
};
template <typename Use>
auto ofKind(Kind kind, Use use) {
  if (kind == Kind::Cluster) return use(ClusterKind());
  if (kind == Kind::Paging) return use(PagingKind());
  return use(NodeKind());
}

// The options of a seed.
template <typename Drawn>
Result<Drawn> optionsOf(std::uint64_t seed, const std::vector<std::string>& sets) {
  Drawn options = Drawn::draw(seed);
  for (const std::string& assignment : sets) {
    if (Status set = options.set(assignment); !set) return set.error();
  }
  return options;
}

bool failsAlike(const std::vector<std::string>& sets, std::uint64_t seed, const Failure& failure,
                RunnerOptions options) {
  options.sets = sets;
  options.quiet = true;
  options.twice = false;
  const Summary summary = runSeeds({{seed}}, options);
  return !summary.bad.empty() && summary.bad[0].failure.failing == failure.failing &&
         summary.bad[0].failure.id == failure.id;
}

}  // namespace

const char* optionOf(Kind kind) {
  return kind == Kind::Cluster ? "--cluster" : kind == Kind::Paging ? "--paging" : "";
}

Result<Seeds> Seeds::parse(const std::string& text) {
  Seeds seeds;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t dots = part.find("..");
    const auto first = number(part.substr(0, dots));
    const auto last = dots == std::string::npos ? first : number(part.substr(dots + 2));
    if (!first || !last || *last < *first || *last - *first >= kSeedsMax) {
      return fail(ErrorCode::InvalidArgument, "'" + part +
                                                  "' is no seed and no range such as "
                                                  "1..1000");
    }
    for (std::uint64_t seed = *first; seed <= *last; ++seed) seeds.list.push_back(seed);
  }
  if (seeds.list.empty()) return fail(ErrorCode::InvalidArgument, "no seeds were given");
  return seeds;
}

Result<std::string> settingsOf(std::uint64_t seed, const RunnerOptions& options) {
  return ofKind(options.kind, [&]<typename K>(K) -> Result<std::string> {
    const auto drawn = optionsOf<typename K::Drawn>(seed, options.sets);
    if (!drawn) return drawn.error();
    return drawn->text();
  });
}

Result<Outcome> runSeed(std::uint64_t seed, const RunnerOptions& options, std::uint64_t traceFrom) {
  return ofKind(options.kind, [&]<typename K>(K) -> Result<Outcome> {
    const auto drawn = optionsOf<typename K::Drawn>(seed, options.sets);
    if (!drawn) return drawn.error();
    return typename K::Life(*drawn, traceFrom).run();
  });
}

Bug bugNamed(const std::string& name) {
  constexpr const char* kNames[] = {
#define X(bug, invariant) #bug,
      QGPU_BUGS(X) QGPU_CLUSTER_BUGS(X) QGPU_PAGING_BUGS(X)
#undef X
  };
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Bug>(i);
  }
  return Bug::kNone;
}

namespace {

bool isBad(const Summary& summary, std::uint64_t seed) {
  return std::any_of(summary.bad.begin(), summary.bad.end(),
                     [seed](const Summary::Bad& bad) { return bad.seed == seed; });
}

}  // namespace

Summary runSeeds(const Seeds& seeds, const RunnerOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  Summary summary;
  Pass first(seeds, options, summary);
  first.run();
  if (!options.twice) return summary;
  Summary again;
  Pass second(seeds, options, again);
  second.run();
  summary.cpuNs += again.cpuNs;
  for (Summary::Bad& bad : again.bad) {
    if (isBad(summary, bad.seed)) continue;
    bad.failure.what = "in the second run: " + bad.failure.what;
    summary.bad.push_back(std::move(bad));
  }
  for (const auto& [seed, hash] : second.hashes) {
    const auto before = first.hashes.find(seed);
    if (before == first.hashes.end() || before->second == hash) continue;
    summary.bad.push_back(
        {seed, {Failing::Nondeterminism, "A13", "two runs of one seed differ", {}, 0}});
  }
  return summary;
}

int work(const RunnerOptions& options) {
  if (!options.plant.empty()) plantedBug = bugNamed(options.plant);
  for (std::uint64_t seed = 0; std::cin >> seed;) {
    const Result<Outcome> ran = runSeed(seed, options);
    if (!ran) return static_cast<int>(Failing::Usage);
    const Outcome& o = *ran;
    std::printf("%s %llu %llu %llu %llu %llu", o.failure ? "bad" : "good",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(o.hash),
                static_cast<unsigned long long>(o.events), static_cast<unsigned long long>(o.lives),
                static_cast<unsigned long long>(o.tasks));
    if (o.failure) {
      std::printf(" %d %s %lld %llu %s", static_cast<int>(o.failure->failing),
                  o.failure->id.c_str(), static_cast<long long>(o.failure->at.value),
                  static_cast<unsigned long long>(o.failure->event),
                  oneLine(o.failure->what).c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::printf("marks");
  for (const std::uint64_t hit : marksHit) {
    std::printf(" %llu", static_cast<unsigned long long>(hit));
  }
  std::printf(" %lld\n",
              static_cast<long long>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000'000 +
                  static_cast<long long>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1'000);
  return 0;
}

namespace {

// What is left of `sets` after each attempt to take something away.
template <typename K>
std::vector<std::string> shrinkAs(std::uint64_t seed, const Failure& failure,
                                  const RunnerOptions& options) {
  std::vector<std::string> sets = options.sets;
  const auto attempt = [&](const std::string& assignment) {
    std::vector<std::string> more = sets;
    more.push_back(assignment);
    if (!failsAlike(more, seed, failure, options)) return false;
    sets = std::move(more);
    return true;
  };
  const auto now = [&] { return *optionsOf<typename K::Drawn>(seed, sets); };
  for (const auto& entry : K::faults()) {
    auto without = now();
    if (!without.has(entry.fault)) continue;
    without.remove(entry.fault);
    const std::string text = without.text();
    attempt(text.substr(0, text.find(' ')));
  }
  for (const auto& number : K::numbers()) {
    const auto value = [&] { return static_cast<std::uint64_t>(number.get(now())); };
    while (value() > number.least &&
           attempt(number.name + std::to_string(std::max(value() / 2, number.least)))) {
    }
  }
  return sets;
}

}  // namespace

std::vector<std::string> shrink(std::uint64_t seed, const Failure& failure,
                                const RunnerOptions& options) {
  return ofKind(options.kind, [&]<typename K>(K) { return shrinkAs<K>(seed, failure, options); });
}

}  // namespace qgpu::sim
