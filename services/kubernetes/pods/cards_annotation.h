#pragma once
// The node annotation qgpu.io/cards: how a manager tells the scheduler, through the API server,
// which cards its node has and how they are. One JSON document, written by the manager and read by
// the scheduler's bridge; whoever reads skips keys that it does not know, so that both may be
// upgraded in any order.
//
//   {"format":1,"version":"0.1.0","mixed":true,"max_tasks_per_card":0,
//    "attach_socket":"/run/qgpu/attach.sock",
//    "cards":[{"uuid":"GPU-1","index":0,"model":"Tesla T4","backend":"nvidia",
//              "mem_bytes":15843721216,"nominal_gib":16,"policy":"best-effort","suspend":"gate",
//              "health":"ready"}]}
//
// A card may also have "suspend_why" and "memory_counted", sentences for people, "driver", its
// version, "report_unix_ms", when the newest report of what holds on it was made, and "link_group"
// and "numa_node", beside which others it is.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/card_facts.h"
#include "runtime/result.h"

namespace qgpu {

inline constexpr const char* kCardsAnnotation = "qgpu.io/cards";
inline constexpr std::uint32_t kCardsFormat = 1;
inline constexpr std::size_t kAnnotatedCardsMax = 64;

// Its platform and device are not told: nobody opens it from elsewhere.
struct AnnotatedCard : CardFacts {
  std::uint32_t nominalGib =
      0;  // what it is sold as; device plugin and scheduler count slots by it
  schema::Policy policy = schema::Policy::BEST_EFFORT;
  std::uint64_t reportUnixMs = 0;                       // 0: there is none, or it holds no longer
  schema::CardState health = schema::CardState::READY;  // quarantined: nothing new goes there
};

struct CardsAnnotation {
  std::uint32_t format = kCardsFormat;
  std::string version;  // of the manager
  bool mixed = false;
  std::uint32_t maxTasksPerCard = 0;  // 0: nominal GiB / 4 of each card
  std::string attachSocket;
  std::vector<AnnotatedCard> cards;
};

std::string writeCardsAnnotation(const CardsAnnotation& annotation);

// InvalidArgument: no such JSON, a card without uuid or memory, a uuid twice, too many cards.
// Unsupported: a format that is newer than this reader's.
Result<CardsAnnotation> readCardsAnnotation(std::string_view json);

// The node's other annotation: the cards that operators took out of use through the scheduler, as a
// JSON list of ids. Nonsense names none.
inline constexpr const char* kCordonedAnnotation = "qgpu.io/cordoned";
std::set<std::string> readCordonedCards(std::string_view json);
std::string writeCordonedCards(const std::set<std::string>& cards);

}  // namespace qgpu
