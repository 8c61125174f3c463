// In place of guard.cc in a build without clang and libbpf: there never is a guard.
#include "services/guard/guard.h"

namespace qgpu {

struct Guard::Parts {};

Guard::Guard(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Guard::~Guard() = default;

Result<std::unique_ptr<Guard>> Guard::open(const std::string&) {
  return fail(ErrorCode::Unsupported, "this qgpu was built without clang and libbpf");
}
Status Guard::remove(const std::string&) {
  return ok();
}

Status Guard::setNodes(const std::vector<GuardNode>&) {
  return ok();
}
Status Guard::judge(const Fd&, std::uint64_t, const std::vector<std::uint32_t>&) {
  return ok();
}
Status Guard::letIn(const Fd&, std::uint64_t, const std::vector<std::uint32_t>&) {
  return ok();
}
void Guard::shutOut(const Fd&, std::uint64_t) {}
Status Guard::judgeGroup(const std::string&, std::uint64_t) {
  return ok();
}
void Guard::keepGroups(const std::vector<std::string>&) {}
bool Guard::caps() const {
  return false;
}
const std::string& Guard::whyNoCap() const {
  static const std::string kNothing;
  return kNothing;
}
Status Guard::setQuota(std::uint64_t, std::uint32_t, Bytes) {
  return ok();
}
void Guard::dropQuota(std::uint64_t) {}
void Guard::keepQuotas(const std::set<std::uint64_t>&) {}
std::optional<Bytes> Guard::bytesHeld(std::uint64_t) const {
  return std::nullopt;
}
int Guard::news() const {
  return -1;
}
void Guard::takeNews(const std::function<void(const GuardRefusal&)>&) {}
std::uint64_t Guard::tally(std::uint32_t) const {
  return 0;
}

}  // namespace qgpu
