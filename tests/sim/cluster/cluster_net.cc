#include "tests/sim/cluster/cluster_net.h"

#include <algorithm>

#include "services/api/rpc/link_limits.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kDelayMin = micros(30);        // longer than any turn
constexpr LinksLimits kLinks;
constexpr SchedulerLinkTimes kTimes;
constexpr Nanos kLook = kTimes.silence / 4;    // as scheduler_link.cc
constexpr Nanos kToldMax = seconds(30);        // until an end hears that its connection broke
constexpr std::uint64_t kRepeatedPercent = 15;

template <typename Reader>
Words copyOf(Reader reader) {
  Words words(reader.totalSize().wordCount + 1);
  capnp::copyToUnchecked(reader, kj::arrayPtr(words.data(), words.size()));
  return words;
}

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
  if (message.isToMember()) net_.fromScheduler(message.getToMember());
}

void Net::NodeEnd::handle(schema::Envelope::Reader message, Turn&) {
  net_.fromNode(node_, message);
}

Net::Net(const ClusterOptions& options, Site& scheduler, std::vector<Site*> nodes, Dice dice,
         Say say)
    : options_(options),
      scheduler_(scheduler),
      nodes_(std::move(nodes)),
      dice_(dice),
      say_(std::move(say)),
      linksEnd_(*this),
      ends_(nodes_.size()) {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    ends_[i].actor = std::make_unique<NodeEnd>(*this, i);
  }
}

Nanos Net::delay() {
  return dice_.magnitude(kDelayMin, healed_ ? millis(5) : options_.delayMax);
}

Site& Net::receiver(const Connection& connection, Way way) {
  return way == Way::Up ? scheduler_ : *nodes_[connection.node];
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

void Net::schedulerUp(ActorId links, ActorId scheduler) {
  links_ = links;
  schedulerActor_ = scheduler;
  scheduler_.after(kLinks.sweep, [this, life = ++schedulerLife_] { sweep(life); });
}

void Net::nodeUp(std::size_t node, ActorId link, ActorId member) {
  NodeState& end = ends_[node];
  end.link = link;
  end.member = member;
  ++end.life;
  end.failures = 0;
  connect(node, end.life);
}

void Net::schedulerDown(bool silently) {
  links_ = ActorId::kNobody;
  ++schedulerLife_;
  const Nanos now = scheduler_.now();
  for (auto& [link, connection] : connections_) {
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

void Net::connectLater(std::size_t node) {
  NodeState& end = ends_[node];
  const std::uint32_t rounds = std::min<std::uint32_t>(end.failures, 10);
  const Nanos whole = std::min(kTimes.pauseMax, kTimes.pauseMin * (std::int64_t{1} << rounds));
  const Nanos pause = whole / 2 + dice_.between(Nanos(0), whole / 2);
  nodes_[node]->after(pause, [this, node, life = end.life] { connect(node, life); });
}

void Net::connect(std::size_t node, std::uint32_t life) {
  NodeState& end = ends_[node];
  if (life != end.life || end.connection != 0) return;
  const Nanos there = delay();
  const bool silent = end.blocked[0] || end.blocked[1];
  if (silent || links_ == ActorId::kNobody) {
    ++end.failures;
    nodes_[node]->after(silent ? kTimes.connectDeadline : there, [this, node, life] {
      if (life == ends_[node].life) connectLater(node);
    });
    return;
  }
  // The number is given at the scheduler's end, before the node hears that it is connected.
  const std::uint32_t link = ++lastLink_;
  end.connection = link;
  end.closing = false;
  nodeOf_[link] = node;
  Connection& connection = connections_[link];
  connection.node = node;
  const Nanos now = nodes_[node]->now();
  connection.up.heard = connection.down.heard = now;
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
    const bool blocked = ends_[connection->node].blocked[static_cast<std::size_t>(way)];
    if (to.queue.empty() || to.retry || to.queue.front().at > site.now()) return;
    if (blocked && !to.queue.front().local) return;
    if (!deliver(link, *connection, way, to.queue.front())) {
      to.retry = true;
      site.after(kLinks.retry, [this, link, way] {
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
  if (way == Way::Up) return links_ == ActorId::kNobody || toScheduler(link, item);
  NodeState& end = ends_[connection.node];
  if (end.connection != link || end.link == ActorId::kNobody) return true;
  if (end.closing && item.kind != Item::Kind::Fin) return true;
  if (!toNode(connection.node, item)) return false;
  if (item.kind != Item::Kind::Fin) return true;
  fin(link, Way::Up, "", nodes_[connection.node]->now(), delay(), Known::ByNetwork);
  end.connection = 0;
  end.closing = false;
  ++end.failures;
  connectLater(connection.node);
  return true;
}

bool Net::toScheduler(std::uint32_t link, const Item& item) {
  ++words_;
  return scheduler_.host.send(links_, schedulerActor_, [&](schema::Envelope::Builder envelope) {
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
  if (item.kind == Item::Kind::Words && toMember(item.words).isTurnedAway()) end.failures += 2;
  return nodes_[node]->host.send(end.link, end.member, [&](schema::Envelope::Builder envelope) {
    switch (item.kind) {
      case Item::Kind::Words: return envelope.setToMember(toMember(item.words));
      case Item::Kind::Up: return envelope.setLinkUp();
      case Item::Kind::Fin: return envelope.setLinkDown(item.why);
    }
  }) == SendResult::Sent;
}

// Once more, later, by this connection's number or that of the one in use then.
void Net::repeatLater(std::uint32_t link, Way way, const Item& item) {
  if (healed_ || !options_.has(ClusterFault::Duplicates) || !repeats(item.words, way)) return;
  if (!dice_.percent(kRepeatedPercent)) return;
  const std::size_t node = nodeOf_.at(link);
  const bool anew = dice_.percent(40);
  Site& site = way == Way::Up ? scheduler_ : *nodes_[node];
  site.after(dice_.magnitude(millis(1), seconds(40)), [=, this, words = item.words] {
    const Item again{Item::Kind::Words, words, {}, {}, false};
    if (way == Way::Down && ends_[node].link != ActorId::kNobody) toNode(node, again);
    if (way == Way::Up && links_ != ActorId::kNobody) {
      const std::uint32_t now = ends_[node].connection;
      toScheduler(anew && now != 0 ? now : link, again);
    }
  });
}

void Net::fromNode(std::size_t node, schema::Envelope::Reader message) {
  NodeState& end = ends_[node];
  if (message.isLinkDown()) {
    return endAtNode(node, std::string(message.getLinkDown().cStr()));
  }
  if (!message.isFromMember() || end.connection == 0 || end.closing) return;
  Item item{Item::Kind::Words, copyOf(message.getFromMember()), {}, {}, false};
  put(end.connection, Way::Up, std::move(item), nodes_[node]->now(), delay());
}

void Net::fromScheduler(schema::ToMember::Reader words) {
  const std::uint32_t link = words.getLink();
  Connection* connection = find(link);
  if (connection == nullptr || !connection->up.open) return;
  Item item{Item::Kind::Words, copyOf(words), {}, {}, false};
  put(link, Way::Down, std::move(item), scheduler_.now(), delay());
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
  const Nanos now = scheduler_.now();
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

void Net::sweep(std::uint32_t life) {
  if (life != schedulerLife_) return;
  std::vector<std::uint32_t> silent;
  for (const auto& [link, connection] : connections_) {
    if (!connection.up.open) continue;
    if (scheduler_.now() - connection.up.heard > kLinks.silence) silent.push_back(link);
  }
  for (const std::uint32_t link : silent) endAtScheduler(link);
  scheduler_.after(kLinks.sweep, [this, life] { sweep(life); });
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

void Net::block(std::size_t node, Way way, bool blocked) {
  ends_[node].blocked[static_cast<std::size_t>(way)] = blocked;
  if (blocked) return;
  std::vector<std::uint32_t> mine;
  for (const auto& [number, connection] : connections_) {
    if (connection.node == node) mine.push_back(number);
  }
  for (const std::uint32_t number : mine) flush(number, way);
}

void Net::heal() {
  healed_ = true;
  for (std::size_t node = 0; node < ends_.size(); ++node) {
    for (const Way way : {Way::Up, Way::Down}) block(node, way, false);
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
