#pragma once
// Replies of the node as the documents of the admin socket, with the field names of the contract.
// What is written goes to any DocumentWriter, what is rendered is JSON. Pure: what it is given is
// all it knows.

#include <capnp/dynamic.h>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "schema/envelope.capnp.h"
#include "services/api/commands/command_line.h"
#include "services/api/commands/commands.h"
#include "services/api/commands/tenant_environment.h"
#include "services/base/json.h"

namespace qgpu {

// {"ok":false,"error":...,"code":...}; as JSON one line without its newline.
void writeError(DocumentWriter& json, const Error& error);
std::string renderError(const Error& error);

// {"ok":true,...} of any reply. `nodeName` stands in cards and tasks, `environment` in what a
// bound task is told.
std::string renderReply(schema::Reply::Reader reply, std::string_view nodeName,
                        const TenantEnvironment& environment);

// {"ok":true,"done":text}, {"ok":true,"watching":true} and {"ok":true,"event":{...}}.
std::string renderDone(std::string_view text);
void writeWatching(DocumentWriter& json);
std::string renderWatching();
void writeTold(DocumentWriter& json, schema::Event::Reader event);
std::string renderEvent(schema::Event::Reader event);

// {"ok":true,"commands":[{"usage","what","changes"}]}: those of that daemon.
std::string renderHelp(Side side);

// The member that is set of a reply of either daemon, by the names of its schema: "memBytes" is
// "mem_bytes". So an answer that needs nothing else is done with its schema. False for a failure,
// and for an answer of a newer daemon.
bool writeAsNamed(DocumentWriter& json, capnp::DynamicStruct::Reader reply);

// The parts of documents that a node and a cluster show alike.
void writeCard(DocumentWriter& json, schema::CardStatus::Reader status, std::string_view nodeName);
void writeEvent(DocumentWriter& json, schema::Event::Reader event);
void writeTrace(DocumentWriter& json, schema::CardTrace::Reader trace);

template <typename List, typename Each>
void writeArray(DocumentWriter& json, std::string_view name, List list, Each each) {
  json.key(name).beginArray();
  for (const auto item : list) each(item);
  json.endArray();
}

}  // namespace qgpu
