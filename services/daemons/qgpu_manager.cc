// qgpu-manager: the daemon of one node.

#include <cstdio>
#include <string>
#include <variant>

#include "runtime/log.h"
#include "services/cards/cards.h"
#include "services/daemons/log_format.h"
#include "services/daemons/manager.h"
#include "services/daemons/options.h"
#include "services/daemons/restore.h"

namespace qgpu {
namespace {

int refuse(const Error& error) {
  std::fprintf(stderr, "qgpu-manager: %s\n", error.message.c_str());
  return static_cast<int>(ExitCode::Usage);
}

int restore(const ManagerOptions& options) {
  auto copy = copyFor(options.restore, "manager", options.nodename);
  if (!copy) return refuse(copy.error());
  if (Status done = restoreFile(*copy, options.dbfile); !done) return refuse(done.error());
  std::fputs(restored(*copy, options.dbfile).c_str(), stdout);
  return static_cast<int>(ExitCode::Ok);
}

int main(int argc, const char* const* argv) {
  keepFreedMemory();
  const auto parsed = parseManagerOptions(argc, argv, Platform::ofThisProcess());
  if (const auto* now = std::get_if<ExitNow>(&parsed)) {
    std::fputs(now->text.c_str(), now->code == 0 ? stdout : stderr);
    return now->code;
  }
  const auto& options = std::get<ManagerOptions>(parsed);
  if (!options.restore.empty()) return restore(options);
  auto cards = findCards(options.cards);
  if (!cards) return refuse(cards.error());
  Log log(options.logLevel, logShape(options.logFormat));
  auto manager = Manager::open(options, std::move(*cards), log);
  if (!manager) return refuse(manager.error());
  (*manager)->run();
  return static_cast<int>(ExitCode::Ok);
}

}  // namespace
}  // namespace qgpu

int main(int argc, char** argv) {
  return qgpu::main(argc, argv);
}
