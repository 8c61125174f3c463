#include "services/ctl/trace/timeline.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "services/api/commands/schema_names.h"
#include "services/base/json.h"
#include "services/base/text.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/trace/trace_json.h"

namespace qgpu::ctl {
namespace {

constexpr std::size_t kShownNameMax = 14;
constexpr std::size_t kMomentsShown = 5;  // of a card, below its rows
constexpr std::int64_t kFullPermille = 950;

using Shades = std::array<const char*, 9>;
constexpr Shades kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr Shades kAscii = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};

std::string padTo(const std::string& text, std::size_t columns) {
  const std::size_t is = width(text);
  return text + std::string(columns > is ? columns - is : 0, ' ');
}

// At most `columns` code points.
std::string cut(const std::string& text, std::size_t columns) {
  std::string out = text;
  while (width(out) > columns) out.pop_back();
  return out;
}

std::string secondsOf(Nanos time, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f s", decimals, static_cast<double>(time.value) / 1e9);
  return text;
}

// Of a task: when it had the card, or wanted it.
bool hasCard(const Span& span) {
  return span.kind == Span::Kind::Slice || span.kind == Span::Kind::Work;
}
bool waits(const Span& span) {
  return span.kind == Span::Kind::Wait || span.kind == Span::Kind::Hold;
}
// What a person should look at.
bool isTrouble(const Moment& moment) {
  return moment.kind == schema::TraceKind::OVERRUN ||
         moment.kind == schema::TraceKind::MEMORY_REFUSED ||
         moment.kind == schema::TraceKind::DRAINED;
}

// The nanoseconds of each of `count` stretches of the history that spans of a task cover.
template <typename Which>
std::vector<std::int64_t> covered(const CardHistory& card, std::uint64_t task, std::size_t count,
                                  Which which) {
  std::vector<std::int64_t> out(count, 0);
  const std::int64_t whole = std::max<std::int64_t>(1, (card.to - card.from).value);
  const auto n = static_cast<std::int64_t>(count);
  const auto edge = [&](std::int64_t i) { return mulDiv(whole, i, n); };
  for (const Span& span : card.spans) {
    if (span.task != task || !which(span)) continue;
    const std::int64_t from = (span.from - card.from).value, to = (span.to - card.from).value;
    for (std::int64_t i = mulDiv(from, n, whole); i < n && edge(i) < to; ++i) {
      out[static_cast<std::size_t>(i)] +=
          std::max<std::int64_t>(0, std::min(to, edge(i + 1)) - std::max(from, edge(i)));
    }
  }
  return out;
}

std::size_t placeOf(const CardHistory& card, Nanos at, std::size_t count) {
  const std::int64_t whole = std::max<std::int64_t>(1, (card.to - card.from).value);
  const std::int64_t i = mulDiv((at - card.from).value, static_cast<std::int64_t>(count), whole);
  return static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, std::int64_t(count) - 1));
}

// "sim-0: 10.0 s, 43 slices, 12 holds"; a name that is too long for a line is cut.
std::string headOf(const CardHistory& card, std::size_t columns) {
  std::size_t slices = 0, holds = 0;
  for (const Span& span : card.spans) {
    slices += span.kind == Span::Kind::Slice ? 1 : 0;
    holds += span.kind == Span::Kind::Hold ? 1 : 0;
  }
  const std::string figures = ": " + secondsOf(card.to - card.from, 1) + ", " +
                              std::to_string(slices) + " slices, " + std::to_string(holds) +
                              " holds";
  return cut(printable(card.card), columns - std::min(columns, figures.size())) + figures;
}

// Empty where none was.
std::string preemptionsOf(const CardHistory& card) {
  if (card.preemptions.empty()) return "";
  Nanos longest{0};
  for (const Preemption& one : card.preemptions) longest = std::max(longest, one.shut - one.submit);
  return "gates shut for online: " + std::to_string(card.preemptions.size()) + ", within " +
         humanTime(static_cast<std::uint64_t>(longest.value));
}

// What stands before and behind the cells of a card's rows.
struct Layout {
  std::size_t ids = 1, names = 4, classes = 8, cells = 0;
  std::size_t left() const { return 2 + ids + 1 + names + 1 + classes + 1; }

  Layout(const CardHistory& card, std::size_t columns) {
    for (const auto& [id, task] : card.tasks) {
      ids = std::max(ids, std::to_string(id).size());
      names = std::max(names, std::min(kShownNameMax, width(task.name)));
    }
    cells = columns - left() - 7;  // "|", "|" and " 100%"
  }
};

std::string taskRow(const CardHistory& card, std::uint64_t id, const CardHistory::Task& task,
                    const Layout& layout, const TimelineStyle& style) {
  std::string cells = timelineCells(card, id, layout.cells, style.blocks);
  if (style.colours) cells = colourOf(task.taskClass) + cells + kColourEnd;
  std::int64_t sum = 0;
  for (const Span& span : card.spans) {
    if (span.task == id && hasCard(span)) sum += (span.to - span.from).value;
  }
  const std::int64_t whole = std::max<std::int64_t>(1, (card.to - card.from).value);
  const std::string number = std::to_string(id);
  const std::string share = std::to_string((mulDiv(sum, 1000, whole) + 5) / 10) + "%";
  return "  " + std::string(layout.ids - number.size(), ' ') + number + " " +
         padTo(cut(printable(task.name), layout.names), layout.names) + " " +
         padTo(std::string(className(task.taskClass)), layout.classes) + " |" + cells + "|" +
         std::string(share.size() < 5 ? 5 - share.size() : 0, ' ') + share + "\n";
}

std::string axisOf(const CardHistory& card, const Layout& layout) {
  const std::string from = "-" + secondsOf(card.to - card.from, 1);
  const std::string gap(layout.cells + 2 > from.size() + 3 ? layout.cells + 2 - from.size() - 3 : 1,
                        ' ');
  return std::string(layout.left(), ' ') + from + gap + "now\n";
}

std::string troubleOf(const CardHistory& card) {
  std::string out;
  std::size_t shown = 0, all = 0;
  for (const Moment& moment : card.moments) {
    if (!isTrouble(moment) || ++all > kMomentsShown) continue;
    ++shown;
    const auto task = card.tasks.find(moment.task);
    out += "  ! -" + secondsOf(card.to - moment.at, 2) + "  " +
           (task == card.tasks.end() ? "" : printable(task->second.name)) + ": " +
           std::string(traceKindName(moment.kind)) + "\n";
  }
  return all == shown ? out : out + "  ! and " + std::to_string(all - shown) + " more\n";
}

std::string cardText(const CardHistory& card, const TimelineStyle& style) {
  const std::size_t columns = std::clamp(style.columns, kTimelineColumnsMin, kTimelineColumnsMax);
  std::string out = headOf(card, columns) + "\n";
  if (card.tasks.empty()) return out + "  nothing happened on it\n";
  const std::string preempted = preemptionsOf(card);
  if (!preempted.empty()) out += "  " + preempted + "\n";
  const Layout layout(card, columns);
  for (const auto& [id, task] : card.tasks) out += taskRow(card, id, task, layout, style);
  return out + axisOf(card, layout) + troubleOf(card);
}

}  // namespace

const char* colourOf(schema::TaskClass taskClass) {
  switch (taskClass) {
    case schema::TaskClass::ONLINE:
      return "\x1b[32m";
    case schema::TaskClass::OFFLINE:
      return "\x1b[34m";
    default:
      return "\x1b[36m";
  }
}

const char* shadeOf(std::int64_t permille, bool blocks) {
  const Shades& shades = blocks ? kBlocks : kAscii;
  const std::int64_t most = static_cast<std::int64_t>(shades.size()) - 1;
  const std::int64_t step = (permille * most + kFullPermille - 1) / kFullPermille;
  return shades[static_cast<std::size_t>(std::clamp<std::int64_t>(step, 0, most))];
}

std::string timelineCells(const CardHistory& card, std::uint64_t task, std::size_t cells,
                          bool blocks) {
  const auto ran = covered(card, task, cells, hasCard);
  const auto waited = covered(card, task, cells, waits);
  std::vector<bool> trouble(cells, false);
  for (const Moment& moment : card.moments) {
    if (moment.task == task && isTrouble(moment)) trouble[placeOf(card, moment.at, cells)] = true;
  }
  const std::int64_t whole = std::max<std::int64_t>(1, (card.to - card.from).value);
  const std::int64_t cell = std::max<std::int64_t>(1, whole / static_cast<std::int64_t>(cells));
  std::string out;
  for (std::size_t i = 0; i < cells; ++i) {
    const std::int64_t permille = mulDiv(ran[i], 1000, cell);
    if (trouble[i]) {
      out += "!";
    } else if (permille == 0 && waited[i] * 2 > cell) {
      out += blocks ? "·" : "_";
    } else {
      out += shadeOf(permille, blocks);
    }
  }
  return out;
}

std::string timelineLegend(bool blocks) {
  return std::string(blocks ? "█" : "#") + " has the card   " + (blocks ? "·" : "_") +
         " waits for it   ! overran, refused memory, or drained";
}

std::string timelineText(const std::vector<CardHistory>& cards, const TimelineStyle& style) {
  std::string out;
  for (const CardHistory& card : cards) out += (out.empty() ? "" : "\n") + cardText(card, style);
  return out + "\n" + timelineLegend(style.blocks) + "\n";
}

// --- SVG ---

namespace {

constexpr std::int64_t kLeft = 220, kCells = 920, kRow = 20, kBar = 14, kHead = 34, kGap = 18;
constexpr std::int64_t kTicks = 5;
constexpr double kThin = 0.8;   // pixels of what would be thinner
constexpr double kNear = 0.25;  // spans of a task that are nearer than this many pixels are one

constexpr const char* kStyle = R"(<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.head { font-weight: 600; } .axis, .share { fill: #59636e; font-size: 11px; }
.back { fill: #ffffff; } .lane { fill: #f0f2f5; } .online { fill: #1a7f37; opacity: .10; }
.ordinary { fill: #0f7b8a; } .offline { fill: #2f6fd0; } .work { fill: #1a7f37; }
.hold { fill: #d1242f; } .wait { fill: #9aa4af; } .moment { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .axis, .share { fill: #9198a1; }
.back { fill: #0d1117; } .lane { fill: #1b222c; } .online { fill: #3fb950; opacity: .16; }
.ordinary { fill: #4cc2d0; } .offline { fill: #6ea8ff; } .work { fill: #3fb950; }
.hold { fill: #ff7b72; } .wait { fill: #6e7681; } .moment { fill: #f0883e; }
}
</style>
)";

std::string escaped(const std::string& text) {
  return escapeXml(toUtf8(printable(text)));
}

std::string fixed(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", number);
  return text;
}

class Drawing {
 public:
  std::string draw(const std::vector<CardHistory>& cards) {
    for (const CardHistory& card : cards) drawCard(card);
    const std::int64_t wide = kLeft + kCells + 70;
    const std::string size = std::to_string(wide) + " " + std::to_string(y_ + 8);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size +
           "\" role=\"img\" aria-label=\"What the cards did\">\n" + kStyle +
           "<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n" + body_ + "</svg>\n";
  }

 private:
  double xOf(const CardHistory& card, Nanos at) const {
    const double whole =
        static_cast<double>(std::max<std::int64_t>(1, (card.to - card.from).value));
    return static_cast<double>(kLeft) +
           static_cast<double>(kCells) * static_cast<double>((at - card.from).value) / whole;
  }
  void text(const char* kind, std::int64_t x, std::int64_t y, const std::string& words,
            const char* anchor = "start") {
    body_ += "<text class=\"" + std::string(kind) + "\" x=\"" + std::to_string(x) + "\" y=\"" +
             std::to_string(y) + "\" text-anchor=\"" + anchor + "\">" + escaped(words) +
             "</text>\n";
  }
  void rect(const std::string& kind, double from, double to, std::int64_t y, std::int64_t high) {
    body_ += "<rect class=\"" + kind + "\" x=\"" + fixed(from) + "\" y=\"" + std::to_string(y) +
             "\" width=\"" + fixed(std::max(kThin, to - from)) + "\" height=\"" +
             std::to_string(high) + "\"/>\n";
  }

  // The spans of one task and kind; what lies nearer than one can see becomes one.
  void bars(const CardHistory& card, std::uint64_t task, Span::Kind kind, const std::string& style,
            std::int64_t y, std::int64_t high) {
    double from = 0, to = -1;
    for (const Span& span : card.spans) {
      if (span.task != task || span.kind != kind) continue;
      const double left = xOf(card, span.from), right = xOf(card, span.to);
      if (to >= 0 && left - to < kNear) {
        to = std::max(to, right);
        continue;
      }
      if (to >= 0) rect(style, from, to, y, high);
      from = left;
      to = right;
    }
    if (to >= 0) rect(style, from, to, y, high);
  }

  void drawTask(const CardHistory& card, std::uint64_t id, const CardHistory::Task& task) {
    const std::string taskClass(className(task.taskClass));
    const std::int64_t bar = y_ + (kRow - kBar) / 2;
    body_ += "<g><title>" +
             escaped(task.name + " (" + std::to_string(id) + ", " + taskClass + ")") + "</title>\n";
    text("name", 8, y_ + 14, std::to_string(id) + " " + cut(task.name, 2 * kShownNameMax));
    rect("lane", kLeft, kLeft + kCells, bar, kBar);
    bars(card, id, Span::Kind::Wait, "wait", bar + kBar / 2 - 1, 2);
    bars(card, id, Span::Kind::Slice, taskClass, bar, kBar);
    bars(card, id, Span::Kind::Work, "work", bar, kBar);
    bars(card, id, Span::Kind::Hold, "hold", bar + kBar - 3, 3);
    std::int64_t ran = 0;
    for (const Span& span : card.spans) {
      if (span.task == id && hasCard(span)) ran += (span.to - span.from).value;
    }
    for (const Moment& moment : card.moments) {
      if (moment.task != id || !isTrouble(moment)) continue;
      const double x = xOf(card, moment.at);
      rect("moment", x - 1, x + 1, bar - 2, kBar + 4);
    }
    const std::int64_t whole = std::max<std::int64_t>(1, (card.to - card.from).value);
    text("share", kLeft + kCells + 8, y_ + 14,
         std::to_string((mulDiv(ran, 1000, whole) + 5) / 10) + "%");
    body_ += "</g>\n";
    y_ += kRow;
  }

  void drawCard(const CardHistory& card) {
    const std::string preempted = preemptionsOf(card);
    text("head", 8, y_ + 20,
         headOf(card, kTimelineColumnsMax) + (preempted.empty() ? "" : "; " + preempted));
    y_ += kHead;
    const auto rows = static_cast<std::int64_t>(card.tasks.size());
    for (const auto& [id, task] : card.tasks) drawTask(card, id, task);
    bars(card, 0, Span::Kind::Online, "online", y_ - rows * kRow, rows * kRow);
    for (std::int64_t i = 0; i <= kTicks; ++i) {
      const Nanos before = (card.to - card.from) * (kTicks - i) / kTicks;
      text("axis", kLeft + kCells * i / kTicks, y_ + 12,
           i == kTicks ? "now" : "-" + secondsOf(before, 1), "middle");
    }
    y_ += kGap;
  }

  std::string body_;
  std::int64_t y_ = 0;
};

}  // namespace

std::string timelineSvg(const std::vector<CardHistory>& cards) {
  return Drawing().draw(cards);
}

}  // namespace qgpu::ctl
