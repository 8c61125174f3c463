#include "services/base/net/srv.h"

#include <algorithm>
#include <arpa/nameser.h>
#include <array>
#include <cctype>
#include <kj/thread.h>
#include <netdb.h>
#include <netinet/in.h>
#include <numeric>
#include <optional>
#include <resolv.h>
#include <sys/random.h>
#include <tuple>

#include "runtime/actor.h"

namespace qgpu {
namespace {

constexpr std::size_t kLabelMax = 63;     // bytes
constexpr std::size_t kAnswerMax = 4096;  // bytes; glibc asks for datagrams that are shorter
constexpr std::size_t kFixedSize = 6;     // bytes of priority, weight and port
constexpr int kFirstPatience = 1;         // seconds for each server; then double that for all
constexpr int kTries = 2;

bool isHostByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

std::string hint(const std::string& name) {
  return "; look yourself: dig SRV " + name;
}
Error absent(const std::string& name) {
  return fail(ErrorCode::NotFound, "DNS has no SRV record " + name + hint(name));
}
Error unreadable(const std::string& name) {
  return fail(ErrorCode::Unavailable,
              "DNS's answer for SRV record " + name + " can't be read" + hint(name));
}

// Nothing where the record can't be read. The root is an empty host.
std::optional<SrvTarget> targetOf(const ns_msg& message, const ns_rr& record) {
  const std::uint8_t* data = ns_rr_rdata(record);
  const std::size_t size = ns_rr_rdlen(record);
  if (size <= kFixedSize) return {};
  std::array<char, NS_MAXDNAME> host{};
  const int read = ns_name_uncompress(ns_msg_base(message), ns_msg_end(message), data + kFixedSize,
                                      host.data(), host.size());
  if (read < 0 || kFixedSize + static_cast<std::size_t>(read) != size) return {};
  const auto number = [data](std::size_t at) {
    return static_cast<std::uint16_t>(data[at] << 8 | data[at + 1]);
  };
  SrvTarget target{number(0), number(2), number(4), host.data()};
  if (target.host == ".") return SrvTarget{};
  if (!isSrvName(target.host) || target.port == 0) return {};
  return target;
}

// The next of those that are equal but for their weight, of which those without any come first.
std::size_t drawn(const std::vector<SrvTarget>& equals, std::uint64_t dice) {
  const std::uint64_t whole = std::accumulate(
      equals.begin(), equals.end(), std::uint64_t{0},
      [](std::uint64_t sum, const SrvTarget& target) { return sum + target.weight; });
  std::uint64_t left = dice % (whole + 1);
  std::size_t at = 0;
  while (equals[at].weight < left) left -= equals[at++].weight;
  return at;
}

// An answer that had no room in a datagram is not asked for over TCP, where glibc waits without a
// limit.
Result<std::vector<SrvTarget>> ask(const std::string& name) {
  struct __res_state state = {};
  if (res_ninit(&state) != 0) {
    return fail(ErrorCode::Unavailable, "/etc/resolv.conf can't be used");
  }
  state.retrans = kFirstPatience;
  state.retry = kTries;
  state.options |= RES_USE_EDNS0 | RES_IGNTC;
  std::array<std::uint8_t, kAnswerMax> answer{};
  const int size = res_nquery(&state, name.c_str(), ns_c_in, ns_t_srv, answer.data(),
                              static_cast<int>(answer.size()));
  const int why = state.res_h_errno;
  res_nclose(&state);
  if (size >= 0) return parseSrv(std::span(answer).first(static_cast<std::size_t>(size)), name);
  if (why == HOST_NOT_FOUND || why == NO_DATA) return absent(name);
  return fail(ErrorCode::Unavailable, "DNS does not answer for SRV record " + name + hint(name));
}

Result<std::vector<SrvTarget>> askInOrder(const std::string& name) {
  auto targets = ask(name);
  if (!targets) return targets;
  std::uint64_t seed = 0;
  static_cast<void>(::getrandom(&seed, sizeof seed, 0));  // any will do
  return srvOrder(std::move(*targets), seed);
}

}  // namespace

bool isSrvName(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.empty() || name.size() > kSrvNameMax) return false;
  std::size_t label = 0;
  for (const char c : name) {
    if (c == '.' ? label == 0 : !isHostByte(c) || label == kLabelMax) return false;
    label = c == '.' ? 0 : label + 1;
  }
  return label > 0;
}

Result<std::vector<SrvTarget>> parseSrv(std::span<const std::uint8_t> answer,
                                        const std::string& name) {
  ns_msg message;
  if (ns_initparse(answer.data(), static_cast<int>(answer.size()), &message) != 0) {
    return unreadable(name);
  }
  if (ns_msg_getflag(message, ns_f_tc) != 0) {
    return fail(
        ErrorCode::Unavailable,
        "SRV record " + name + " is too long for a datagram: name fewer targets" + hint(name));
  }
  std::vector<SrvTarget> targets;
  bool refused = false;
  for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
    ns_rr record;
    if (ns_parserr(&message, ns_s_an, i, &record) != 0) return unreadable(name);
    if (ns_rr_type(record) != ns_t_srv || ns_rr_class(record) != ns_c_in) continue;
    auto target = targetOf(message, record);
    if (!target) return unreadable(name);
    if (target->host.empty())
      refused = true;
    else
      targets.push_back(std::move(*target));
  }
  if (!targets.empty()) return targets;
  if (!refused) return absent(name);
  return fail(ErrorCode::NotFound,
              "SRV record " + name + " says that there is no such service" + hint(name));
}

std::vector<SrvTarget> srvOrder(std::vector<SrvTarget> targets, std::uint64_t seed) {
  std::sort(targets.begin(), targets.end(), [](const SrvTarget& a, const SrvTarget& b) {
    return std::tie(a.priority, a.weight, a.host, a.port) <
           std::tie(b.priority, b.weight, b.host, b.port);
  });
  Prng dice(seed);
  std::vector<SrvTarget> order;
  for (auto from = targets.begin(); from != targets.end();) {
    const auto to = std::find_if(from, targets.end(), [&](const SrvTarget& target) {
      return target.priority != from->priority;
    });
    std::vector<SrvTarget> equals(from, to);
    while (!equals.empty()) {
      const std::size_t next = drawn(equals, dice.next());
      order.push_back(std::move(equals[next]));
      equals.erase(equals.begin() + static_cast<std::ptrdiff_t>(next));
    }
    from = to;
  }
  if (order.size() > kSrvTargetsMax) order.resize(kSrvTargetsMax);
  return order;
}

// Who no longer waits leaves the thread to end by itself; it owns all that it uses.
kj::Promise<Result<std::vector<SrvTarget>>> lookUpSrv(std::string name) {
  auto paf = kj::newPromiseAndCrossThreadFulfiller<Result<std::vector<SrvTarget>>>();
  kj::Thread([name = std::move(name), fulfiller = kj::mv(paf.fulfiller)]() {
    fulfiller->fulfill(askInOrder(name));
  }).detach();
  return kj::mv(paf.promise);
}

}  // namespace qgpu
