#include "services/ctl/top/top_picture.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "services/api/commands/schema_names.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/trace/timeline.h"

namespace qgpu::ctl {
namespace {

constexpr std::size_t kCellsMax = 120;      // of a timeline
constexpr std::size_t kCellsMin = 8;        // fewer say nothing
constexpr std::size_t kRoomyColumns = 100;  // from here on there is air between columns
constexpr std::size_t kNarrowText = 12;     // a name, where there is none
constexpr std::size_t kIdMax = 48;

constexpr std::array<const char*, kTopSorts> kSortNames = {
    "task", "name", "card", "want", "got", "work", "held", "memory", "refused"};

constexpr const char* kHelp[] = {
    "up, down  pick a task; also page up, page down, home and end",
    "Enter     explain it; Esc goes back",
    "/         only what has this text as name, number, class, card, node or state; Esc: all",
    "s, S      sort by the next column, by the one before",
    "r         the other way round",
    "q, ^C     leave",
    "",
    "USED      of the card's time since the last look, and ONLINE of it for online tasks",
    "WANT      of a card's time it asked for, and GOT since the last look",
    "HELD      of the time it wanted the card without having it",
    "WORK      kernels launched since the last look; in a cluster since the last report",
    "MEMORY    used of its quota",
    "REF       how often memory was refused, as far back as the card remembers",
};

std::string cut(const std::string& text, std::size_t columns, bool blocks) {
  if (width(text) <= columns) return text;
  if (columns == 0) return "";
  std::string out = text;
  while (width(out) >= columns) out.pop_back();
  return out + (blocks ? "…" : "~");
}

std::string padded(const std::string& text, std::size_t columns, Align align) {
  const std::size_t is = width(text);
  const std::string blanks(columns > is ? columns - is : 0, ' ');
  return align == Align::Right ? blanks + text : text + blanks;
}

// "512 MiB" as "512M".
std::string shortBytes(std::uint64_t bytes) {
  std::string text = humanBytes(bytes);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  if (text.ends_with("iB")) text.resize(text.size() - 2);
  return text;
}
std::string percent(const Figure& permille) {
  return permille ? std::to_string((*permille + 5) / 10) + "%" : "";
}
std::string counted(const Figure& n) {
  return n ? humanCount(*n) : "";
}

Ink inkOf(schema::TaskClass taskClass) {
  switch (taskClass) {
    case schema::TaskClass::ONLINE:
      return Ink::Online;
    case schema::TaskClass::OFFLINE:
      return Ink::Offline;
    default:
      return Ink::Ordinary;
  }
}

// --- tables that fit ---

struct Cell {
  std::string text;
  Ink ink = Ink::Plain;
};

// Of what a column depends.
struct Where {
  bool cluster = false, severalCards = false, wide = false;
};
using When = bool (*)(const Where&);
constexpr When kAlways = [](const Where&) { return true; };
constexpr When kInCluster = [](const Where& where) { return where.cluster; };
constexpr When kOnNode = [](const Where& where) { return !where.cluster; };
constexpr When kOfSeveral = [](const Where& where) { return where.severalCards || where.wide; };

template <typename Row>
struct Column {
  const char* title;
  Align align;
  int keep;           // where there is no room, the smallest leaves first
  std::size_t least;  // wide, so that figures that change move nothing
  std::size_t most;   // what is wider is cut
  When when;
  Cell (*cell)(const Row&, const Where&);
};

using CardColumn = Column<TopCard>;
constexpr CardColumn kCardColumns[] = {
    {"CARD", Align::Left, 100, 6, kIdMax, kAlways,
     [](const TopCard& card, const Where& where) {
       return Cell{where.wide ? card.id : card.name};
     }},
    {"NODE", Align::Left, 99, 6, 24, kInCluster,
     [](const TopCard& card, const Where&) { return Cell{card.node}; }},
    {"STATE", Align::Left, 80, 8, 11, kAlways,
     [](const TopCard& card, const Where&) {
       return Cell{card.state, card.state == "ready" ? Ink::Plain : Ink::Trouble};
     }},
    {"USED", Align::Right, 95, 4, 5, kAlways,
     [](const TopCard& card, const Where&) { return Cell{percent(card.usedPermille)}; }},
    {"ONLINE", Align::Right, 60, 6, 6, kAlways,
     [](const TopCard& card, const Where&) { return Cell{percent(card.onlinePermille)}; }},
    {"MEMORY", Align::Right, 90, 9, 13, kAlways,
     [](const TopCard& card, const Where&) {
       return Cell{shortBytes(card.memBound) + "/" + shortBytes(card.memBytes)};
     }},
    {"TASKS", Align::Right, 85, 5, 7, kAlways,
     [](const TopCard& card, const Where&) { return Cell{std::to_string(card.tasks)}; }},
    {"POLICY", Align::Left, 70, 11, 11, kAlways,
     [](const TopCard& card, const Where&) { return Cell{card.policy}; }},
    {"KIND", Align::Left, 50, 8, 8, kAlways,
     [](const TopCard& card, const Where&) { return Cell{card.kind}; }},
    {"HOLDER", Align::Left, 65, 12, 24, kOnNode,
     [](const TopCard& card, const Where&) { return Cell{card.holder}; }},
    {"MODEL", Align::Left, 20, 12, 32, kAlways,
     [](const TopCard& card, const Where&) { return Cell{card.model}; }},
};

using TaskColumn = Column<TopTask>;
constexpr TaskColumn kTaskColumns[] = {
    {"TASK", Align::Right, 98, 4, 12, kOnNode,
     [](const TopTask& task, const Where&) { return Cell{std::to_string(task.id)}; }},
    {"TASK", Align::Right, 50, 4, 20, kInCluster,
     [](const TopTask& task, const Where&) { return Cell{std::to_string(task.id)}; }},
    {"NAME", Align::Left, 99, 10, 24, kAlways,
     [](const TopTask& task, const Where&) { return Cell{task.name}; }},
    {"CLASS", Align::Left, 40, 8, 8, kAlways,
     [](const TopTask& task, const Where&) {
       return Cell{std::string(className(task.taskClass)), inkOf(task.taskClass)};
     }},
    {"NODE", Align::Left, 92, 6, 24, kInCluster,
     [](const TopTask& task, const Where&) { return Cell{task.node}; }},
    {"CARD", Align::Left, 91, 5, kIdMax, kOfSeveral,
     [](const TopTask& task, const Where& where) {
       return Cell{where.wide ? task.cards : task.cardNames};
     }},
    {"STATE", Align::Left, 35, 10, 11, kAlways,
     [](const TopTask& task, const Where&) {
       const bool bad = task.state == "quarantined" || task.state == "evicting";
       return Cell{task.state, bad ? Ink::Trouble : Ink::Plain};
     }},
    {"WANT", Align::Right, 94, 4, 6, kAlways,
     [](const TopTask& task, const Where&) {
       return Cell{task.wantedPermille == 0 ? "" : percent(task.wantedPermille)};
     }},
    {"GOT", Align::Right, 95, 4, 5, kAlways,
     [](const TopTask& task, const Where&) { return Cell{percent(task.gotPermille)}; }},
    {"HELD", Align::Right, 85, 4, 5, kAlways,
     [](const TopTask& task, const Where&) { return Cell{percent(task.heldPermille)}; }},
    {"WORK", Align::Right, 84, 5, 6, kAlways,
     [](const TopTask& task, const Where&) { return Cell{counted(task.work)}; }},
    {"MEMORY", Align::Right, 90, 9, 13, kAlways,
     [](const TopTask& task, const Where&) {
       return Cell{shortBytes(task.memUsed) + "/" +
                   (task.whole ? "all" : shortBytes(task.memBytes))};
     }},
    {"REF", Align::Right, 83, 3, 5, kOnNode,
     [](const TopTask& task, const Where&) {
       return Cell{counted(task.refused),
                   task.refused.value_or(0) == 0 ? Ink::Plain : Ink::Trouble};
     }},
    {"PROCS", Align::Right, 30, 5, 5, kAlways,
     [](const TopTask& task, const Where&) { return Cell{std::to_string(task.processes)}; }},
};

// The columns for which there is room, and `spare` behind them.
class FittedTable {
 public:
  template <typename Row, std::size_t N>
  FittedTable(const Column<Row> (&columns)[N], const std::vector<const Row*>& rows,
              const Where& where, const TopStyle& style, std::size_t spare)
      : gap_(style.columns < kRoomyColumns ? 1 : 2) {
    for (const Column<Row>& column : columns) {
      if (!column.when(where)) continue;
      Fitted& fitted = all_.emplace_back();
      fitted.title = column.title;
      fitted.align = column.align;
      fitted.keep = column.keep;
      fitted.wide = std::max(width(fitted.title), column.least);
      const bool narrow = gap_ == 1 && column.align == Align::Left && !where.wide;
      const std::size_t most = narrow ? std::min(column.most, kNarrowText) : column.most;
      for (const Row* row : rows) {
        Cell cell = column.cell(*row, where);
        cell.text = cell.text.empty() ? "-" : cut(cell.text, most, style.blocks);
        fitted.wide = std::max(fitted.wide, width(cell.text));
        fitted.cells.push_back(std::move(cell));
      }
    }
    const auto less = [](const Fitted& a, const Fitted& b) { return a.keep < b.keep; };
    while (all_.size() > 1 && used() + spare > style.columns) {
      all_.erase(std::min_element(all_.begin(), all_.end(), less));
    }
  }

  std::size_t used() const {
    std::size_t sum = 1;  // the mark before a row
    for (const Fitted& column : all_) sum += column.wide + gap_;
    return sum - gap_;
  }
  std::size_t gap() const { return gap_; }

  Line head() const {
    Line line = {{" "}};
    for (const Fitted& column : all_) put(line, column, {column.title, Ink::Bold});
    return line;
  }
  Line row(std::size_t at, bool picked) const {
    Line line = {{picked ? ">" : " ", Ink::Bold}};
    for (const Fitted& column : all_) {
      Cell cell = column.cells[at];
      if (picked && cell.ink == Ink::Plain) cell.ink = Ink::Bold;
      put(line, column, cell);
    }
    return line;
  }

 private:
  struct Fitted {
    std::string title;
    Align align = Align::Left;
    int keep = 0;
    std::size_t wide = 0;
    std::vector<Cell> cells;
  };
  void put(Line& line, const Fitted& column, const Cell& cell) const {
    if (line.size() > 1) line.push_back({std::string(gap_, ' ')});
    line.push_back({padded(cell.text, column.wide, column.align), cell.ink});
  }

  std::size_t gap_;
  std::vector<Fitted> all_;
};

// --- the screen ---

class Screen {
 public:
  Screen(const TopModel& model, const TopStyle& style) : model_(model), style_(style) {
    style_.columns = std::max(style_.columns, kTopColumnsMin);
    where_ = {model.cluster(), model.cards().size() > 1, style.wide};
  }

  std::vector<Line> draw() {
    if (!style_.title.empty()) say(printable(style_.title), Ink::Bold);
    title();
    if (model_.mode() == TopMode::Help) {
      for (const char* text : kHelp) wrapped(text);
    } else if (model_.mode() == TopMode::Explain) {
      explanation();
    } else {
      const std::vector<const TopTask*> shown = model_.shown();
      cards(shown.size());
      tasks(shown);
    }
    if (style_.rows == 0) return std::move(lines_);
    lines_.resize(style_.rows - 1);
    lines_.push_back(footer());
    return std::move(lines_);
  }

 private:
  // Lines above the footer that are free.
  std::size_t left() const {
    if (style_.rows == 0) return SIZE_MAX;
    return style_.rows - 1 - std::min(style_.rows - 1, lines_.size());
  }
  void say(const std::string& text, Ink ink = Ink::Plain) {
    lines_.push_back({{cut(text, style_.columns, style_.blocks), ink}});
  }

  // As many facts as there is room for, each whole.
  void title() {
    Line line = {{cut(model_.title(), style_.columns / 2, style_.blocks), Ink::Bold}};
    std::string right;
    if (style_.rows != 0) {
      right = std::string("by ") + kSortNames[static_cast<std::size_t>(model_.sort())] +
              (model_.reversed() ? ", reversed" : "");
    }
    std::size_t used = width(line[0].text) + (right.empty() ? 0 : 2 + width(right));
    const auto put = [&](const std::string& text, Ink ink) {
      if (used + 2 + width(text) > style_.columns) return;
      line.push_back({"  " + text, ink});
      used += 2 + width(text);
    };
    for (const std::string& trouble : model_.troubles()) put(trouble, Ink::Trouble);
    for (const std::string& fact : model_.facts()) put(fact, Ink::Plain);
    if (!right.empty() && used <= style_.columns) {
      line.push_back({std::string(style_.columns - used + 2, ' ') + right, Ink::Dim});
    }
    lines_.push_back(std::move(line));
    if (model_.lost().empty()) {
      lines_.emplace_back();
    } else {
      say("looking again: " + printable(model_.lost()), Ink::Trouble);
    }
  }

  // What is not shown of them gets a line.
  void more(std::size_t hidden, const char* what) {
    if (hidden != 0) say("  and " + std::to_string(hidden) + " more " + what, Ink::Dim);
  }

  // A third of the screen, or what the tasks leave.
  void cards(std::size_t tasksShown) {
    const std::vector<TopCard>& all = model_.cards();
    std::size_t count = all.size();
    if (style_.rows != 0) {
      const std::size_t room = left() - std::min<std::size_t>(left(), 3);  // heads, and between
      const std::size_t most = std::max(room / 3, room - std::min(room, tasksShown));
      if (count > most) count = std::max<std::size_t>(most, 2) - 1;
    }
    std::vector<const TopCard*> rows;
    for (std::size_t i = 0; i < count; ++i) rows.push_back(&all[i]);
    const FittedTable table(kCardColumns, rows, where_, style_, 0);
    lines_.push_back(table.head());
    for (std::size_t i = 0; i < rows.size(); ++i) lines_.push_back(table.row(i, false));
    more(all.size() - count, "cards");
    lines_.emplace_back();
  }

  void tasks(const std::vector<const TopTask*>& all) {
    std::size_t from = 0, count = all.size();
    if (style_.rows != 0) {
      const std::size_t room = left() - std::min<std::size_t>(left(), 1);
      if (count > room) {
        count = room - std::min<std::size_t>(room, 1);
        const auto at = std::find(all.begin(), all.end(), model_.picked());
        const auto picked = at == all.end() ? 0 : static_cast<std::size_t>(at - all.begin());
        from = std::min(picked - std::min(picked, count / 2), all.size() - count);
      }
    }
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
    const std::vector<const TopTask*> rows(begin, begin + static_cast<std::ptrdiff_t>(count));
    table(rows);
    more(all.size() - count, "tasks");
    if (!all.empty()) return;
    say(model_.filter().empty() ? "  no tasks" : "  no task has \"" + model_.filter() + "\"",
        Ink::Dim);
  }

  // With a timeline behind each row.
  void table(const std::vector<const TopTask*>& rows) {
    const std::size_t wanted =
        style_.columns < kRoomyColumns ? style_.columns / 5 : style_.columns / 4;
    const FittedTable table(kTaskColumns, rows, where_, style_, wanted);
    const std::size_t used = table.used() + table.gap();
    std::size_t cells = style_.columns - std::min(style_.columns, used);
    cells = cells < kCellsMin ? 0 : std::min(cells, kCellsMax);
    Line head = table.head();
    head.push_back({std::string(table.gap(), ' ') + axis(rows, cells), Ink::Dim});
    lines_.push_back(std::move(head));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Line line = table.row(i, rows[i] == model_.picked());
      line.push_back({std::string(table.gap(), ' ')});
      line.push_back(timeline(*rows[i], cells));
      lines_.push_back(std::move(line));
    }
  }

  // "-10 s        now", as far as the tasks' traces reach.
  std::string axis(const std::vector<const TopTask*>& rows, std::size_t cells) const {
    for (const TopTask* task : rows) {
      const CardHistory* history = model_.historyOf(*task);
      if (history == nullptr) continue;
      const std::int64_t tenths = (history->to - history->from) / millis(100);
      const std::string reach = "-" + std::to_string((tenths + 5) / 10) + " s";
      if (cells < reach.size() + 4) return "";
      return reach + padded("now", cells - reach.size(), Align::Right);
    }
    return "";
  }

  // What a waiting task waits for stands in the place of one.
  Piece timeline(const TopTask& task, std::size_t cells) const {
    if (cells == 0) return {};
    if (task.cards.empty()) return {cut(task.note, cells, style_.blocks), Ink::Dim};
    if (const CardHistory* history = model_.historyOf(task)) {
      return {timelineCells(*history, task.id, cells, style_.blocks), inkOf(task.taskClass)};
    }
    std::string text;
    if (const auto* shares = model_.sharesOf(task)) {
      const std::size_t count = std::min(cells, shares->size());
      text = std::string(cells - count, ' ');
      for (auto share = shares->end() - static_cast<std::ptrdiff_t>(count); share != shares->end();
           ++share) {
        text += shadeOf(static_cast<std::int64_t>(std::min<std::uint64_t>(*share, 1000)),
                        style_.blocks);
      }
    }
    return {text, inkOf(task.taskClass)};
  }

  // At blanks, where there is one; what goes on stands deeper.
  void wrapped(const std::string& text) {
    const std::size_t gap = text.find("  ", 1);  // of a word and its meaning
    const std::size_t indent = gap == std::string::npos || gap > kNarrowText
                                   ? std::min(text.find_first_not_of(' '), text.size())
                                   : text.find_first_not_of(' ', gap) - 2;
    std::string rest = text;
    while (width(rest) > style_.columns) {
      std::string line = rest;
      while (width(line) > style_.columns) line.pop_back();
      const std::size_t blank = line.rfind(' ');
      if (blank != std::string::npos && blank > indent) line.resize(blank);
      lines_.push_back({{line}});
      const std::size_t next = std::min(rest.find_first_not_of(' ', line.size()), rest.size());
      rest = std::string(indent + 2, ' ') + rest.substr(next);
    }
    lines_.push_back({{rest}});
  }

  void explanation() {
    const TopTask* task = model_.picked();
    if (task == nullptr) return say("  it has ended", Ink::Dim);
    table({task});
    lines_.emplace_back();
    const std::size_t cells = std::min(style_.columns - 2, kCellsMax);
    if (model_.historyOf(*task) != nullptr) {
      lines_.push_back({{" "}, timeline(*task, cells)});
      lines_.push_back({{" " + axis({task}, cells), Ink::Dim}});
      say(" " + timelineLegend(style_.blocks), Ink::Dim);
      lines_.emplace_back();
    }
    const std::string& text = model_.explanation();
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = std::min(text.find('\n', from), text.size());
      wrapped(text.substr(from, end - from));
      from = end + 1;
    }
  }

  Line footer() const {
    const auto keys = [&](const char* text) { return Line{{text, Ink::Dim}}; };
    if (model_.mode() == TopMode::Filter) {
      const std::string typed = cut(model_.filter(), style_.columns - 30, style_.blocks);
      return {{"show only: " + typed + "_", Ink::Bold}, {"  Enter  Esc", Ink::Dim}};
    }
    if (model_.mode() == TopMode::Help) return keys("any key goes back   q leaves");
    if (model_.mode() == TopMode::Explain) return keys("Esc back   up, down another   q quit");
    Line line;
    std::size_t used = 0;
    for (const char* key : {"? help", "q quit", "/ filter", "s sort", "Enter explain"}) {
      if (used + 2 + width(key) > style_.columns) break;
      line.push_back({std::string(used == 0 ? "" : "  ") + key, Ink::Dim});
      used += width(line.back().text);
    }
    if (!model_.filter().empty()) {
      const std::string filter = "  only: " + model_.filter();
      line.push_back(
          {cut(filter, style_.columns - std::min(style_.columns, used), style_.blocks), Ink::Bold});
      return line;
    }
    constexpr std::size_t kLegend = 31;
    if (style_.columns < used + kLegend) return line;
    for (const auto taskClass :
         {schema::TaskClass::ONLINE, schema::TaskClass::OFFLINE, schema::TaskClass::ORDINARY}) {
      line.push_back({"  " + std::string(style_.blocks ? "█" : "#")});
      line.back().ink = inkOf(taskClass);
      line.push_back({" " + std::string(className(taskClass)), Ink::Dim});
    }
    return line;
  }

  const TopModel& model_;
  TopStyle style_;
  Where where_;
  std::vector<Line> lines_;
};

const char* codeOf(Ink ink) {
  switch (ink) {
    case Ink::Plain:
      break;
    case Ink::Bold:
      return "\x1b[1m";
    case Ink::Dim:
      return "\x1b[2m";
    case Ink::Online:
      return colourOf(schema::TaskClass::ONLINE);
    case Ink::Offline:
      return colourOf(schema::TaskClass::OFFLINE);
    case Ink::Ordinary:
      return colourOf(schema::TaskClass::ORDINARY);
    case Ink::Trouble:
      return "\x1b[31m";
  }
  return "";
}

}  // namespace

std::string plainText(const Line& line) {
  std::string text;
  for (const Piece& piece : line) text += piece.text;
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string colouredText(const Line& line) {
  std::string text;
  for (const Piece& piece : line) {
    const std::string code = codeOf(piece.ink);
    text += code + piece.text + (code.empty() ? "" : kColourEnd);
  }
  return text;
}

std::vector<Line> topPicture(const TopModel& model, const TopStyle& style) {
  return Screen(model, style).draw();
}

}  // namespace qgpu::ctl
