#include "services/cards/memory_limiter.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "services/base/text.h"

namespace qgpu {
namespace {

constexpr std::string_view kLifted = "max";
constexpr std::size_t kWhyMax = 1024;

std::vector<std::string_view> fieldsOf(std::string_view packet) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t end = packet.find('\t');
    fields.push_back(packet.substr(0, end));
    if (end == std::string_view::npos) return fields;
    packet.remove_prefix(end + 1);
  }
}

// The life of the process: until nobody orders any more.
void takeOrders(int orders, const MemoryLimiter::CarryOut& carryOut) {
  std::vector<char> packet(MemoryLimiter::kPacketMax);
  for (;;) {
    const ssize_t n = ::recv(orders, packet.data(), packet.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    const auto order = parseLimitOrder({packet.data(), static_cast<std::size_t>(n)});
    if (!order) continue;
    const std::string why = carryOut(*order).substr(0, kWhyMax);
    const std::string answer = std::to_string(order->number) + "\t" + why;
    if (::send(orders, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
  }
}

}  // namespace

std::string limitPacket(const LimitOrder& order) {
  std::string packet = std::to_string(order.number) + "\t" + order.cgroup;
  for (const auto& [card, limit] : order.cards) {
    packet += "\t" + card + "\t";
    packet += limit ? std::to_string(limit->value) : std::string(kLifted);
  }
  return packet;
}

std::optional<LimitOrder> parseLimitOrder(std::string_view packet) {
  const auto fields = fieldsOf(packet);
  const auto number = parseUint(fields[0]);
  if (fields.size() % 2 != 0 || !number) return std::nullopt;
  LimitOrder order{*number, std::string(fields[1]), {}};
  for (std::size_t i = 2; i < fields.size(); i += 2) {
    std::optional<Bytes>& limit = order.cards[std::string(fields[i])];
    if (fields[i + 1] == kLifted) continue;
    const auto bytes = parseUint(fields[i + 1]);
    if (!bytes || *bytes > INT64_MAX) return std::nullopt;
    limit = Bytes(static_cast<std::int64_t>(*bytes));
  }
  return order;
}

std::optional<LimitAnswer> parseLimitAnswer(std::string_view packet) {
  const auto fields = fieldsOf(packet);
  const auto number = parseUint(fields[0]);
  if (fields.size() != 2 || !number) return std::nullopt;
  return LimitAnswer{*number, std::string(fields[1])};
}

Result<MemoryLimiter> MemoryLimiter::start(const CarryOut& carryOut) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(ErrorCode::Unavailable, std::string("socketpair: ") + std::strerror(errno));
  }
  Result<SideProcess> child =
      SideProcess::start(ends, [&](int orders) { takeOrders(orders, carryOut); });
  if (!child) return child.error();
  return MemoryLimiter(std::move(*child));
}

bool MemoryLimiter::order(const LimitOrder& order) const {
  const std::string packet = limitPacket(order);
  if (packet.size() > kPacketMax) return false;
  return ::send(fd(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

}  // namespace qgpu
