#include "services/ctl/top/top_model.h"

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "services/api/commands/schema_names.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kReportEvery = seconds(10);  // of a node to its scheduler
constexpr Nanos kReportLate = seconds(15);
constexpr std::ptrdiff_t kPage = 10;  // rows
constexpr std::ptrdiff_t kAll = PTRDIFF_MAX / 2;

std::uint64_t grown(std::uint64_t before, std::uint64_t after) {
  return after - std::min(before, after);
}

std::uint64_t permilleOf(std::uint64_t ns, Nanos elapsed) {
  const auto part = static_cast<std::int64_t>(std::min<std::uint64_t>(ns, INT64_MAX / 1000));
  return static_cast<std::uint64_t>(mulDiv(part, 1000, elapsed.value));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

void eraseLast(std::string& text) {
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80U) {
    text.pop_back();
  }
  if (!text.empty()) text.pop_back();
}

// The largest of a column of figures is what one looks for.
std::uint64_t figureOf(const TopTask& task, TopSort sort) {
  switch (sort) {
    case TopSort::Wanted:
      return task.wantedPermille;
    case TopSort::Got:
      return task.gotPermille.value_or(0);
    case TopSort::Work:
      return task.work.value_or(0);
    case TopSort::Held:
      return task.heldPermille.value_or(0);
    case TopSort::Memory:
      return task.memUsed;
    case TopSort::Refused:
      return task.refused.value_or(0);
    default:
      return 0;
  }
}

bool comesBefore(const TopTask& a, const TopTask& b, TopSort sort) {
  if (sort == TopSort::Name) return std::tie(a.name, a.id) < std::tie(b.name, b.id);
  if (sort == TopSort::Card) {
    return std::tie(a.node, a.cardNames, a.id) < std::tie(b.node, b.cardNames, b.id);
  }
  const std::uint64_t first = figureOf(a, sort), second = figureOf(b, sort);
  return first != second ? first > second : a.id < b.id;
}

std::string counted(std::uint64_t n, const char* one) {
  return std::to_string(n) + " " + one + (n == 1 ? "" : "s");
}

}  // namespace

const TopModel::Meter& TopModel::measure(Meter& meter, const Meter& is, bool known) const {
  const std::uint64_t used = grown(meter.used, is.used), other = grown(meter.other, is.other);
  const std::uint64_t work = grown(meter.launches, is.launches);
  const bool moved = used != 0 || other != 0 || work != 0;
  // Between two reports nothing moves, and that says nothing.
  if (known && cluster_ && !moved && is.at - meter.at < kReportLate) return meter;
  Meter now = is;
  // The first report that one sees move was under way before.
  const Nanos elapsed =
      cluster_ && moved ? std::max(is.at - meter.at, kReportEvery) : is.at - meter.at;
  if (known && elapsed > Nanos(0)) {
    now.usedPermille = permilleOf(used, elapsed);
    now.otherPermille = permilleOf(other, elapsed);
    now.work = work;
  }
  return meter = now;
}

void TopModel::takeStatus(Value status) {
  facts_.clear();
  troubles_.clear();
  const std::string up = "up " + humanTime(numberOf(status, "uptime_ns"));
  if (cluster_) {
    title_ = "scheduler";
    facts_ = {counted(numberOf(status, "nodes"), "node") + ", " +
                  std::to_string(numberOf(status, "alive")) + " alive",
              counted(cards_.size(), "card"),
              counted(tasks_.size(), "task") + ", " + std::to_string(numberOf(status, "waiting")) +
                  " of them wait",
              up, printable(textOf(status, "priority"))};
  } else {
    title_ = printable(textOf(status, "node"));
    facts_ = {counted(cards_.size(), "card"), counted(tasks_.size(), "task"), up,
              printable(textOf(status, "policy"))};
  }
  const std::string storage = textOf(status, "storage");
  if (!storage.empty() && storage != "ok") troubles_.push_back("storage " + printable(storage));
}

void TopModel::takeCards(Value root, Value tasks, Nanos at) {
  std::map<std::string, Meter> meters;
  std::map<std::uint64_t, std::string> holders;
  for (const Value task : listOf(tasks, "tasks")) {
    holders[numberOf(task, "id")] = printable(textOf(task, "name"));
  }
  cards_.clear();
  for (const Value card : listOf(root, "cards")) {
    TopCard& row = cards_.emplace_back();
    row.id = printable(textOf(card, "id"));
    row.node = printable(textOf(card, "node"));
    row.name = printable(names_.shortOf(textOf(card, "node"), textOf(card, "id")));
    row.model = printable(textOf(card, "model"));
    row.state = printable(textOf(card, "state"));
    row.policy = printable(textOf(card, "policy"));
    row.kind = printable(textOf(card, "kind"));
    if (!cluster_) row.holder = holders[numberOf(card, "holder")];  // a node's own number
    row.memBound = numberOf(card, "mem_bound_bytes");
    row.memBytes = numberOf(card, "mem_bytes");
    row.tasks = numberOf(card, "tasks");
    const std::string key = row.node + "/" + row.id;
    const auto was = cardMeters_.find(key);
    Meter& meter = meters[key];
    if (was != cardMeters_.end()) meter = was->second;
    const Meter& is = measure(
        meter, {.used = numberOf(card, "used_ns"), .other = numberOf(card, "online_ns"), .at = at},
        was != cardMeters_.end());
    row.usedPermille = is.usedPermille;
    row.onlinePermille = is.otherPermille;
  }
  cardMeters_ = std::move(meters);
  std::stable_sort(cards_.begin(), cards_.end(),
                   [](const TopCard& a, const TopCard& b) { return a.node < b.node; });
}

void TopModel::takeTasks(Value root, Nanos at) {
  std::map<std::uint64_t, Meter> meters;
  std::map<std::uint64_t, std::deque<std::uint64_t>> shares;
  tasks_.clear();
  for (const Value task : listOf(root, "tasks")) {
    TopTask& row = tasks_.emplace_back();
    row.id = numberOf(task, "id");
    row.name = printable(textOf(task, "name"));
    row.node = printable(textOf(task, "node"));
    row.cards = printable(textOf(task, "card"));
    row.firstCard = row.cards.substr(0, row.cards.find(','));
    row.cardNames = printable(names_.shortOf(textOf(task, "node"), textOf(task, "card")));
    row.state = printable(textOf(task, "state"));
    if (flagOf(task, "quarantined")) row.state = "quarantined";
    if (flagOf(task, "evicting")) row.state = "evicting";
    row.note = printable(textOf(task, cluster_ ? "reason" : "note"));
    row.taskClass = classFromName(textOf(task, "class")).value_or(schema::TaskClass::ORDINARY);
    row.wantedPermille = numberOf(task, "share_permille");
    row.memUsed = memoryUsed(task);
    row.memBytes = numberOf(task, "mem_bytes");
    row.processes = numberOf(task, "processes");
    row.whole = isWhole(task);
    // An online task takes no slices: its kernels show.
    const bool online = row.taskClass == schema::TaskClass::ONLINE;
    const std::uint64_t used = numberOf(task, "used_ns");
    const auto was = taskMeters_.find(row.id);
    Meter& meter = meters[row.id];
    if (was != taskMeters_.end()) meter = was->second;
    const Meter& is = measure(meter,
                              {.used = online ? std::max(used, numberOf(task, "gpu_ns")) : used,
                               .other = numberOf(task, "held_ns"),
                               .launches = numberOf(task, "launches"),
                               .at = at},
                              was != taskMeters_.end());
    row.gotPermille = is.usedPermille;
    row.heldPermille = is.otherPermille;
    row.work = is.work;
    if (const CardHistory* history = historyOf(row)) {
      const auto refused = history->refused.find(row.id);
      row.refused = refused == history->refused.end() ? 0 : refused->second;
    }
    std::deque<std::uint64_t>& got = shares[row.id] = std::move(shares_[row.id]);
    if (row.gotPermille) got.push_back(*row.gotPermille);
    if (got.size() > kSharesMax) got.pop_front();
  }
  taskMeters_ = std::move(meters);
  shares_ = std::move(shares);
}

void TopModel::take(const Answer& status, const Answer& cards, const Answer& tasks,
                    std::vector<CardHistory> histories, Nanos at) {
  lost_.clear();
  cluster_ = textOf(status.root(), "role") == "scheduler";
  names_ = CardNames(cards.root());
  histories_ = std::move(histories);
  takeCards(cards.root(), tasks.root(), at);
  takeTasks(tasks.root(), at);
  takeStatus(status.root());
  movePick(0);
}

const TopTask* TopModel::find(std::uint64_t id) const {
  const auto task =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const TopTask& one) { return one.id == id; });
  return task == tasks_.end() ? nullptr : &*task;
}

const CardHistory* TopModel::historyOf(const TopTask& task) const {
  const auto history =
      std::find_if(histories_.begin(), histories_.end(),
                   [&](const CardHistory& one) { return one.card == task.firstCard; });
  return history == histories_.end() ? nullptr : &*history;
}

const std::deque<std::uint64_t>* TopModel::sharesOf(const TopTask& task) const {
  const auto shares = shares_.find(task.id);
  return shares == shares_.end() ? nullptr : &shares->second;
}

bool TopModel::passes(const TopTask& task) const {
  if (filter_.empty()) return true;
  const std::string wanted = lower(filter_);
  const std::string all = std::to_string(task.id) + "\n" + task.name + "\n" + task.node + "\n" +
                          task.cardNames + "\n" + task.cards + "\n" + task.state + "\n" +
                          std::string(className(task.taskClass));
  return lower(all).find(wanted) != std::string::npos;
}

std::vector<const TopTask*> TopModel::shown() const {
  std::vector<const TopTask*> rows;
  for (const TopTask& task : tasks_) {
    if (passes(task)) rows.push_back(&task);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const TopTask* a, const TopTask* b) {
    return reversed_ ? comesBefore(*b, *a, sort_) : comesBefore(*a, *b, sort_);
  });
  return rows;
}

// `by` 0: only to the row that took its place, where the task that was picked is gone.
void TopModel::movePick(std::ptrdiff_t by) {
  if (picked_ == 0 && by == 0) return;
  const std::vector<const TopTask*> rows = shown();
  if (rows.empty()) {
    picked_ = 0;
    return;
  }
  const auto last = static_cast<std::ptrdiff_t>(rows.size()) - 1;
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const TopTask* task) { return task->id == picked_; });
  std::ptrdiff_t row = at - rows.begin();
  if (at == rows.end()) {
    const std::ptrdiff_t outside = by > 0 ? -1 : last + 1;
    row = picked_ == 0 ? outside : static_cast<std::ptrdiff_t>(pickedAt_);
  }
  row = std::clamp<std::ptrdiff_t>(row + by, 0, last);
  pickedAt_ = static_cast<std::size_t>(row);
  picked_ = rows[pickedAt_]->id;
}

std::optional<std::uint64_t> TopModel::explaining() const {
  if (mode_ != TopMode::Explain) return std::nullopt;
  return picked_;
}

void TopModel::openExplanation() {
  if (picked_ == 0) movePick(1);
  if (picked_ == 0) return;
  explanation_.clear();
  mode_ = TopMode::Explain;
}

void TopModel::pressInFilter(const Key& key) {
  switch (key.kind) {
    case Key::Kind::Text:
      if (filter_.size() + key.text.size() <= kFilterMax) filter_ += key.text;
      break;
    case Key::Kind::Erase:
      eraseLast(filter_);
      break;
    case Key::Kind::Escape:
      filter_.clear();
      mode_ = TopMode::List;
      break;
    case Key::Kind::Enter:
      mode_ = TopMode::List;
      break;
    case Key::Kind::Up:
      return movePick(-1);
    case Key::Kind::Down:
      return movePick(1);
    default:
      return;
  }
  movePick(0);
}

bool TopModel::pressInList(const Key& key) {
  constexpr auto kCount = static_cast<unsigned>(kTopSorts);
  const auto turnSort = [&](unsigned by) {
    sort_ = static_cast<TopSort>((static_cast<unsigned>(sort_) + by) % kCount);
  };
  if (key.text == "q") return false;
  if (key.text == "s" || key.text == ">") turnSort(1);
  if (key.text == "S" || key.text == "<") turnSort(kCount - 1);
  if (key.text == "r") reversed_ = !reversed_;
  if (key.text == "/") mode_ = TopMode::Filter;
  if (key.text == "?" || key.text == "h") mode_ = TopMode::Help;
  return true;
}

bool TopModel::press(const Key& key) {
  if (mode_ == TopMode::Filter) {
    pressInFilter(key);
    return true;
  }
  if (mode_ == TopMode::Help) {
    mode_ = TopMode::List;
    return key.text != "q";
  }
  switch (key.kind) {
    case Key::Kind::Text:
      return pressInList(key);
    case Key::Kind::Enter:
      openExplanation();
      return true;
    case Key::Kind::Escape:
      if (mode_ == TopMode::List) filter_.clear(), picked_ = 0;
      mode_ = TopMode::List;
      return true;
    case Key::Kind::Up:
      movePick(-1);
      break;
    case Key::Kind::Down:
      movePick(1);
      break;
    case Key::Kind::PageUp:
      movePick(-kPage);
      break;
    case Key::Kind::PageDown:
      movePick(kPage);
      break;
    case Key::Kind::Home:
      movePick(-kAll);
      break;
    case Key::Kind::End:
      movePick(kAll);
      break;
    case Key::Kind::Erase:
      return true;
  }
  explanation_.clear();
  return true;
}

}  // namespace qgpu::ctl
