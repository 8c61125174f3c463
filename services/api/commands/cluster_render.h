#pragma once
// Replies of the scheduler as documents, with the field names of the contract. Pure: what it
// is given is all it knows. A task's "state" is what its node last said of it while it is bound,
// else how far its placement is; "place" is always the latter.

#include <string>

#include "runtime/result.h"
#include "schema/cluster.capnp.h"
#include "services/api/commands/tenant_environment.h"
#include "services/base/json.h"

namespace qgpu {

// {"ok":true,...} of any reply, or {"ok":false,...} of `failed`. `here`: what a program that starts
// on this machine needs beside what is told of its task, in the environment of an Assigned.
void writeClusterReply(DocumentWriter& json, schema::ClusterReply::Reader reply,
                       const Variables& here = {});
std::string renderClusterReply(schema::ClusterReply::Reader reply, const Variables& here = {});

// The one token that was made, as it is told once. `door`: HOST:PORT of who takes it.
std::string renderInvitation(schema::ClusterReply::Reader reply, const std::string& door,
                             const std::string& token);

// Library and socket as they lie on this machine, for `here`.
Variables launchVariables(const std::string& library, const std::string& runDir);

// A list of nodes, cards or tasks that comes page by page, as the one document that it would be
// whole: a list of 100,000 tasks holds nobody up, and no message has them all.
class ClusterListing {
 public:
  explicit ClusterListing(DocumentWriter& to) : to_(to) {}

  // The page that was asked for behind after(). True: another one follows; false: the document is
  // whole. An error is what the page was instead; what was written so far is no document then.
  Result<bool> add(schema::ClusterReply::Reader page);
  std::uint64_t after() const { return after_; }

 private:
  DocumentWriter& to_;
  std::uint64_t after_ = 0;
};

}  // namespace qgpu
