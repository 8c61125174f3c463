#pragma once
// What the newest report of each card says now, in a manager: whether it holds for the driver, the
// kernel and the manager that are here, and since when. The node keeps where the file lies; this
// reads it, at the manager's start and when another one is kept, and tells the node, so that
// clients see it (CardStatus.reportUnixMs) and a scheduler that wants reports may go by it
// (--require-report).
//
// The file is whoever's who may change the node, on whatever disk: it is read on a thread of its
// own, which nobody waits for, and of what can't be read nothing is told but that. With signers
// (--report-signers) it counts only where one of them signed it.

#include <cstdint>
#include <functional>
#include <kj/async.h>
#include <kj/timer.h>
#include <memory>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "services/api/commands/node_actor_client.h"
#include "services/prove/report.h"

namespace qgpu::prove {

// What a report says of its card: when it was made, or why that does not count.
struct ReportNow {
  std::int64_t madeUnixMs = 0;  // 0: it does not hold
  std::string why;              // then; a sentence without its full stop
};
// The report in this file. Denied: not signed, as it is there, by any of `signers`, a file that
// ssh-keygen reads; empty: whoever made it. Else the errors of readReportFile(); Unavailable: it
// can't be found out who signed it.
Result<Report> readReportBy(const std::string& path, const std::string& signers);
// `card`: its id. What `now` leaves empty is not compared.
ReportNow judgeNow(const Result<Report>& report, const std::string& card, const Standing& now,
                   std::int64_t nowUnixMs);

class CardReports final : private kj::TaskSet::ErrorHandler {
 public:
  // Runs what it is given on the loop of this, called on any thread while this lives.
  using Post = std::function<void(std::function<void()>)>;
  using Tell = std::function<void(const std::string& card, const ReportNow& now)>;

  struct Config {
    std::string version;  // of the manager
    std::string signers;  // whose reports count; empty: anybody's
  };
  // What is given by reference outlives this.
  CardReports(NodeActorClient& actor, kj::Timer& timer, Log& log, Config config, Post post,
              Tell tell);
  CardReports(const CardReports&) = delete;
  CardReports& operator=(const CardReports&) = delete;
  ~CardReports() noexcept;

  void start() { tasks_.add(follow()); }

 private:
  struct Asked {
    std::string card;
    std::string driver;
    std::string path;
  };
  struct Reading;  // what its thread shares with this
  static std::vector<ReportNow> readAll(const std::vector<Asked>& asked, const Config& config);

  kj::Promise<void> follow();
  kj::Promise<void> hear(kj::Own<EventFeed> events);
  kj::Promise<void> followAgain(const std::string& why);
  kj::Promise<void> look();
  void read(std::vector<Asked> asked);
  void taskFailed(kj::Exception&& exception) override;

  NodeActorClient& actor_;
  kj::Timer& timer_;
  Log& log_;
  const Config config_;
  const Post post_;
  const Tell tell_;
  std::shared_ptr<Reading> reading_;
  bool lookAgain_ = false;  // once that is done
  kj::TaskSet tasks_;       // last
};

}  // namespace qgpu::prove
