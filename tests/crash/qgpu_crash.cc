// qgpu-crash: the real manager is killed, starved of disk and given failing system calls, under
// real tenants. Each subcommand is one part; it works in a folder of its own, leaves nothing behind
// and ends with one JSON line. Exit status: 0 nothing found, 1 something is wrong (the reason, the
// seed and the command that does it again are on stderr), 77 this machine does not allow the test.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "tests/crash/absence.h"
#include "tests/crash/disk_full.h"
#include "tests/crash/kills.h"
#include "tests/crash/load.h"
#include "tests/crash/syscalls.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr int kWrong = 1;
constexpr int kSkipped = 77;

int report(const std::string& replay, const std::function<std::string()>& part) {
  try {
    std::printf("%s\n", part().c_str());
    return 0;
  } catch (const Skipped& skipped) {
    std::fprintf(stderr, "qgpu-crash: SKIPPED, nothing was tested: %s\n", skipped.what());
    return kSkipped;
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "qgpu-crash: VIOLATION: %s\nreplay: %s\n", wrong.what(), replay.c_str());
    return kWrong;
  }
}

int main(int argc, char** argv) {
  CLI::App app("qgpu-crash: kills and starves the real manager under real tenants");
  app.require_subcommand(1);
  KillOptions kills;
  CLI::App* kill = app.add_subcommand("kills", "kill -9 at random times, restart, check");
  kill->add_option("--count", kills.count, "how many kills")->capture_default_str();
  kill->add_option("--seed", kills.seed, "draws the times")->capture_default_str();
  kill->add_option("--cards", kills.cards, "opencl: with real programs, or sim:NxM")
      ->capture_default_str();
  AbsenceOptions absence;
  CLI::App* away = app.add_subcommand("absence", "the manager is gone, or hangs, or loops");
  away->add_option("--rounds", absence.rounds, "dead, hanging, and dying again, by turns")
      ->capture_default_str();
  away->add_option("--cards", absence.cards, "opencl, or sim:NxM")->capture_default_str();
  DiskFullOptions full;
  CLI::App* disk = app.add_subcommand("disk-full", "the database on a small disk that fills up");
  disk->add_option("--rounds", full.rounds, "how often it fills up")->capture_default_str();
  disk->add_option("--seed", full.seed, "draws how much is left")->capture_default_str();
  SyscallOptions calls;
  CLI::App* syscalls = app.add_subcommand("syscalls", "system calls that fail, one row for each");
  syscalls->add_option("--only", calls.only, "rows whose name contains this");
  LoadOptions load;
  CLI::App* watch = app.add_subcommand("load", "many tenants for a long time: nothing may grow");
  watch->add_option("--minutes", load.minutes, "how long")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1'000'000.0));
  watch->add_option("--samples", load.samples, "file of JSON lines to append to");
  watch->add_option("--cards", load.cards, "imaginary cards")->check(CLI::Range(2, 64));
  watch->add_option("--per-card", load.perCard, "tenants on each")->check(CLI::Range(2, 16));
  CLI11_PARSE(app, argc, argv);

  if (*kill) {
    return report("qgpu-crash kills --count " + std::to_string(kills.count) + " --seed " +
                      std::to_string(kills.seed) + " --cards " + kills.cards,
                  [&] { return runKills(kills); });
  }
  if (*away) {
    return report("qgpu-crash absence --rounds " + std::to_string(absence.rounds) + " --cards " +
                      absence.cards,
                  [&] { return runAbsence(absence); });
  }
  if (*disk) {
    return report("qgpu-crash disk-full --rounds " + std::to_string(full.rounds) + " --seed " +
                      std::to_string(full.seed),
                  [&] { return runDiskFull(full); });
  }
  if (*syscalls) {
    return report("qgpu-crash syscalls --only '" + calls.only + "'",
                  [&] { return runSyscalls(calls); });
  }
  if (*watch) {
    return report("qgpu-crash load --minutes " + std::to_string(load.minutes),
                  [&] { return runLoad(load); });
  }
  return kWrong;
}

}  // namespace
}  // namespace qgpu::crash

int main(int argc, char** argv) {
  return qgpu::crash::main(argc, argv);
}
