#include "services/demo/result_sheet.h"

#include <algorithm>
#include <array>

#include "services/demo/workload/json_text.h"

namespace qgpu::demo {
namespace {

constexpr std::size_t kColumns = 5;
using Row = std::array<std::string, kColumns>;

const char* verdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Miss:
      return "MISS";
    default:
      return "";
  }
}

void writePercentiles(JsonText& out, const char* key, const Percentiles& p) {
  out.object(key).number("p50", p.p50).number("p99", p.p99);
  out.number("n", static_cast<std::int64_t>(p.n)).endObject();
}

void writeAct(JsonText& out, const ActResult& act) {
  out.object().text("act", act.act).text("policy", act.policy).array("tasks");
  for (const TaskFigure& task : act.tasks) {
    out.object().text("name", task.name).text("class", className(task.tenantClass));
    if (task.wantedPermille) {
      out.number("share_wanted_permille", *task.wantedPermille);
      out.number("share_got_permille", task.gotPermille);
      out.number("account_permille", task.accountPermille);
    }
    out.number("gpu_ms", task.gpuMs).flag("checksum_ok", task.checksumOk).endObject();
  }
  out.endArray().endObject();
}

void writeHybrid(JsonText& out, const HybridFigures& hybrid) {
  out.object("hybrid");
  writePercentiles(out, "preempt_us", hybrid.preemptUs);
  writePercentiles(out, "start_us", hybrid.startUs);
  out.object("release_ms").decimal("p50", static_cast<double>(hybrid.releaseMs.p50) / 10);
  out.decimal("p99", static_cast<double>(hybrid.releaseMs.p99) / 10);
  out.number("n", static_cast<std::int64_t>(hybrid.releaseMs.n)).endObject();
  out.number("offline_share_of_rest_permille", hybrid.offlineShareOfRestPermille);
  out.number("offline_account_of_rest_permille", hybrid.accountOfRestPermille);
  out.flag("offline_resumed", hybrid.offlineResumed).endObject();
}

}  // namespace

std::string percentText(std::int64_t permille) {
  return tenthsText(permille, "%");
}

std::string millisText(std::int64_t tenths) {
  return tenthsText(tenths, "ms");
}

std::string countText(std::int64_t n) {
  return std::to_string(n);
}

std::string tenthsText(std::int64_t tenths, const char* unit) {
  const std::int64_t size = tenths < 0 ? -tenths : tenths;
  return (tenths < 0 ? "-" : "") + std::to_string(size / 10) + "." + std::to_string(size % 10) +
         " " + unit;
}

bool Wanted::met(std::int64_t got, std::int64_t roomPercent) const {
  const std::int64_t room = value * roomPercent / 100;
  switch (kind) {
    case Kind::AtLeast:
      return got >= value - room;
    case Kind::AtMost:
      return got <= value + room;
    default:
      return got >= value - tolerance - room && got <= value + tolerance + room;
  }
}

void ResultSheet::measure(const std::string& act, const std::string& what, Wanted wanted,
                          std::int64_t got, std::string (*text)(std::int64_t)) {
  const std::string value = text(wanted.value);
  const std::string bound = wanted.kind == Wanted::Kind::AtLeast ? ">= " + value
                            : wanted.kind == Wanted::Kind::AtMost
                                ? "<= " + value
                                : value + " +- " + text(wanted.tolerance);
  const bool met = wanted.met(got, 0);
  figures.push_back({act, what, bound, text(got), met ? Verdict::Ok : Verdict::Miss,
                     !wanted.met(got, roomPercent)});
}

void ResultSheet::tellSpeed(const std::string& act, std::int64_t permille) {
  tell(act, "this machine's speed without qgpu moved by", percentText(permille));
  apartPermille = std::max(apartPermille, permille);
}

std::size_t ResultSheet::missed() const {
  return static_cast<std::size_t>(
      std::count_if(figures.begin(), figures.end(),
                    [](const Figure& figure) { return figure.verdict == Verdict::Miss; }));
}

std::size_t ResultSheet::beyondRoom() const {
  return static_cast<std::size_t>(std::count_if(
      figures.begin(), figures.end(), [](const Figure& figure) { return figure.beyondRoom; }));
}

std::string ResultSheet::table() const {
  std::vector<Row> rows = {{"act", "figure", "wanted", "got", ""}};
  for (const Figure& f : figures) {
    rows.push_back({f.act, f.what, f.wanted, f.got, verdictText(f.verdict)});
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < kColumns; c++) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < kColumns; c++) {
      line += row[c] + std::string(widths[c] - row[c].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (&row != &rows.front()) continue;
    out += std::string(line.size() + 4, '-') + "\n";
  }
  return out;
}

std::string ResultSheet::json() const {
  JsonText out;
  out.object().raw("card", cardJson).text("realtime", realtime).array("acts");
  for (const ActResult& act : acts) writeAct(out, act);
  out.endArray();
  if (hybrid) writeHybrid(out, *hybrid);
  if (alonePermille) {
    out.object("alone").number("of_bare_permille", *alonePermille).endObject();
  }
  out.array("figures");
  for (const Figure& f : figures) {
    out.object().text("act", f.act).text("what", f.what).text("wanted", f.wanted);
    out.text("got", f.got).text("verdict", verdictText(f.verdict)).endObject();
  }
  out.endArray().array("failures");
  for (const std::string& failure : failures) out.object().text("what", failure).endObject();
  return out.endArray().endObject().str() + "\n";
}

}  // namespace qgpu::demo
