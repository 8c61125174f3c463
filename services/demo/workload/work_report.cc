#include "services/demo/workload/work_report.h"

#include "services/demo/workload/json_text.h"

namespace qgpu::demo {

namespace {
constexpr double kNsPerMs = 1e6;
}

std::string WorkReport::json() const {
  const auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  JsonText out;
  out.object().text("device", device).decimal("loops_per_ms", loopsPerMs);
  out.number("kernels", count(kernels)).number("loops", count(loops));
  out.number("items_checked", count(itemsChecked)).number("wrong_items", count(wrong));
  out.flag("checksum_ok", checksumOk());
  out.decimal("kernel_ms", static_cast<double>(kernelNs) / kNsPerMs);
  out.decimal("wall_ms", static_cast<double>(wallNs) / kNsPerMs).text("clock", clock);
  out.array("phases");
  for (const Phase& p : phases) {
    out.object().number("start_ns", p.startNs).number("end_ns", p.endNs);
    out.number("kernels", count(p.kernels)).number("loops", count(p.loops)).endObject();
  }
  out.endArray().array("marks");
  for (const Mark& m : marks) {
    out.object().number("at_ns", m.atNs).number("loops", count(m.loops)).endObject();
  }
  out.endArray().array("bursts");
  for (const Burst& b : bursts) {
    out.object().number("submit_ns", b.submitNs).number("start_ns", b.startNs);
    out.number("end_ns", b.endNs).number("kernels", b.kernels).endObject();
  }
  out.endArray().raw("progress_seen", !progressSeen ? "null" : *progressSeen ? "true" : "false");
  out.array("standstills");
  for (const Standstill& s : standstills) {
    out.object().number("last_ns", s.lastNs).number("resumed_ns", s.resumedNs).endObject();
  }
  return out.endArray().endObject().str();
}

std::string MemoryTaken::json() const {
  const auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  JsonText out;
  out.object().number("bytes", count(bytes)).number("refused_bytes", count(refusedBytes));
  out.number("error", error).number("again_bytes", count(againBytes));
  return out.endObject().str();
}

std::string WorkReport::text() const {
  return device + ": " + std::to_string(kernels) + " kernels, " +
         std::to_string(kernelNs / 1'000'000) + " of " + std::to_string(wallNs / 1'000'000) +
         " ms busy, " + std::to_string(itemsChecked) + " items checked, " + std::to_string(wrong) +
         " wrong";
}

}  // namespace qgpu::demo
