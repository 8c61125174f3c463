#include "services/kubernetes/claims/other_drivers.h"

#include <algorithm>
#include <iterator>
#include <simdjson.h>

#include "services/kubernetes/claims/resource_slice.h"
#include "services/kubernetes/pods/json_keys.h"

namespace qgpu {

bool listsWholeCards(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array slices;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) return false;
  const auto items = member(root, "items");
  if (!items || items->get(slices) != simdjson::SUCCESS) return false;
  for (const simdjson::dom::element slice : slices) {
    const auto spec = member(slice, "spec");
    if (!spec) continue;
    const auto driver = textAt(*spec, "driver");
    if (std::ranges::find(kWholeCardsDrivers, driver) == std::end(kWholeCardsDrivers)) continue;
    const auto devices = member(*spec, "devices");
    simdjson::dom::array list;
    if (devices && devices->get(list) == simdjson::SUCCESS && list.size() != 0) return true;
  }
  return false;
}

OtherDrivers::OtherDrivers(ApiClient& api, Log& log, const std::string& node)
    : api_(api),
      log_(log),
      path_(std::string(kResourceApi) +
            "/resourceslices?resourceVersion=0&fieldSelector=spec.nodeName%3D" + urlEscaped(node)) {
}

kj::Promise<void> OtherDrivers::look() {
  return api_.get(path_).then([this](ApiAnswer answer) {
    known_ = known_ || answer.fault != ApiFault::Unreachable;
    if (answer.ok()) {
      give_ = listsWholeCards(answer.body);
      trouble_.clear();
    } else if (answer.fault == ApiFault::NotFound) {
      give_ = false;  // this API server has no such objects
    } else if (trouble_ != answer.message) {
      trouble_ = answer.message;
      log_.warn("other-drivers-not-known", {{"why", trouble_}});
    }
  });
}

}  // namespace qgpu
