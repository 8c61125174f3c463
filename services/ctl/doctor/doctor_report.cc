// The newest report of each card (`qgpuctl prove`): how old it is, of what, and whether it still
// holds. That there is none is nothing that breaks.

#include "actors/ledger/card_name.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/doctor/doctor.h"
#include "services/ctl/doctor/doctor_look.h"

namespace qgpu::ctl {
namespace {

std::string ageOf(const std::string& date, std::int64_t nowUnixMs) {
  const std::optional<std::int64_t> made = parseRfc3339(date);
  if (!made) return date;
  const std::int64_t days = (nowUnixMs - *made) / kDayMs;
  return days <= 0 ? "of today" : std::to_string(days) + (days == 1 ? " day old" : " days old");
}

}  // namespace

void judgeReport(DoctorContext& context, const CardOfReport& card,
                 const Result<prove::Report>& report, const prove::Standing& now,
                 std::int64_t nowUnixMs) {
  const std::string again = "qgpuctl prove --card " + card.id + ", while the card has no tasks";
  if (!report) {
    return context.finding(
        "report-unreadable",
        card.name + ": its newest report can't be read: " + report.error().message,
        "put it back, or make another: " + again);
  }
  const prove::Head& head = report->head;
  const std::string of =
      ageOf(head.date, nowUnixMs) + ", of " + head.model + ", driver " + head.driver;
  std::vector<std::string> changed = prove::staleSince(head, now);
  if (head.card != card.id) changed.push_back("card " + head.card + " is " + card.id);
  if (changed.empty()) {
    return context.well(card.name + ": its report is " + of + ", with " +
                        std::to_string(report->count(prove::Verdict::NotProven)) + " of " +
                        std::to_string(report->promises.size()) + " promises not proven");
  }
  std::string what;
  for (const std::string& one : changed) what += (what.empty() ? "" : ", ") + one;
  context.finding("report-stale", card.name + ": its report (" + of + ") is stale: " + what, again);
}

void examineReport(DoctorContext& context, Value card, const std::string& version) {
  const std::string path = textOf(card, "report"), id = textOf(card, "id");
  const auto index = static_cast<std::uint32_t>(numberOf(card, "index"));
  const CardOfReport of{id, "card " + shortCardName(id, index)};
  if (path.empty()) return context.fact(of.name + " report", "none; qgpuctl prove makes one");
  context.fact(of.name + " report", path);
  const prove::Standing now{textOf(card, "driver"),
                            firstLine(context.path("/proc/sys/kernel/osrelease")), version};
  judgeReport(context, of, prove::readReportFile(context.path(path)), now, unixMsNow());
}

}  // namespace qgpu::ctl
