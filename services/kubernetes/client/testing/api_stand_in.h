#pragma once
// A Kubernetes API server's manners in one object, for tests and benches: real HTTP on a real port,
// lists in pages, watches with history, bookmarks and 410, field selectors, patches, conflicts, a
// status that is written apart, Bindings, evictions, events and leases. It knows nodes, pods,
// namespaces, events, leases, secrets, claims, their templates, slices and webhook configurations
// only, in their groups and versions (api_paths.h), and checks no fields of theirs. What
// kube_recorded_test asks it answers as a real one did. With roles
// (api_roles.h) it does for an account what they grant, and nothing else. It can be cut off, come
// back on its port, refuse what is asked next, and forget its history.

#include <deque>
#include <functional>
#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/kubernetes/client/testing/api_paths.h"
#include "services/kubernetes/client/testing/api_roles.h"

namespace qgpu::testing {

class ApiStandIn final : private kj::HttpService, private kj::TaskSet::ErrorHandler {
 public:
  // Listens on a free port of loopback. `network` and `timer` outlive it, as does `tls`.
  ApiStandIn(kj::Network& network, kj::Timer& timer, kj::Maybe<kj::TlsContext&> tls,
             kj::WaitScope& scope);
  ~ApiStandIn() noexcept(false);

  unsigned port() const { return port_; }

  // What is asked next is answered so.
  struct Refusal {
    unsigned status = 500;
    std::string reason;
    std::string message;
    std::string retryAfter;  // header; empty: none
  };
  std::deque<Refusal> refusals;
  std::string minor = "28";        // of its version
  std::string token;               // wanted of everybody; empty: of nobody
  std::optional<ApiRoles> roles;   // nothing: everybody may do everything
  std::vector<std::string> heard;  // "GET /api/v1/pods?limit=500"
  // What was asked, in the words of RBAC, and by whom (see ApiRoles).
  struct Use {
    std::string account;
    std::string verb;      // "get", "list", "watch", "create", "update", "patch", "delete"
    std::string group;     // empty: the core group
    std::string resource;  // "pods", "pods/binding"
    std::string nameSpace;
    std::string name;
    auto operator<=>(const Use&) const = default;
  };
  std::set<Use> uses;
  std::vector<std::string> types;  // content types of bodies
  std::string lastBody;
  std::function<void()> onRequest;  // before each is answered
  // What was asked ("POST /api/v1/...") has been done, and its answer is not sent yet.
  std::function<void(const std::string&)> onDone;

  // Creates or replaces an object of "nodes", "pods", ...; watchers are told.
  void put(const std::string& collection, Json object);
  void remove(const std::string& collection, const std::string& nameSpace, const std::string& name);
  // Null where there is none.
  Json find(const std::string& collection, const std::string& nameSpace,
            const std::string& name) const;
  std::vector<Json> all(const std::string& collection) const;
  std::size_t evictions() const { return evictions_; }
  // Begun so far; one whose client left is noticed only when there is something to tell.
  std::size_t watches() const { return begun_; }
  std::uint64_t version() const { return version_; }

  void setLate(bool late);  // while it is, watches hear of nothing, and of all of it later
  void bookmark();          // to every watch that asked for bookmarks
  void forget();            // watches from here back end with 410
  void endWatches();        // as at their time-out
  void sayToWatches(const std::string& line);
  void cut();      // every connection is lost, and no new one is taken
  void restart();  // on its port
  bool up() const { return server_.get() != nullptr; }

  static Json node(const std::string& name);
  static Json pod(const std::string& nameSpace, const std::string& name, const std::string& uid);

 private:
  struct Stored {
    std::string text;
    std::uint64_t version = 0;
  };
  struct Change {
    std::uint64_t version = 0;
    std::string collection, nameSpace;
    std::string type;           // "ADDED", "MODIFIED", "DELETED"
    std::string before, after;  // texts; before: empty where there was none
  };
  struct Watcher {
    ApiPath path;
    FieldSelector selector;
    bool bookmarks = false;
    std::deque<std::string> lines;
    bool over = false;
    kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> woken;
  };
  struct Reply {
    unsigned status = 200;
    std::string body;
    std::string retryAfter;
  };

  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url,
                            const kj::HttpHeaders& headers, kj::AsyncInputStream& body,
                            Response& response) override;
  // Nothing: it may go on.
  std::optional<Reply> refused(kj::HttpMethod method, const ApiPath& path,
                               const std::string& bearer, FieldSelector& selector);
  Reply answer(kj::HttpMethod method, const ApiPath& path, const FieldSelector& selector,
               const std::string& type, const std::string& body);
  Reply list(const ApiPath& path, const FieldSelector& selector);
  Reply create(const ApiPath& path, Json object);
  Reply bind(const ApiPath& path, const Json& binding);
  Reply evict(const ApiPath& path, const Json& eviction);
  Reply end(const ApiPath& path);
  Reply patch(const ApiPath& path, const std::string& type, const Json& change);
  Reply replace(const ApiPath& path, Json object);
  static Reply refuse(unsigned status, const std::string& reason, const std::string& message);
  kj::Promise<void> send(Response& response, Reply reply);
  kj::Promise<void> watch(const ApiPath& path, FieldSelector selector, Response& response);
  kj::Promise<void> feed(kj::Own<kj::AsyncOutputStream> stream, Watcher& watcher);
  void tell(Change change);
  static std::string lineFor(const Watcher& watcher, const Change& change);
  void listen(kj::NetworkAddress& address);
  void taskFailed(kj::Exception&& exception) override;
  std::string whole(const ApiPath& path, const std::string& name) const;  // as it is answered
  static std::string keyOf(const Json& object);

  kj::Network& network_;
  kj::Timer& timer_;
  kj::Maybe<kj::TlsContext&> tls_;
  kj::Own<kj::HttpHeaderTable> table_;
  kj::HttpHeaderId authorization_;
  kj::HttpHeaderId retryAfter_;
  unsigned port_ = 0;
  kj::Own<kj::NetworkAddress> address_;  // with its port
  std::uint64_t version_ = 1000;
  std::uint64_t forgotten_ = 0;  // changes up to here are not known any more
  std::size_t evictions_ = 0;
  std::size_t begun_ = 0;
  std::map<std::string, std::map<std::string, Stored>> objects_;
  std::deque<Change> history_;
  std::set<Watcher*> watchers_;
  bool late_ = false;
  kj::Own<kj::HttpServer> server_;
  kj::Own<kj::TaskSet> tasks_;
};

}  // namespace qgpu::testing
