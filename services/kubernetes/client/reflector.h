#pragma once
// A copy of one kind of the API server's objects that follows it: listed in pages, then watched
// from the version of the list on, and heard by a listener. One for nodes, one for pods.
//
//   Listing -> Watching -> Watching (resumed) ...;  410 or a broken line -> Listing
//
// A lost connection or an ended watch goes on from the last version seen, which bookmarks keep
// young; only what the server has forgotten is listed again. A new list changes what differs and
// drops what it does not name, so that the listener hears of each object what it is now, never less
// than once, and nothing twice in a row that is no change for nodes. While the server is away the
// copy stays as it was.
//
// Kept here: C5 (a page is in memory once; pages and lines are bounded by the client).

#include <cstdint>
#include <functional>
#include <kj/async.h>
#include <map>
#include <string>

#include "runtime/log.h"
#include "services/kubernetes/client/api_client.h"
#include "services/kubernetes/pods/kube_objects.h"

namespace qgpu {

template <typename Object>
class KubeListener {
 public:
  virtual void onUpsert(const Object& object) = 0;
  virtual void onGone(const Object& last) = 0;
  // A list is complete. Told again after each.
  virtual void onSynced() = 0;

 protected:
  ~KubeListener() = default;
};

struct ReflectorOptions {
  unsigned page = 500;             // objects; fewer where so many are too large for an answer
  Nanos watchMost = seconds(300);  // the server ends a watch after it
  Nanos silence = seconds(420);    // a watch that says nothing for so long is broken
  Nanos retryFirst = millis(200);
  Nanos retryMost = seconds(15);
};

// What all kinds have in common.
class ReflectorBase : private LineSink {
 public:
  bool synced() const { return lists_ > 0; }
  std::uint64_t lists() const { return lists_; }
  std::uint64_t watches() const { return watches_; }
  // Since the server said something of these objects that could be understood; since the begin
  // where it has not yet. Bookmarks make it a minute at most on a quiet cluster.
  kj::Duration age() const { return api_.timer().now() - heardAt_; }

 protected:
  ReflectorBase(ApiClient& api, std::string path, Log& log, ReflectorOptions options);
  ~ReflectorBase() noexcept(false) = default;

  void start();
  void stop() { running_ = nullptr; }

  // A page arrived; its version and the next page's token come back.
  virtual Status takePage(std::string& body, std::string& version, std::string& next) = 0;
  virtual void listBegins() = 0;
  virtual void listEnds() = 0;
  struct Heard {
    std::string version;
    unsigned status = 0;  // of an ERROR; 0: none
    std::string message;
  };
  virtual Status takeLine(std::string_view line, Heard& heard) = 0;

 private:
  kj::Promise<void> run();
  kj::Promise<void> list(std::string next);
  kj::Promise<void> watch();
  kj::Promise<void> again(const std::string& why);
  bool onLine(std::string_view line) override;

  ApiClient& api_;
  const std::string path_;
  Log& log_;
  const ReflectorOptions options_;
  unsigned page_;
  Backoff backoff_;
  std::string version_;  // empty: list
  std::string listing_;  // version of the list that is under way
  std::string trouble_;  // the last that was logged, which is not logged twice; empty: none now
  std::uint64_t lists_ = 0;
  std::uint64_t watches_ = 0;
  kj::TimePoint heardAt_;
  bool broken_ = false;                  // in this watch
  kj::Promise<void> running_ = nullptr;  // ended by stop(), before the derived class does
};

template <typename Object>
class Reflector final : public ReflectorBase {
 public:
  // `api`, `listener` and `log` outlive the reflector, which runs from here on.
  Reflector(ApiClient& api, std::string path, KubeListener<Object>& listener, Log& log,
            PodRules rules = {}, ReflectorOptions options = {})
      : ReflectorBase(api, std::move(path), log, options),
        listener_(listener),
        reader_(std::move(rules)) {
    start();
  }
  ~Reflector() noexcept(false) { stop(); }

  std::size_t size() const { return objects_.size(); }

 private:
  struct Kept {
    Object object;
    std::uint64_t list = 0;  // that named it last
  };

  Status takePage(std::string& body, std::string& version, std::string& next) override {
    KubePage<Object> page;
    if (Status read = reader_.read(body, page); !read) return read;
    for (Object& object : page.objects) upsert(std::move(object));
    version = std::move(page.resourceVersion);
    next = std::move(page.next);
    return ok();
  }
  void listBegins() override { ++list_; }
  void listEnds() override {
    for (auto kept = objects_.begin(); kept != objects_.end();) {
      if (kept->second.list == list_) {
        ++kept;
        continue;
      }
      const Object last = std::move(kept->second.object);
      kept = objects_.erase(kept);
      listener_.onGone(last);
    }
    listener_.onSynced();
  }
  Status takeLine(std::string_view line, Heard& heard) override {
    KubeLine<Object> read;
    if (Status good = reader_.read(line, read); !good) return good;
    heard = {std::move(read.resourceVersion), read.status, std::move(read.message)};
    if (read.change == KubeChange::Error && heard.status == 0) heard.status = 500;
    const bool change = read.change == KubeChange::Added || read.change == KubeChange::Modified;
    if (change && read.ours) {
      upsert(std::move(read.object));
    } else if (change || read.change == KubeChange::Deleted) {
      gone(keyOf(read.object));
    }
    return ok();
  }

  void upsert(Object object) {
    const auto [found, isNew] = objects_.try_emplace(keyOf(object));
    Kept& kept = found->second;
    kept.list = list_;
    // Another one of that name: what was between them was missed.
    if constexpr (requires { uidOf(object); }) {
      if (!isNew && uidOf(kept.object) != uidOf(object)) {
        listener_.onGone(std::exchange(kept.object, Object()));
      }
    }
    if constexpr (requires { object == kept.object; }) {
      if (object == kept.object) return;
    }
    kept.object = std::move(object);
    listener_.onUpsert(kept.object);
  }
  void gone(const std::string& key) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) return;
    const Object last = std::move(found->second.object);
    objects_.erase(found);
    listener_.onGone(last);
  }

  KubeListener<Object>& listener_;
  KubeReader reader_;
  std::map<std::string, Kept> objects_;
  std::uint64_t list_ = 0;
};

}  // namespace qgpu
