#include "services/prove/prove.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <sys/utsname.h>
#include <unistd.h>
#include <utility>

#include "actors/ledger/card_name.h"
#include "services/base/wall_time.h"
#include "services/cards/paths/node_paths.h"
#include "services/demo/tenants/machine_use.h"
#include "services/demo/tenants/output_folder.h"
#include "services/prove/checks.h"
#include "services/prove/page.h"
#include "services/prove/signature.h"

namespace qgpu::prove {
namespace {

namespace fs = std::filesystem;

class Run {
 public:
  Run(const ProveOptions& options, const ProveSetting& setting, CardHost& host,
      std::int64_t onlineIdleNs)
      : options_(options), setting_(setting), bench_{host, onlineIdleNs, options.quick} {}
  // The card's policy is as it was.
  ~Run() { static_cast<void>(bench_.host.choosePolicy(bench_.host.card().policy)); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Report measure() {
    for (const Part& part : kParts) {
      if (demo::interrupted() || (!options_.only.empty() && options_.only != part.name)) continue;
      part_ = part.name;
      setting_.tell(std::string(part.name) + ": " + part.does);
      const std::size_t first = report_.promises.size();
      (this->*part.measure)();
      const Result<std::string> others = bench_.host.others();
      for (std::size_t i = first; i < report_.promises.size(); i++) {
        Promise& promise = report_.promises[i];
        if (!others) disturb(promise, "the manager was lost: " + others.error().message);
        if (others && !others->empty()) disturb(promise, "other tasks came: " + *others);
        setting_.tell("  " + promise.id + " " + std::string(nameOf(promise.verdict)));
      }
    }
    return std::move(report_);
  }

  struct Part {
    const char* name;
    const char* does;
    void (Run::*measure)();
  };
  static const std::array<Part, 5> kParts;

 private:
  void add(Promise promise) {
    promise.again = "qgpuctl prove --only " + part_ + " --card " + bench_.host.card().id +
                    (bench_.quick ? " --quick" : "");
    report_.promises.push_back(std::move(promise));
  }

  // What `measure` gives, once the card is free and has this policy.
  template <typename Measure>
  auto onFreeCard(const char* policy, Measure measure) -> decltype(measure()) {
    if (Status empty = bench_.host.awaitEmpty(); !empty) return empty.error();
    if (Status chosen = bench_.host.choosePolicy(policy); !chosen) return chosen.error();
    return measure();
  }

  void quota() {
    add(judgeQuota(onFreeCard("best-effort", [&] { return measureQuota(bench_); })));
  }

  void escape() {
    add(judgeEscape(onFreeCard("best-effort", [&] { return measureEscape(bench_); })));
    const demo::CardCounters& card = bench_.host.card();
    const Result<std::string> node = ownNode(card.backend, "", card.id);
    if (node && node->empty()) return;  // such a card is behind none
    add(judgeWays(onFreeCard("best-effort", [&]() -> Result<WaysFigures> {
      return node ? measureWays(bench_, *node) : Result<WaysFigures>(node.error());
    })));
  }

  void kills() {
    for (const KillAt at : {KillAt::Holds, KillAt::Held}) {
      add(judgeKill(at, onFreeCard("best-effort", [&] { return measureKill(bench_, at); })));
    }
  }

  void shares() {
    const std::vector<std::vector<std::int64_t>> all =
        bench_.quick ? std::vector<std::vector<std::int64_t>>{{300, 600}}
                     : std::vector<std::vector<std::int64_t>>{{100, 300, 600}, {1'000}};
    for (const std::vector<std::int64_t>& group : all) {
      const Result<std::vector<ShareFigures>> figures =
          onFreeCard("fixed-share", [&] { return measureShares(bench_, group); });
      for (std::size_t i = 0; i < group.size(); i++) {
        add(judgeShare(group[i], figures ? Result<ShareFigures>((*figures)[i])
                                         : Result<ShareFigures>(figures.error())));
      }
    }
  }

  // What could be measured counts where one length of kernels could not be.
  void online() {
    std::vector<OnlineFigures> measured;
    Result<ReleaseFigures> release = ReleaseFigures{bench_.onlineIdleNs / 1'000, {}, 0, 0, 0};
    Result<ResumeFigures> resume = ResumeFigures{};
    for (const std::int64_t kernelMs : kKernelsMs) {
      const Result<OnlineRun> run =
          onFreeCard("best-effort", [&] { return measureOnline(bench_, kernelMs); });
      if (!run) {
        add(judgeLatency(kernelMs, run.error()));
        release = run.error();
        resume = run.error();
        continue;
      }
      add(judgeLatency(kernelMs, run->online));
      measured.push_back(run->online);
      report_.head.clock = run->clock;
      if (!release || !resume) continue;
      release->seenUs.insert(release->seenUs.end(), run->releasesUs.begin(), run->releasesUs.end());
      resume->suspend = run->resume.suspend;
      resume->holds += run->resume.holds;
      resume->standstills += run->resume.standstills;
      resume->itemsChecked += run->resume.itemsChecked;
      resume->wrongItems += run->resume.wrongItems;
    }
    report_.curves = curvesOf(measured);
    const Result<demo::CardCounters> card = bench_.host.now();
    if (release && card) {
      release->accountP50Us = card->releaseUs.p50;
      release->accountP99Us = card->releaseUs.p99;
      release->accountCount = card->releaseUs.n;
    }
    add(judgeRelease(release));
    add(judgeResume(resume));
  }

  const ProveOptions& options_;
  const ProveSetting& setting_;
  const Bench bench_;
  std::string part_;
  Report report_;
};

constexpr std::array<Run::Part, 5> Run::kParts = {
    {{"quota", "a program takes memory until it is refused", &Run::quota},
     {"share", "busy programs against the same ones without qgpu", &Run::shares},
     {"online", "bursts behind kernels of 1, 10 and 100 ms", &Run::online},
     {"kill", "SIGKILL for programs that have the card, or wait for it", &Run::kills},
     {"escape", "a program without the library, and ways past it to the card", &Run::escape}}};

Result<demo::CardCounters> chooseCard(demo::NodeClient& client, const std::string& name) {
  const auto cards = client.cards();
  if (!cards) return cards.error();
  if (name.empty()) return cards->front();
  std::string known;
  for (const demo::CardCounters& card : *cards) {
    if (isCardCalled(name, card.id, static_cast<std::uint32_t>(card.index))) return card;
    known += (known.empty() ? "" : ", ") + card.id;
  }
  return fail(ErrorCode::NotFound, "there is no card \"" + name + "\": there is " + known);
}

// The card takes tasks and has none.
Status mayMeasure(CardHost& host) {
  const std::string& card = host.card().id;
  if (host.card().state != "ready") {
    return fail(ErrorCode::Conflict, "card " + card + " is " + host.card().state +
                                         ", and the programs of the report would find no room: "
                                         "qgpuctl uncordon " +
                                         card);
  }
  const Result<std::string> others = host.others();
  if (!others) return others.error();
  if (others->empty()) return ok();
  return fail(ErrorCode::Conflict, "card " + card + " has tasks: " + *others +
                                       "; a report needs it alone, so drain it first, then "
                                       "uncordon it");
}

Result<std::string> driverOf(demo::TenantHost& host) {
  const Result<std::string> text = host.askWork("--describe");
  if (!text) return text.error();
  const Result<demo::DeviceNames> names = demo::parseDeviceNames(*text);
  if (!names) return names.error();
  return names->driver;
}

std::string commandOf(const ProveOptions& options) {
  std::string command = "qgpuctl prove";
  if (!options.card.empty()) command += " --card " + options.card;
  if (!options.only.empty()) command += " --only " + options.only;
  if (options.quick) command += " --quick";
  return command;
}

Status writeFile(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  if (file) return ok();
  return fail(ErrorCode::Unavailable,
              path.string() + " can't be written: name another folder with --dir");
}

}  // namespace

std::vector<std::string> proveParts() {
  std::vector<std::string> names;
  for (const Run::Part& part : Run::kParts) names.emplace_back(part.name);
  return names;
}

Result<Report> prove(const ProveOptions& options, const ProveSetting& setting) {
  if (::access((setting.binaries + "/qgpu-work").c_str(), X_OK) != 0) {
    return fail(ErrorCode::NotFound, "qgpu-work, which does the work that is measured, is not in " +
                                         setting.binaries +
                                         ": the package qgpu-manager has it, and `./dev install`");
  }
  demo::NodeClient client(setting.socket);
  const Result<demo::NodeSettings> settings = client.settings();
  if (!settings) return settings.error();
  const Result<demo::CardCounters> card = chooseCard(client, options.card);
  if (!card) return card.error();
  const demo::OutputFolder outputs("prove");
  if (Status made = outputs.made(); !made) return made.error();
  CardHost host(setting.binaries, setting.socket, outputs.path(), *card);
  if (Status may = mayMeasure(host); !may) return may.error();
  demo::becomeKeeper();
  const demo::MachineUse::Counters before = demo::MachineUse::count();
  setting.tell("the card alone: its driver, and how fast it is");
  const Result<std::string> driver = driverOf(host);
  if (!driver) return driver.error();
  if (Status measured = host.calibrate(); !measured) return measured.error();
  Report report = Run(options, setting, host, settings->onlineIdleNs).measure();
  demo::killDescendants();
  if (demo::interrupted()) return fail(ErrorCode::Unavailable, "it was stopped: no report");

  utsname kernel{};
  ::uname(&kernel);
  const demo::MachineUse use = demo::MachineUse::between(before, demo::MachineUse::count());
  report.head = {card->id,           card->model,        card->backend,      *driver,
                 kernel.release,     settings->version,  kernel.nodename,    rfc3339(unixMsNow()),
                 card->suspend,      card->isolation,    settings->realtime, report.head.clock,
                 commandOf(options), use.othersPermille, use.stolenPermille};
  return report;
}

bool wasStopped() {
  return demo::interrupted();
}

Result<std::string> writeReport(const ProveOptions& options, const Report& report) {
  const fs::path folder = options.folder;
  std::error_code error;
  fs::create_directories(folder, error);  // which may hold another report
  const fs::path json = folder / "report.json";
  const std::pair<fs::path, std::string> files[] = {{json, jsonOf(report)},
                                                    {folder / "report.md", pageOf(report)},
                                                    {folder / kLatencyPicture, latencySvg(report)},
                                                    {folder / kSharesPicture, sharesSvg(report)}};
  for (const auto& [path, text] : files) {
    if (text.empty()) {
      fs::remove(path, error);
    } else if (Status written = writeFile(path, text); !written) {
      return written.error();
    }
  }
  fs::remove(json.string() + ".sig", error);
  if (!options.key.empty()) {
    if (Status is = sign(json, options.key); !is) return is.error();
  }
  return fs::absolute(json).lexically_normal().string();
}

Result<Verified> verifyReport(const ProveOptions& options) {
  const Result<Signed> document = readSigned(options.verify, options.allowedSigners);
  if (!document) return document.error();
  Result<Report> report = readReport(document->text);
  if (!report) return report.error();
  const fs::path page = fs::path(options.verify).parent_path() / "report.md";
  if (const Result<std::string> text = readDocument(page); text && *text != pageOf(*report)) {
    return fail(ErrorCode::Corrupt,
                page.string() + " is not the page of " + options.verify + ", which is signed");
  }
  return Verified{std::move(*report), document->signer};
}

}  // namespace qgpu::prove
