#include "services/kubernetes/client/reflector.h"

namespace qgpu {
namespace {

std::string joined(const std::string& path, const std::string& query) {
  return path + (path.find('?') == std::string::npos ? "?" : "&") + query;
}

}  // namespace

ReflectorBase::ReflectorBase(ApiClient& api, std::string path, Log& log, ReflectorOptions options)
    : api_(api),
      path_(std::move(path)),
      log_(log),
      options_(options),
      page_(options.page),
      backoff_(api.backoff(options.retryFirst, options.retryMost)),
      heardAt_(api.timer().now()) {}

void ReflectorBase::start() {
  running_ = run().eagerlyEvaluate([](kj::Exception&&) {
    QGPU_CHECK(false, "following the API server handles its own failures");
  });
}

kj::Promise<void> ReflectorBase::run() {
  if (!version_.empty()) return watch();
  listBegins();
  return list("");
}

// Smaller pages begin a list of their own: a server may hold the next one to the size of the first.
// A page's list stays at the version of its first page; where the server gave that up, 410 says so
// and the list begins anew.
kj::Promise<void> ReflectorBase::list(std::string next) {
  std::string query = "limit=" + std::to_string(page_);
  if (!next.empty()) query += "&continue=" + urlEscaped(next);
  return api_.get(joined(path_, query)).then([this](ApiAnswer answer) -> kj::Promise<void> {
    if (answer.fault == ApiFault::TooLarge && page_ > 1) {
      page_ /= 2;
      log_.info("kube-page", {{"path", path_}, {"objects", page_}, {"why", answer.message}});
      return run();
    }
    if (!answer.ok()) return again(answer.message);
    std::string following;
    const Status read = takePage(answer.body, listing_, following);
    if (!read) return again(read.error().message);
    if (!following.empty()) return list(std::move(following));
    version_ = listing_;
    heardAt_ = api_.timer().now();
    ++lists_;
    if (!trouble_.empty()) log_.info("kube-back", {{"path", path_}});
    trouble_.clear();
    backoff_.reset();
    listEnds();
    return run();
  });
}

kj::Promise<void> ReflectorBase::watch() {
  ++watches_;
  broken_ = false;
  const std::string query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=" +
                            std::to_string(options_.watchMost / seconds(1)) +
                            "&resourceVersion=" + urlEscaped(version_);
  const kj::TimePoint begun = api_.timer().now();
  return api_.watch(joined(path_, query), *this, options_.silence)
      .then([this, begun](ApiAnswer answer) -> kj::Promise<void> {
        if (answer.fault == ApiFault::Gone || answer.fault == ApiFault::Malformed) {
          version_.clear();
          broken_ = true;
        }
        if (broken_) return again(answer.ok() ? trouble_ : answer.message);
        if (!answer.ok()) return again(answer.message);
        // A server that ends watches at once is not asked as fast as it can answer.
        if (api_.timer().now() - begun < 1 * kj::SECONDS) return again("");
        backoff_.reset();
        return run();
      });
}

kj::Promise<void> ReflectorBase::again(const std::string& why) {
  if (!why.empty() && why != trouble_) log_.warn("kube-trouble", {{"path", path_}, {"why", why}});
  if (!why.empty()) trouble_ = why;
  return api_.timer().afterDelay(backoff_.next().value * kj::NANOSECONDS).then([this]() {
    return run();
  });
}

// False: what follows can't be understood without a new list.
bool ReflectorBase::onLine(std::string_view line) {
  Heard heard;
  const Status read = takeLine(line, heard);
  if (read && heard.status == 0) {
    version_ = std::move(heard.version);
    heardAt_ = api_.timer().now();
    if (!trouble_.empty()) {
      log_.info("kube-back", {{"path", path_}});
      trouble_.clear();
      backoff_.reset();
    }
    return true;
  }
  const std::string why = read ? heard.message : read.error().message;
  // 410 is how a server says that it has forgotten; 429 and 5xx pass, and the version stays good.
  if (!read || heard.status == 410 || heard.status < 429) version_.clear();
  if (why != trouble_) log_.warn("kube-trouble", {{"path", path_}, {"why", why}});
  trouble_ = why;
  broken_ = true;
  return false;
}

}  // namespace qgpu
