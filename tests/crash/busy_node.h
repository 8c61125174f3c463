#pragma once
// A node as most parts want it: the manager on a database of its own and tenants of every shape.
// With OpenCL cards there are unmodified programs beside plain tenants; with imaginary ones more
// plain ones. The last card has room for clients that bind and end; the one before it is shared by
// an online tenant that comes and goes and by offline ones; the others are ordinary.

#include <string>
#include <vector>

#include "tests/crash/tenants.h"

namespace qgpu::crash {

inline constexpr std::size_t kBusyNodeClients = 4;  // that the last card has room for

class BusyNode {
 public:
  explicit BusyNode(std::string cards);

  // Starts everything; returns once every tenant launches.
  void raise();
  // Ends the tenants, whose results must be right, and the manager, whose status must be 0; then
  // looks once more at what it has stored.
  void close();

  Daemon& daemon() { return daemon_; }
  Bindings& bindings() { return bindings_; }
  Tenants& tenants() { return tenants_; }
  const std::string& clientsCard() const { return cards_.back(); }

 private:
  bool isSim() const { return kind_.rfind("sim", 0) == 0; }
  void addTenants();
  void addPlain(std::size_t number, std::size_t hybrid);

  const std::string kind_;
  Bindings bindings_;
  Daemon daemon_;
  Tenants tenants_;
  std::vector<std::string> cards_;
};

}  // namespace qgpu::crash
