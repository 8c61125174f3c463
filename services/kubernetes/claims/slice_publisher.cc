#include "services/kubernetes/claims/slice_publisher.h"

#include <simdjson.h>

#include "services/base/kj_time.h"
#include "services/kubernetes/pods/json_keys.h"

namespace qgpu {
namespace {

std::string versionIn(const std::string& json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(json).get(root) != simdjson::SUCCESS) return "";
  const auto metadata = member(root, "metadata");
  return metadata ? std::string(textAt(*metadata, "resourceVersion")) : "";
}

}  // namespace

std::string SlicePublisher::path(bool named) const {
  const std::string all = std::string(kResourceApi) + "/resourceslices";
  return named ? all + "/" + urlEscaped(sliceName(node_)) : all;
}

kj::Promise<void> SlicePublisher::publish(std::optional<SliceFacts> facts) {
  std::string text = facts ? writeSlice(*facts, "") : "";
  const bool fresh = api_.timer().now() - lookedAt_ < toKj(lookEvery_);
  if (published_ == text && (text.empty() || fresh)) return kj::READY_NOW;
  return api_.get(path(true))
      .then([this, facts = std::move(facts),
             text = std::move(text)](ApiAnswer there) -> kj::Promise<void> {
        const bool none = there.fault == ApiFault::NotFound;
        // Where nothing is to be there, whoever may not look has never written.
        if (!facts && there.fault == ApiFault::Forbidden) published_ = "";
        if (!none && !there.ok()) {
          if (facts) tell(there);
          return kj::READY_NOW;
        }
        const std::string version = none ? "" : versionIn(there.body);
        lookedAt_ = api_.timer().now();
        if (!facts) {
          if (!none) return withdraw();
          published_ = "";
          return kj::READY_NOW;
        }
        if (!none && published_ == text && version == version_) return kj::READY_NOW;
        return write(*facts, text, version);
      });
}

kj::Promise<void> SlicePublisher::write(const SliceFacts& facts, const std::string& text,
                                        const std::string& version) {
  const bool fresh = version.empty();
  ApiCall call{fresh ? kj::HttpMethod::POST : kj::HttpMethod::PUT, path(!fresh),
               writeSlice(facts, version)};
  return api_.call(std::move(call)).then([this, text, cards = facts.cards.size()](ApiAnswer done) {
    if (!done.ok()) return tell(done);
    published_ = text;
    version_ = versionIn(done.body);
    trouble_.clear();
    log_.info("slice-published", {{"cards", cards}, {"version", version_}});
  });
}

kj::Promise<void> SlicePublisher::withdraw() {
  return api_.call({kj::HttpMethod::DELETE, path(true), ""}).then([this](ApiAnswer done) {
    if (!done.ok() && done.fault != ApiFault::NotFound) return tell(done);
    published_ = "";
    trouble_.clear();
    log_.info("slice-withdrawn", {});
  });
}

void SlicePublisher::tell(const ApiAnswer& answer) {
  published_.reset();
  std::string why = answer.message;
  if (answer.fault == ApiFault::NotFound) {
    why = "this API server has no resource.k8s.io/v1: claims need Kubernetes 1.34 or later";
  }
  if (why == trouble_) return;
  trouble_ = std::move(why);
  log_.warn("slice-not-published", {{"why", trouble_}});
}

}  // namespace qgpu
