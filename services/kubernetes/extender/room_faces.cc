#include "services/kubernetes/extender/room_faces.h"

namespace qgpu {
namespace {

class Mixer {
 public:
  template <typename T>
  void add(T value) {
    hash_ = (hash_ ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 32;
  }
  std::size_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace

// Of what tells nodes apart most often; the rest is left to the comparison.
std::size_t RoomFaces::Hash::operator()(const NodeRoom& room) const {
  Mixer mixer;
  mixer.add(room.life);
  mixer.add(room.cpuBound);
  mixer.add(room.hostMemBound.value);
  for (const CardRoom& card : room.cards) {
    mixer.add(card.mem.value);
    mixer.add(card.memBound.value);
    mixer.add(card.ordinary.value);
    mixer.add(card.greedy.value);
    mixer.add(card.tasks);
  }
  return mixer.hash();
}

bool RoomFaces::Alike::operator()(const NodeRoom& one, const NodeRoom& other) const {
  return one.life == other.life && one.mixed == other.mixed && one.cordoned == other.cordoned &&
         one.cpu == other.cpu && one.cpuBound == other.cpuBound && one.hostMem == other.hostMem &&
         one.hostMemBound == other.hostMemBound && one.cards == other.cards;
}

void RoomFaces::refresh() {
  nodes_.resize(ledger_.nodes());
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    Known& known = nodes_[i];
    const std::uint64_t changed = ledger_.changedAt(NodeId{i});
    if (known.changedAt == changed) continue;
    Looks::value_type* const before = known.look;
    known.look = lookOf(ledger_.nodeRoom(NodeId{i}));
    known.changedAt = changed;
    if (before != nullptr) leave(*before);
  }
}

RoomFaces::Looks::value_type* RoomFaces::lookOf(const NodeRoom& room) {
  auto look = looks_.find(room);
  if (look == looks_.end()) {
    NodeRoom kept = room;
    kept.fragments = {};  // they follow from the rest
    look = looks_.emplace(std::move(kept), Shared{}).first;
    Face& face = look->second.face;
    face.number = ++numbers_;
    if (free_.empty()) {
      face.place = places_++;
    } else {
      face.place = free_.back();
      free_.pop_back();
    }
  }
  ++look->second.nodes;
  return &*look;
}

void RoomFaces::leave(Looks::value_type& look) {
  if (--look.second.nodes != 0) return;
  free_.push_back(look.second.face.place);
  looks_.erase(looks_.find(look.first));
}

}  // namespace qgpu
