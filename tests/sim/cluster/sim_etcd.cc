#include "tests/sim/cluster/sim_etcd.h"

#include "store/etcd/seat.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kCallMin = micros(200);
constexpr Nanos kCallMax = millis(30);
constexpr Nanos kLimit = seconds(1);  // for an answer, as EtcdOptions::callLimit
constexpr Nanos kSlowMax = seconds(3);
constexpr Nanos kLateMax = seconds(40);

}  // namespace

ModelEtcd& SimEtcd::at(Nanos now) {
  if (!down_) model_.advanceTo(now);
  return model_;
}

void SimEtcd::down(bool on, Nanos now) {
  if (on == down_) return;
  at(now);
  down_ = on;
  if (!on) model_.leadsAnew(now);
}

void SimEtcd::heal(Nanos now) {
  loses = 0;
  full = slow = false;
  down(false, now);
}

Nanos SimEtcd::takes(Dice& dice) const {
  return dice.magnitude(kCallMin, slow ? kSlowMax : down_ || loses != 0 ? kLimit : kCallMax);
}

std::string SimEtcd::acting(Nanos now) {
  const std::string key = Seat::keyOf(kPrefix);
  const auto found = at(now).list(key, key + '\0', 1);
  if (found.empty()) return {};
  const auto holder = decodeHolder(found.front().value);
  return holder ? holder->identity : std::string();
}

EtcdWay::EtcdWay(SimEtcd& etcd, Site& site, Dice dice)
    : etcd_(etcd),
      site_(site),
      dice_(dice),
      client_(etcd.at(site.now()), [this] { return fate(); }) {}

ModelClient::Fate EtcdWay::fate() {
  using Fate = ModelClient::Fate;
  etcd_.at(site_.now());
  if (etcd_.isDown() || cut_ == Cut::Both) return Fate::Lost;
  if (cut_ == Cut::Answers) return Fate::AnswerLost;
  if (etcd_.loses == 0 || !dice_.percent(etcd_.loses)) {
    return etcd_.full ? Fate::Refused : Fate::Answered;
  }
  if (dice_.percent(50)) return dice_.percent(50) ? Fate::Lost : Fate::AnswerLost;
  site_.after(dice_.magnitude(millis(1), kLateMax), [this] {
    etcd_.at(site_.now());
    client_.deliver();
  });
  return Fate::Late;
}

}  // namespace qgpu::sim
