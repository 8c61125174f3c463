#pragma once
// A task without pageable memory, online or not: it takes and gives memory within its quota, and
// where the card refuses it what it may have, it waits for the manager's answer (M6).

#include <cstdint>
#include <optional>

#include "tests/sim/paging/paging_options.h"
#include "tests/sim/paging/paging_site.h"

namespace qgpu::sim {

// The manager as a tenant sees it.
class NeedPort {
 public:
  virtual ~NeedPort() = default;
  virtual bool there() const = 0;
  virtual std::uint32_t life() const = 0;
  // The number by which it is answered.
  virtual std::uint64_t need(std::size_t tenant, Bytes bytes, Nanos since) = 0;
  virtual void given(std::uint64_t request) = 0;
  virtual void othersChanged() = 0;
  // Whether a refusal can be right: an ended task's memory is not free yet, or strangers have some.
  virtual bool mayRefuse() const = 0;
  virtual Nanos waitFor() const = 0;
};

class TenantMemory {
 public:
  TenantMemory(PagingSite& site, NeedPort& port, std::size_t index, Bytes quota, Bytes most)
      : site_(site), port_(port), index_(index), quota_(quota), most_(most) {}
  TenantMemory(const TenantMemory&) = delete;
  TenantMemory& operator=(const TenantMemory&) = delete;

  void start() { think(); }
  void answered(std::uint64_t request, bool room);
  Bytes holds() const { return holds_; }

 private:
  struct Waiting {
    Bytes bytes{0};
    Nanos since{0};
    std::uint64_t request = 0;
    std::uint32_t life = 0;  // of the manager that was asked
    std::uint64_t turn = 0;
  };
  void think();
  void act();
  void ask();
  void watch(std::uint64_t turn);
  void take(Bytes bytes);
  void stop();

  PagingSite& site_;
  NeedPort& port_;
  const std::size_t index_;
  const Bytes quota_, most_;
  Bytes holds_{0};
  std::optional<Waiting> waiting_;
  std::uint64_t turns_ = 0;
};

}  // namespace qgpu::sim
