#include "bench/load_tenant.h"

#include <cerrno>
#include <cstdio>
#include <time.h>

#include "runtime/loop.h"
#include "services/attach/testing/guest_client.h"

namespace qgpu::bench {
namespace {

void sleepFor(Nanos duration) {
  if (duration <= Nanos(0)) return;
  timespec left{duration.value / 1'000'000'000, duration.value % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

}  // namespace

int runTenant(const TenantPlan& plan, TenantRecord& record) {
  Result<GuestClient> client = GuestClient::attach(plan.socket, plan.token);
  if (!client) {
    std::fprintf(stderr, "bench_load: %s\n", client.error().message.c_str());
    return 1;
  }
  client->holdOwner();
  record.attached.store(1);
  for (std::uint64_t n = 0;; n++) {
    if (plan.burst != 0 && n % plan.burst == 0) {
      sleepFor(plan.pause);
      record.burstAt.store(monotonicNow().value);
      record.bursts.fetch_add(1);
    }
    if (!client->admit()) return 0;
    sleepFor(plan.kernel);
    client->retire();
    record.launches.fetch_add(1);
    sleepFor(plan.gap);
  }
}

}  // namespace qgpu::bench
