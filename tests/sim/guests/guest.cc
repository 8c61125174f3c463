#include "tests/sim/guests/guest.h"

#include "tests/sim/guests/guest_program.h"

namespace qgpu::sim {
namespace {

constexpr std::uint32_t kPidsEach = 4;  // of a process and its driver threads

}  // namespace

Tenants::Tenants(Host& host, Watch& watch, const Options& options, Dice dice)
    : host_(host), watch_(watch), options_(options), dice_(dice) {}

Tenants::~Tenants() = default;

void Tenants::bound(const TenantSpec& spec) {
  const auto [entry, isNew] = tasks_.try_emplace(spec.task);
  if (!isNew) return;
  entry->second = std::make_unique<Task>();
  Task& task = *entry->second;
  task.spec = spec;
  if (!calm_ && dice_.percent(3)) return;  // nobody ever comes
  const std::uint64_t many = dice_.below(10);
  const std::int64_t count = many < 6 ? 1 : many < 8 ? 2 : dice_.between(3, 4);
  if (dice_.percent(40)) task.restarts = static_cast<std::uint32_t>(dice_.between(1, 3));
  for (std::int64_t i = 0; i < count; i++) start(task);
}

void Tenants::start(Task& task) {
  const auto index = static_cast<std::uint32_t>(programs_.size());
  const std::uint32_t pid = kFirstPid + index * kPidsEach;
  QGPU_CHECK(pid < kFirstPid + kPidsMax, "a run has fewer processes than that");
  const Plan plan = drawPlan(task.spec.taskClass, options_, dice_);
  left_++;
  programs_.push_back(std::make_unique<Program>(*this, task, pid, plan, Dice(dice_.word())));
}

void Tenants::ended(Program& program) {
  left_--;
  if (attach_ != nullptr) attach_->died(program.pid());
  Task& task = program.task();
  if (task.over || calm_ || task.restarts == 0) return;
  task.restarts--;
  start(task);
}

Program* Tenants::find(std::uint32_t pid) const {
  if (pid < kFirstPid || (pid - kFirstPid) % kPidsEach != 0) return nullptr;
  const std::uint32_t index = (pid - kFirstPid) / kPidsEach;
  return index < programs_.size() ? programs_[index].get() : nullptr;
}

void Tenants::ownerDies(std::uint32_t pid) {
  if (!deadOwners_.insert(pid).second) return;
  if (attach_ != nullptr) attach_->died(pid);
}

void Tenants::managerGone() {
  attach_ = nullptr;
  for (const auto& program : programs_) program->connectionLost();
}

void Tenants::calm() {
  calm_ = true;
  for (const auto& program : programs_) program->calm();
}

std::string Tenants::waitsFor() const {
  std::string text = std::to_string(left_) + " processes";
  for (const auto& program : programs_) {
    if (program->lives()) text += "; " + program->text();
  }
  return text;
}

bool Tenants::isLeftOff() const {
  return std::any_of(programs_.begin(), programs_.end(),
                     [](const auto& program) { return program->lives() && program->isLeftOff(); });
}

// --- the machine ---

bool Tenants::lives(std::uint32_t pid) const {
  if (pid >= kFirstPid + kPidsMax) return !deadOwners_.contains(pid);
  const Program* program = find(pid);
  return program != nullptr && program->lives();
}

Fd Tenants::reportOf(std::uint32_t pid) const {
  const Program* program = find(pid);
  return program == nullptr ? Fd() : program->report();
}

void Tenants::wake(std::uint64_t task, std::uint32_t life, int waiters) {
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return;
  if (GateMap* gate = found->second->pages.find(life)) gate->wake(waiters);
}

void Tenants::stopThread(std::uint32_t pid, std::uint32_t tid) {
  if (Program* program = find(pid)) program->signalled(tid);
}

std::vector<suspend::Channel> Tenants::channelsOf(std::uint32_t pid) const {
  const Program* program = find(pid);
  return program == nullptr ? std::vector<suspend::Channel>() : program->channels();
}

bool Tenants::hasChannel(const suspend::Channel& channel) const {
  const Program* program = find(channel.process);
  return program != nullptr && program->hasChannel(channel.channel);
}

void Tenants::setChannel(const suspend::Channel& channel, bool off) {
  if (Program* program = find(channel.process)) program->setChannel(channel.channel, off);
}

void Tenants::undo(const suspend::Channel& channel) {
  if (Program* program = find(channel.process)) program->undoChannel(channel.channel);
}

void Tenants::kill(std::uint32_t pid, bool hard) {
  if (Program* program = find(pid)) program->killed(hard);
}

bool Tenants::answer(const SimWelcome& welcome) {
  Program* program = find(welcome.pid);
  return program != nullptr && program->answered(welcome);
}

}  // namespace qgpu::sim
