#include "tests/sim/cluster/cluster_net.h"

#include <algorithm>

#include "services/api/rpc/link_limits.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kDelayMin = micros(30);  // longer than any turn
constexpr LinksLimits kLinks;
constexpr SchedulerLinkTimes kTimes;
constexpr Nanos kLook = kTimes.silence / 4;  // as scheduler_link.cc
constexpr Nanos kToldMax = seconds(30);      // until an end hears that its connection broke
constexpr Nanos kUnseated = millis(100);     // a look whether the seat is held again
constexpr std::uint64_t kRepeatedPercent = 15;

schema::FromMember::Reader fromMember(const Words& words) {
  return capnp::readMessageUnchecked<schema::FromMember>(words.data());
}

schema::ToMember::Reader toMember(const Words& words) {
  return capnp::readMessageUnchecked<schema::ToMember>(words.data());
}

// What a later connection could still carry without being taken for something new: a hello and its
// answers belong to their connection alone, and marks are not numbered.
bool repeats(const Words& words, Way way) {
  if (way == Way::Up) return !fromMember(words).isHello() && !fromMember(words).isLost();
  const auto word = toMember(words);
  return !word.isWelcome() && !word.isTurnedAway() && !word.isMark();
}

}  // namespace

void Net::LinksEnd::handle(schema::Envelope::Reader message, Turn&) {
  if (message.isToMember()) net_.fromScheduler(scheduler_, message.getToMember());
}

void Net::NodeEnd::handle(schema::Envelope::Reader message, Turn&) {
  net_.fromNode(node_, message);
}

Net::Net(const ClusterOptions& options, std::vector<Site*> schedulers, std::vector<Site*> nodes,
         SchedulerFacts facts, Dice dice, Say say)
    : options_(options),
      nodes_(std::move(nodes)),
      facts_(std::move(facts)),
      dice_(dice),
      say_(std::move(say)),
      schedulers_(schedulers.size()),
      ends_(nodes_.size()) {
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    schedulers_[i].site = schedulers[i];
    schedulers_[i].actor = std::make_unique<LinksEnd>(*this, i);
    schedulers_[i].blocked.resize(nodes_.size());
  }
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    ends_[i].actor = std::make_unique<NodeEnd>(*this, i);
  }
}

Nanos Net::delay() {
  return dice_.magnitude(kDelayMin, healed_ ? millis(5) : options_.delayMax);
}

Site& Net::receiver(const Connection& connection, Way way) {
  return way == Way::Up ? *schedulers_[connection.scheduler].site : *nodes_[connection.node];
}

bool Net::blocked(const Connection& connection, Way way) const {
  const auto& ways = schedulers_[connection.scheduler].blocked[connection.node];
  return ways[static_cast<std::size_t>(way)];
}

Net::Connection* Net::find(std::uint32_t link) {
  const auto found = connections_.find(link);
  return found == connections_.end() ? nullptr : &found->second;
}

std::optional<std::size_t> Net::nodeOf(std::uint32_t link) const {
  const auto found = nodeOf_.find(link);
  if (found == nodeOf_.end()) return std::nullopt;
  return found->second;
}

// --- processes ---

void Net::schedulerUp(std::size_t scheduler, ActorId links, ActorId actor) {
  SchedulerState& state = schedulers_[scheduler];
  state.links = links;
  state.scheduler = actor;
  state.site->after(kLinks.sweep,
                    [this, scheduler, life = ++state.life] { sweep(scheduler, life); });
}

void Net::nodeUp(std::size_t node, ActorId link, ActorId member) {
  NodeState& end = ends_[node];
  end.link = link;
  end.member = member;
  ++end.life;
  std::vector<std::string> addresses;
  for (const SchedulerState& scheduler : schedulers_) addresses.push_back(scheduler.site->name);
  end.round.emplace(std::move(addresses), kTimes);
  connect(node, end.life);
}

void Net::schedulerDown(std::size_t scheduler, bool silently) {
  SchedulerState& state = schedulers_[scheduler];
  state.links = ActorId::kNobody;
  ++state.life;
  const Nanos now = state.site->now();
  for (auto& [link, connection] : connections_) {
    if (connection.scheduler != scheduler) continue;
    connection.up.open = false;
    const Nanos told = silently ? dice_.magnitude(millis(10), kToldMax) : delay();
    fin(link, Way::Down, "the scheduler closed the connection", now, told,
        silently ? Known::Here : Known::ByNetwork);
  }
}

void Net::nodeDown(std::size_t node, bool silently) {
  NodeState& end = ends_[node];
  end.link = ActorId::kNobody;
  ++end.life;
  const std::uint32_t link = std::exchange(end.connection, 0);
  end.closing = false;
  Connection* connection = find(link);
  if (connection == nullptr) return;
  connection->down.open = false;
  const Nanos told = silently ? dice_.magnitude(millis(10), 2 * kToldMax) : delay();
  fin(link, Way::Up, "", nodes_[node]->now(), told, silently ? Known::Here : Known::ByNetwork);
}

// --- connecting ---

// With one scheduler nothing is forgotten of what failed, and being turned away counts for more:
// there is nobody else to go to.
void Net::isOver(std::size_t node, const Connection& connection, const std::string& why) {
  AddressRound& round = *ends_[node].round;
  if (single()) return round.failed("");
  round.ended(nodes_[node]->now() - connection.since, why);
}

void Net::connectLater(std::size_t node) {
  NodeState& end = ends_[node];
  const Nanos whole = end.round->pause();
  const Nanos pause = whole / 2 + dice_.between(Nanos(0), whole / 2);
  nodes_[node]->after(pause, [this, node, life = end.life] { connect(node, life); });
}

void Net::failed(std::size_t node, std::uint32_t life, const std::string& why, Nanos after) {
  ends_[node].round->failed(why);
  nodes_[node]->after(after, [this, node, life] {
    if (life == ends_[node].life) connectLater(node);
  });
}

void Net::connect(std::size_t node, std::uint32_t life) {
  NodeState& end = ends_[node];
  if (life != end.life || end.connection != 0) return;
  const auto named = std::find_if(schedulers_.begin(), schedulers_.end(), [&](const auto& state) {
    return state.site->name == end.round->address();
  });
  QGPU_CHECK(named != schedulers_.end(), "an address is a scheduler's");
  const auto scheduler = static_cast<std::size_t>(named - schedulers_.begin());
  const Nanos there = delay();
  const auto& ways = named->blocked[node];
  if (ways[0] || ways[1]) return failed(node, life, "", kTimes.connectDeadline);
  if (const auto refused = facts_.refusal(scheduler)) {
    return failed(node, life, refused->message, there);
  }
  // The number is given at the scheduler's end, before the node hears that it is connected.
  const std::uint32_t link = ++lastLink_;
  end.connection = link;
  end.closing = false;
  nodeOf_[link] = node;
  Connection& connection = connections_[link];
  connection.scheduler = scheduler;
  connection.node = node;
  const Nanos now = nodes_[node]->now();
  connection.since = connection.up.heard = connection.down.heard = now;
  connection.up.last = now + there;
  put(link, Way::Down, {Item::Kind::Up, {}, {}, {}, false}, now, there + delay());
  watchNode(node, link);
}

// --- words ---

void Net::put(std::uint32_t link, Way way, Item item, Nanos now, Nanos delay) {
  Connection& connection = connections_.at(link);
  Direction& to = direction(connection, way);
  if (to.ended) return;
  item.at = std::max(now + delay, to.last);
  to.last = item.at;
  to.ended = item.kind == Item::Kind::Fin;
  receiver(connection, way).at(item.at, [this, link, way] { flush(link, way); });
  to.queue.push_back(std::move(item));
}

void Net::fin(std::uint32_t link, Way way, const std::string& why, Nanos now, Nanos delay,
              Known known) {
  put(link, way, {Item::Kind::Fin, {}, {}, why, known == Known::Here}, now, delay);
}

void Net::flush(std::uint32_t link, Way way) {
  while (Connection* connection = find(link)) {
    Direction& to = direction(*connection, way);
    Site& site = receiver(*connection, way);
    if (to.queue.empty() || to.retry || to.queue.front().at > site.now()) return;
    if (blocked(*connection, way) && !to.queue.front().local) return;
    if (!deliver(link, *connection, way, to.queue.front())) {
      to.retry = true;
      const bool held = way == Way::Down || facts_.holds(connection->scheduler);
      site.after(held ? kLinks.retry : kUnseated, [this, link, way] {
        Connection* again = find(link);
        if (again == nullptr) return;
        direction(*again, way).retry = false;
        flush(link, way);
      });
      const bool late = site.now() - to.queue.front().at > kLinks.patience;
      if (late && way == Way::Up && to.open) endAtScheduler(link);
      return;
    }
    if (find(link) == nullptr) return;
    const Item item = std::move(to.queue.front());
    to.queue.pop_front();
    if (item.kind == Item::Kind::Fin) {
      to.open = false;
      forget(link);
    } else if (item.kind == Item::Kind::Words) {
      repeatLater(link, way, item);
    }
  }
}

// False: the mailbox is full.
bool Net::deliver(std::uint32_t link, Connection& connection, Way way, const Item& item) {
  Direction& to = direction(connection, way);
  if (!to.open) return true;
  to.heard = receiver(connection, way).now();
  if (way == Way::Up) return toScheduler(connection.scheduler, link, item);
  NodeState& end = ends_[connection.node];
  if (end.connection != link || end.link == ActorId::kNobody) return true;
  if (end.closing && item.kind != Item::Kind::Fin) return true;
  if (!toNode(connection.node, item)) return false;
  if (item.kind != Item::Kind::Fin) return true;
  fin(link, Way::Up, "", nodes_[connection.node]->now(), delay(), Known::ByNetwork);
  end.connection = 0;
  end.closing = false;
  isOver(connection.node, connection, item.why);
  connectLater(connection.node);
  return true;
}

// Whoever may have lost its seat hears no node: the words wait.
bool Net::toScheduler(std::size_t scheduler, std::uint32_t link, const Item& item) {
  const SchedulerState& state = schedulers_[scheduler];
  if (state.links == ActorId::kNobody) return true;
  if (!facts_.holds(scheduler)) return false;
  ++words_;
  Host& host = state.site->host;
  return host.send(state.links, state.scheduler, [&](schema::Envelope::Builder envelope) {
    if (item.kind == Item::Kind::Words) {
      envelope.setFromMember(fromMember(item.words));
      envelope.getFromMember().setLink(link);
    } else {
      envelope.initFromMember().setLink(link);
      envelope.getFromMember().setLost();
    }
  }) == SendResult::Sent;
}

bool Net::toNode(std::size_t node, const Item& item) {
  ++words_;
  NodeState& end = ends_[node];
  const bool away = item.kind == Item::Kind::Words && toMember(item.words).isTurnedAway();
  for (int times = 0; single() && away && times < 2; ++times) end.round->failed("");
  return nodes_[node]->host.send(end.link, end.member, [&](schema::Envelope::Builder envelope) {
    switch (item.kind) {
      case Item::Kind::Words:
        return envelope.setToMember(toMember(item.words));
      case Item::Kind::Up:
        return envelope.setLinkUp();
      case Item::Kind::Fin:
        return envelope.setLinkDown(item.why);
    }
  }) == SendResult::Sent;
}

// Once more, later, by this connection's number or that of the one in use then.
void Net::repeatLater(std::uint32_t link, Way way, const Item& item) {
  if (healed_ || !options_.has(ClusterFault::Duplicates) || !repeats(item.words, way)) return;
  if (!dice_.percent(kRepeatedPercent)) return;
  const std::size_t node = nodeOf_.at(link);
  const bool anew = dice_.percent(40);
  const std::size_t scheduler = connections_.at(link).scheduler;
  Site& site = way == Way::Up ? *schedulers_[scheduler].site : *nodes_[node];
  site.after(dice_.magnitude(millis(1), seconds(40)), [=, this, words = item.words] {
    const Item again{Item::Kind::Words, words, {}, {}, false};
    if (way == Way::Down && ends_[node].link != ActorId::kNobody) toNode(node, again);
    if (way == Way::Up && schedulers_[scheduler].links != ActorId::kNobody) {
      const Connection* now = find(ends_[node].connection);
      const bool same = now != nullptr && now->scheduler == scheduler;
      toScheduler(scheduler, anew && same ? ends_[node].connection : link, again);
    }
  });
}

void Net::fromNode(std::size_t node, schema::Envelope::Reader message) {
  NodeState& end = ends_[node];
  if (message.isLinkDown()) {
    return endAtNode(node, std::string(message.getLinkDown().cStr()));
  }
  if (!message.isFromMember() || end.connection == 0 || end.closing) return;
  Item item{Item::Kind::Words, flatten(message.getFromMember()), {}, {}, false};
  put(end.connection, Way::Up, std::move(item), nodes_[node]->now(), delay());
}

void Net::fromScheduler(std::size_t scheduler, schema::ToMember::Reader words) {
  const std::uint32_t link = words.getLink();
  Connection* connection = find(link);
  if (connection == nullptr || connection->scheduler != scheduler || !connection->up.open) return;
  Item item{Item::Kind::Words, flatten(words), {}, {}, false};
  put(link, Way::Down, std::move(item), schedulers_[scheduler].site->now(), delay());
  if (words.isTurnedAway()) endAtScheduler(link);
}

// --- ends ---

// Everybody who is connected here hears that it is over.
void Net::endAtNode(std::size_t node, const std::string& why) {
  NodeState& end = ends_[node];
  Connection* connection = find(end.connection);
  if (connection == nullptr || end.closing) return;
  end.closing = true;
  const std::uint32_t link = end.connection;
  connection->down.queue.clear();
  connection->down.ended = false;
  connection->down.last = Nanos(0);
  fin(link, Way::Down, why, nodes_[node]->now(), micros(10), Known::Here);
}

void Net::endAtScheduler(std::uint32_t link) {
  Connection& connection = connections_.at(link);
  const Nanos now = receiver(connection, Way::Up).now();
  fin(link, Way::Down, "the scheduler closed the connection", now, delay(), Known::ByNetwork);
  connection.up.queue.clear();
  connection.up.ended = false;
  connection.up.last = Nanos(0);
  fin(link, Way::Up, "", now, micros(10), Known::Here);
}

void Net::watchNode(std::size_t node, std::uint32_t link) {
  nodes_[node]->after(kLook, [this, node, link] {
    Connection* connection = find(link);
    if (connection == nullptr || ends_[node].connection != link) return;
    if (nodes_[node]->now() - connection->down.heard >= kTimes.silence) {
      endAtNode(node, "nothing was heard of the scheduler");
    }
    watchNode(node, link);
  });
}

void Net::sweep(std::size_t scheduler, std::uint32_t life) {
  const SchedulerState& state = schedulers_[scheduler];
  if (life != state.life) return;
  std::vector<std::uint32_t> silent;
  for (const auto& [link, connection] : connections_) {
    if (connection.scheduler != scheduler || !connection.up.open) continue;
    if (state.site->now() - connection.up.heard > kLinks.silence) silent.push_back(link);
  }
  for (const std::uint32_t link : silent) endAtScheduler(link);
  state.site->after(kLinks.sweep, [this, scheduler, life] { sweep(scheduler, life); });
}

// Nobody speaks by it any more; its number is not given again.
void Net::forget(std::uint32_t link) {
  const Connection& connection = connections_.at(link);
  if (!connection.up.open && !connection.down.open) connections_.erase(link);
}

// --- faults ---

// Some of what is in flight still arrives, and late; of the rest there is only the end.
void Net::breakOff(Direction& to, Nanos now) {
  const std::size_t kept = dice_.below(to.queue.size() + 1);
  std::erase_if(to.queue, [&, i = std::size_t{0}](const Item&) mutable { return i++ >= kept; });
  const Nanos late = dice_.percent(50) ? Nanos(0) : dice_.magnitude(millis(1), kToldMax);
  for (Item& item : to.queue) item.at += late;
  to.last = std::max(now, to.queue.empty() ? now : to.queue.back().at);
  to.ended = !to.queue.empty() && to.queue.back().kind == Item::Kind::Fin;
}

void Net::cut(std::size_t node) {
  const std::uint32_t link = ends_[node].connection;
  Connection* connection = find(link);
  if (connection == nullptr || ends_[node].closing) return;
  say_("the connection " + std::to_string(link) + " of " + nodes_[node]->name + " breaks");
  for (const Way way : {Way::Up, Way::Down}) {
    Site& site = receiver(*connection, way);
    Direction& to = direction(*connection, way);
    breakOff(to, site.now());
    for (const Item& item : to.queue) site.at(item.at, [this, link, way] { flush(link, way); });
    fin(link, way, "the connection broke", site.now(), dice_.magnitude(millis(1), kToldMax),
        Known::Here);
  }
}

void Net::block(std::size_t scheduler, std::size_t node, Way way, bool blocked) {
  schedulers_[scheduler].blocked[node][static_cast<std::size_t>(way)] = blocked;
  if (blocked) return;
  std::vector<std::uint32_t> mine;
  for (const auto& [number, connection] : connections_) {
    if (connection.scheduler == scheduler && connection.node == node) mine.push_back(number);
  }
  for (const std::uint32_t number : mine) flush(number, way);
}

void Net::heal() {
  healed_ = true;
  for (std::size_t scheduler = 0; scheduler < schedulers_.size(); ++scheduler) {
    for (std::size_t node = 0; node < ends_.size(); ++node) {
      for (const Way way : {Way::Up, Way::Down}) block(scheduler, node, way, false);
    }
  }
  for (auto& [link, connection] : connections_) {
    for (const Way way : {Way::Up, Way::Down}) {
      Site& site = receiver(connection, way);
      const Nanos soon = site.now() + dice_.magnitude(millis(1), seconds(1));
      Direction& to = direction(connection, way);
      for (Item& item : to.queue) item.at = std::min(item.at, soon);
      to.last = std::min(to.last, soon);
      site.at(soon, [this, link = link, way] { flush(link, way); });
    }
  }
}

}  // namespace qgpu::sim
