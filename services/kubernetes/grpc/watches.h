#pragma once
// Those who watch a list over gRPC: each is sent the newest whole list, now and whenever it
// changes. gRPC calls on threads of its own; everything here is touched on the loop.

#include <grpcpp/grpcpp.h>
#include <memory>
#include <set>
#include <utility>

#include "runtime/loop.h"
#include "services/kubernetes/grpc/replies.h"

namespace qgpu {

template <typename List>
class GrpcWatches {
 public:
  explicit GrpcWatches(Loop& loop) : loop_(loop) {}
  GrpcWatches(const GrpcWatches&) = delete;
  GrpcWatches& operator=(const GrpcWatches&) = delete;

  // From a thread of gRPC's: somebody watches from now on.
  grpc::ServerWriteReactor<List>* add() {
    auto* watch = std::make_unique<Watch>(*this).release();
    loop_.post([this, watch] {
      if (refusing_) {
        watch->end({grpc::StatusCode::UNAVAILABLE, kServerEnding});
      } else {
        watch->begin();
      }
    });
    return watch;
  }
  // The list from now on.
  void publish(List list) {
    list_ = std::move(list);
    for (Watch* watch : std::set<Watch*>(all_)) watch->push();
  }
  // Everybody is told to ask our successor.
  void refuseAll() {
    refusing_ = true;
    for (Watch* watch : std::set<Watch*>(all_)) {
      watch->end({grpc::StatusCode::UNAVAILABLE, kServerEnding});
    }
  }

 private:
  // gRPC deletes nothing: it goes with OnDone.
  class Watch final : public grpc::ServerWriteReactor<List> {
   public:
    explicit Watch(GrpcWatches& owner) : owner_(owner) {}

    void begin() {
      owner_.all_.insert(this);
      push();
    }
    // What was not sent yet is replaced: a list is always whole.
    void push() {
      if (over_) return;
      dirty_ = true;
      if (!writing_) writeNext();
    }
    void end(const grpc::Status& status) {
      if (std::exchange(over_, true)) return;
      owner_.all_.erase(this);
      this->Finish(status);
    }

    void OnWriteDone(bool ok) override {
      owner_.loop_.post([this, ok] {
        writing_ = false;
        if (over_) return;
        if (!ok) {
          end(grpc::Status::OK);
        } else if (dirty_) {
          writeNext();
        }
      });
    }
    void OnCancel() override {
      owner_.loop_.post([this] { end(grpc::Status::CANCELLED); });
    }
    void OnDone() override {
      owner_.loop_.post([this] { const std::unique_ptr<Watch> gone(this); });
    }

   private:
    void writeNext() {
      sent_ = owner_.list_;
      dirty_ = false;
      writing_ = true;
      this->StartWrite(&sent_);
    }

    GrpcWatches& owner_;
    List sent_;
    bool dirty_ = false;
    bool writing_ = false;
    bool over_ = false;
  };

  Loop& loop_;
  List list_;
  std::set<Watch*> all_;
  bool refusing_ = false;
};

}  // namespace qgpu
