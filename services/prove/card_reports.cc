#include "services/prove/card_reports.h"

#include <mutex>
#include <sys/utsname.h>
#include <utility>

#include "services/base/text.h"
#include "services/base/wall_time.h"
#include "services/cards/suspend/detached.h"
#include "services/prove/signature.h"

namespace qgpu::prove {
namespace {

constexpr kj::Duration kAgain = 10 * kj::SECONDS;

Peer ownPeer() {
  Peer peer;
  peer.mayChange = true;  // so that other watchers don't take its place
  return peer;
}

std::string kernelRelease() {
  utsname kernel{};
  ::uname(&kernel);
  return kernel.release;
}

}  // namespace

struct CardReports::Reading {
  std::mutex lock;
  CardReports* owner = nullptr;  // null once it is gone
};

Result<Report> readReportBy(const std::string& path, const std::string& signers) {
  if (signers.empty()) return readReportFile(path);
  const Result<Signed> document = readSigned(path, signers);
  if (document) return readReport(document->text);
  if (document.error().code == ErrorCode::Unavailable) return document.error();
  return fail(ErrorCode::Denied, document.error().message);
}

ReportNow judgeNow(const Result<Report>& report, const std::string& card, const Standing& now,
                   std::int64_t nowUnixMs) {
  if (!report) {
    const Error& error = report.error();
    if (error.code == ErrorCode::Unsupported) return {0, "it is of a newer qgpu than this manager"};
    if (error.code == ErrorCode::Denied) return {0, "none of --report-signers signed it"};
    if (error.code == ErrorCode::Unavailable) return {0, error.message};
    return {0, "there is no report to be read"};
  }
  const Head& head = report->head;
  if (head.card != card) return {0, "it is of card " + head.card};
  const std::vector<std::string> changed = staleSince(head, now);
  if (!changed.empty()) return {0, changed.front()};
  if (!report->allHold()) {
    return {0, std::to_string(report->count(Verdict::NotProven)) + " of " +
                   std::to_string(report->promises.size()) + " promises are not proven"};
  }
  const std::optional<std::int64_t> made = parseRfc3339(head.date);
  if (!made || *made <= 0) return {0, "\"" + head.date + "\" is no date"};
  if (*made > nowUnixMs + kDayMs) return {0, "it is of " + head.date + ", which is to come"};
  return {*made, ""};
}

CardReports::CardReports(NodeActorClient& actor, kj::Timer& timer, Log& log, Config config,
                         Post post, Tell tell)
    : actor_(actor),
      timer_(timer),
      log_(log),
      config_(std::move(config)),
      post_(std::move(post)),
      tell_(std::move(tell)),
      tasks_(*this) {}

CardReports::~CardReports() noexcept {
  if (!reading_) return;
  const std::lock_guard held(reading_->lock);
  reading_->owner = nullptr;
}

// --- when to read ---

// The watch first, so that no report is kept unseen while the others are read.
kj::Promise<void> CardReports::follow() {
  return EventFeed::open(actor_, ownPeer(), 0)
      .then([this](Result<kj::Own<EventFeed>> events) -> kj::Promise<void> {
        if (!events) return followAgain(events.error().message);
        tasks_.add(look());
        return hear(kj::mv(*events));
      });
}

kj::Promise<void> CardReports::followAgain(const std::string& why) {
  log_.warn("reports-not-read", {{"why", why}});
  return timer_.afterDelay(kAgain).then([this] { return follow(); });
}

kj::Promise<void> CardReports::hear(kj::Own<EventFeed> events) {
  auto next = events->next();
  return next.then([this, events = kj::mv(events)](
                       kj::Maybe<EventFeed::EventCopy> event) mutable -> kj::Promise<void> {
    KJ_IF_MAYBE (copy, event) {
      if ((*copy)->getRoot<schema::Event>().getKind() == "report-kept") tasks_.add(look());
      return hear(kj::mv(events));
    }
    return follow();  // it lagged behind
  });
}

kj::Promise<void> CardReports::look() {
  return actor_.ask(ownPeer(), [](schema::Request::Builder request) { request.setCards(); })
      .then([this](Result<Answer> answer) -> kj::Promise<void> {
        if (!answer || !answer->reply().isCards()) {
          log_.warn("reports-not-read", {{"why", answer ? "no cards" : answer.error().message}});
          return timer_.afterDelay(kAgain).then([this] { return look(); });
        }
        std::vector<Asked> asked;
        for (const auto card : answer->reply().getCards()) {
          if (card.getReport().size() == 0) continue;
          const auto info = card.getInfo();
          asked.push_back({std::string(view(info.getId())), std::string(view(info.getDriver())),
                           std::string(view(card.getReport()))});
        }
        if (!asked.empty()) read(std::move(asked));
        return kj::READY_NOW;
      });
}

// --- reading ---

std::vector<ReportNow> CardReports::readAll(const std::vector<Asked>& asked, const Config& config) {
  const std::string kernel = kernelRelease();
  std::vector<ReportNow> all;
  for (const Asked& one : asked) {
    const Standing now{one.driver, kernel, config.version};
    all.push_back(judgeNow(readReportBy(one.path, config.signers), one.card, now, unixMsNow()));
  }
  return all;
}

// One at a time: whoever hangs on a disk that does not answer hangs alone.
void CardReports::read(std::vector<Asked> asked) {
  if (reading_) {
    lookAgain_ = true;
    return;
  }
  reading_ = std::make_shared<Reading>();
  reading_->owner = this;
  const bool runs =
      suspend::runDetached([shared = reading_, asked = std::move(asked), config = config_] {
        const auto done = [shared, asked, all = readAll(asked, config)] {
          CardReports* owner = shared->owner;  // on its own loop, which alone changes it
          if (owner == nullptr) return;
          for (std::size_t i = 0; i < asked.size(); ++i) owner->tell_(asked[i].card, all[i]);
          owner->reading_.reset();
          if (std::exchange(owner->lookAgain_, false)) owner->tasks_.add(owner->look());
        };
        const std::lock_guard held(shared->lock);
        if (shared->owner != nullptr) shared->owner->post_(done);
      });
  if (runs) return;
  reading_.reset();
  log_.warn("reports-not-read", {{"why", "there is no thread to be had"}});
}

void CardReports::taskFailed(kj::Exception&& exception) {
  log_.warn("reports-not-read", {{"why", view(exception.getDescription())}});
}

}  // namespace qgpu::prove
