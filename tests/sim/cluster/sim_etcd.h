#pragma once
// The etcd that schedulers of a simulated cluster share, and each one's ways there: the modelled
// one (store/testing/model_etcd.h) on the world's time. What the seed may let happen: a scheduler
// is cut off, or hears no answers; calls get lost, arrive late, or are done without an answer; no
// majority, and then no lease ends; no space; members that take seconds.

#include <string>

#include "store/testing/model_etcd.h"
#include "tests/sim/cluster/cluster_site.h"

namespace qgpu::sim {

class SimEtcd {
 public:
  static constexpr const char* kPrefix = "/qgpu/";

  // --- faults ---
  std::uint32_t loses = 0;  // percent of the calls
  bool full = false;
  bool slow = false;
  void down(bool on, Nanos now);
  void heal(Nanos now);

  bool isDown() const { return down_; }
  // What a round of calls takes.
  Nanos takes(Dice& dice) const;
  // The identity of who is seated; empty: nobody.
  std::string acting(Nanos now);
  ModelEtcd& at(Nanos now);

 private:
  ModelEtcd model_;
  bool down_ = false;
};

// One client's way.
class EtcdWay {
 public:
  enum class Cut : std::uint8_t { None, Both, Answers };

  EtcdWay(SimEtcd& etcd, Site& site, Dice dice);
  EtcdWay(const EtcdWay&) = delete;
  EtcdWay& operator=(const EtcdWay&) = delete;

  Kv& kv() { return client_; }
  void cut(Cut cut) { cut_ = cut; }

 private:
  ModelClient::Fate fate();

  SimEtcd& etcd_;
  Site& site_;
  Dice dice_;
  Cut cut_ = Cut::None;
  ModelClient client_;
};

}  // namespace qgpu::sim
