#pragma once
// The demo's acts. Each sets the card's policy, starts its tenants, measures, ends them and writes
// its figures into the sheet. An error means that the act did not run; a figure that is missed is a
// figure, not an error.

#include <cstdint>

#include "runtime/result.h"
#include "services/demo/private_node.h"
#include "services/demo/result_sheet.h"

namespace qgpu::demo {

struct ActSetting {
  PrivateNode& node;
  ResultSheet& sheet;
  std::int64_t ns;  // how long to measure; hybrid takes four times as long
};

Status bestEffortAct(const ActSetting& setting);  // three busy tasks
Status fixedShareAct(const ActSetting& setting);  // 30 and 60 percent
Status burstShareAct(const ActSetting& setting);  // an owner leaves and returns
Status hybridAct(const ActSetting& setting);      // online bursts over an offline batch
Status clpeakAct(const ActSetting& setting);      // an unmodified program from Debian
Status aloneAct(const ActSetting& setting);       // one tenant, with and without qgpu

}  // namespace qgpu::demo
