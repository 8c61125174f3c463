// docs/reference/rpc.md is what the schema says of the interfaces that programs may call: methods
// and their comments out of schema/, types and fields by reflection, and rights out of the table of
// commands.

#include <algorithm>
#include <capnp/schema.h>
#include <fstream>
#include <map>
#include <regex>
#include <span>
#include <sstream>
#include <string>

#include "schema/node.capnp.h"
#include "schema/scheduler.capnp.h"
#include "services/api/commands/commands.h"
#include "tests/testing/reference_page.h"

namespace qgpu::rpc_reference_test {
namespace {

using testing::cell;
using testing::code;
using testing::row;

constexpr const char* kHead = R"(# RPC

The Cap'n Proto interfaces that programs may call: of a node `Node` of `schema/node.capnp`, at
`manager.rpc` below the run dir and at `--rpc`; of a cluster `Scheduler` of
`schema/scheduler.capnp`, at `scheduler.rpc` and at `--rpc` of the scheduler. Each is the bootstrap
capability of its connection. `services/api/rpc/example` is a client in under 100 lines.

What `qgpuctl` does is a request that `ask` takes, a member of the union in [requests](#requests);
the other methods are the same commands with types of their own. Who may, as of
[commands](commands.md): **read**: everybody who can connect. **own tasks**: every user of the
machine, over a unix socket, for tasks of their own. **change**: root, the daemon's own user, group
`qgpu`, and whom a certificate says it of ([security](../operate/security.md)). Interfaces between
the daemons themselves (`KubeletHandler`, `Registry`) are in the schema alone.

This page is generated from `schema/`, the table of `services/api/commands/command_table.cc` and
`runtime/result.h`.

)";

std::string readTree(const std::string& name) {
  std::ifstream file(std::string(QGPU_SOURCE_ROOT) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

// --- types, by reflection ---

std::string nameOf(capnp::Schema schema) {
  const std::string whole = schema.getProto().getDisplayName().cStr();
  return whole.substr(whole.rfind(':') + 1);
}

std::string typeName(capnp::Type type) {
  static const std::map<capnp::schema::Type::Which, const char*> plain = {
      {capnp::schema::Type::VOID, "Void"},     {capnp::schema::Type::BOOL, "Bool"},
      {capnp::schema::Type::INT8, "Int8"},     {capnp::schema::Type::INT16, "Int16"},
      {capnp::schema::Type::INT32, "Int32"},   {capnp::schema::Type::INT64, "Int64"},
      {capnp::schema::Type::UINT8, "UInt8"},   {capnp::schema::Type::UINT16, "UInt16"},
      {capnp::schema::Type::UINT32, "UInt32"}, {capnp::schema::Type::UINT64, "UInt64"},
      {capnp::schema::Type::TEXT, "Text"},     {capnp::schema::Type::DATA, "Data"}};
  if (type.isList()) return "List(" + typeName(type.asList().getElementType()) + ")";
  if (type.isStruct()) return nameOf(type.asStruct());
  if (type.isEnum()) return nameOf(type.asEnum());
  if (type.isInterface()) return nameOf(type.asInterface());
  const auto found = plain.find(type.which());
  EXPECT_NE(found, plain.end());
  return found == plain.end() ? "?" : found->second;
}

std::string fieldText(capnp::StructSchema::Field field) {
  return std::string(field.getProto().getName().cStr()) + " :" + typeName(field.getType());
}

std::string fieldsText(capnp::StructSchema type) {
  std::string out;
  for (const auto field : type.getNonUnionFields()) {
    out += (out.empty() ? "" : ", ") + fieldText(field);
  }
  std::string choices;
  for (const auto field : type.getUnionFields()) {
    choices += (choices.empty() ? "" : ", ") + fieldText(field);
  }
  if (choices.empty()) return out;
  return out + (out.empty() ? "" : ", ") + "union {" + choices + "}";
}

// Every struct and enum that a type leads to, by name.
class Types {
 public:
  void add(capnp::Type type) {
    if (type.isList()) return add(type.asList().getElementType());
    if (type.isEnum()) {
      std::string values;
      for (const auto value : type.asEnum().getEnumerants()) {
        values += (values.empty() ? "" : ", ") + std::string(value.getProto().getName().cStr());
      }
      texts_[typeName(type)] = values;
    }
    if (!type.isStruct()) return;
    addFields(type.asStruct(), true);
  }
  // Of what has no name of its own: parameters and results.
  void addFields(capnp::StructSchema type, bool named = false) {
    if (named && !texts_.emplace(nameOf(type), fieldsText(type)).second) return;
    for (const auto field : type.getFields()) add(field.getType());
  }
  std::string rows() const {
    std::string out = row({"type", "fields, or values"}) + "|---|---|\n";
    for (const auto& [name, text] : texts_) out += row({code(name), code(text)});
    return out;
  }
  void leaveOut(const char* name) { texts_.erase(name); }

 private:
  std::map<std::string, std::string> texts_;
};

// --- comments, out of the text of a schema ---

// What stands beside and below each method or field of the block that begins with `head`.
std::map<std::string, std::string> commentsOf(const std::string& text, const std::string& head) {
  const std::size_t begin = text.find(head);
  EXPECT_NE(begin, std::string::npos) << head;
  std::map<std::string, std::string> comments;
  std::istringstream lines(text.substr(begin));
  static const std::regex member(R"(^ +(\w+) @\d+ .*)");
  std::smatch found;
  std::string of, line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line[0] != '}') {
    if (std::regex_match(line, found, member)) of = found[1];
    const std::size_t mark = line.find('#');
    if (mark == std::string::npos || of.empty()) continue;
    std::string& all = comments[of];
    all += (all.empty() ? "" : " ") + line.substr(line.find_first_not_of("# ", mark));
  }
  return comments;
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  if (text.back() != '.') text += ".";
  return text;
}

// --- commands ---

const char* nameOf(Right right) {
  switch (right) {
    case Right::Read:
      return "read";
    case Right::OwnTasks:
      return "own tasks";
    case Right::Change:
      return "change";
  }
  return "";
}

std::string commandText(const CommandRow& command) {
  // As qgpuctl has it, whose heading is the target.
  const std::string name = command.name == "whatif" ? "what-if" : std::string(command.name);
  return "[" + name + "](commands.md#" + name + ")";
}

// The command that makes this member of a union of requests; null where no client asks it.
template <typename Request>
const CommandRow* rowNamed(std::string_view member) {
  for (const auto field : capnp::Schema::from<Request>().getUnionFields()) {
    if (field.getProto().getName() != capnp::Text::Reader(member.data(), member.size())) continue;
    return rowOf(static_cast<typename Request::Which>(field.getProto().getDiscriminantValue()));
  }
  return nullptr;
}

template <typename Request>
std::string requestRows(const std::string& file, const char* head) {
  const auto comments = commentsOf(readTree(file), head);
  std::string out = row({"request", "command", "who may", ""}) + "|---|---|---|---|\n";
  for (const auto field : capnp::Schema::from<Request>().getUnionFields()) {
    const std::string name = field.getProto().getName().cStr();
    const CommandRow* command = rowNamed<Request>(name);
    if (command == nullptr) continue;
    const auto comment = comments.find(name);
    std::string note = comment == comments.end() ? "" : comment->second;
    if (command->does == Does::Save) note = "not over RPC: on the daemon's own machine alone";
    if (command->does == Does::Invite) note = "not over RPC: on the scheduler's own machine alone";
    out += row({code(fieldText(field)), commandText(*command), nameOf(command->right), cell(note)});
  }
  return out + "\n";
}

// --- methods ---

struct Method {
  const char* name;
  const char* request;  // member of the union; null: none
  const char* who;      // where it is none
};

constexpr Method kNodeMethods[] = {
    {"setPolicy", "policy", nullptr},
    {"watch", nullptr, "read"},
    {"kubelet", nullptr, "change: for the kubelet plugin of this node"},
    {"ask", nullptr, "as of the command that the request stands for"}};
constexpr Method kSchedulerMethods[] = {
    {"get", "tasks", nullptr},
    {"list", "tasks", nullptr},
    {"watch", nullptr, "read"},
    {"setPriority", "priority", nullptr},
    {"preemptDryRun", "preempt", nullptr},
    {"setLogLevel", "logLevel", nullptr},
    {"registry", nullptr, "read; joining by it takes the right of a node"},
    {"ask", nullptr, "as of the command that the request stands for"}};

std::string signature(capnp::InterfaceSchema::Method method) {
  const auto result = method.getResultType();
  const bool stream = nameOf(result) == "StreamResult";
  return std::string(method.getProto().getName().cStr()) + " (" +
         fieldsText(method.getParamType()) + ") -> " +
         (stream ? "stream" : "(" + fieldsText(result) + ")");
}

template <typename Request>
std::string methodTexts(capnp::InterfaceSchema interface, std::span<const Method> others,
                        const std::string& file, Types& types) {
  const std::string name = nameOf(interface);
  const auto comments = commentsOf(readTree(file), "interface " + name + " ");
  std::string out = "## " + name + "\n\n";
  for (const auto method : interface.getMethods()) {
    const std::string called = method.getProto().getName().cStr();
    const auto other = std::find_if(others.begin(), others.end(),
                                    [&](const Method& one) { return one.name == called; });
    const char* member = other == others.end() ? called.c_str() : other->request;
    const CommandRow* command = member == nullptr ? nullptr : rowNamed<Request>(member);
    EXPECT_TRUE(member == nullptr || command != nullptr) << called << " needs a row in this test";
    types.addFields(method.getParamType());
    types.addFields(method.getResultType());
    out += "### " + name + "." + called + "\n\n```capnp\n" + signature(method) + "\n```\n\n";
    const auto comment = comments.find(called);
    if (comment != comments.end()) out += sentence(comment->second) + "\n\n";
    out += command != nullptr ? "Command: " + commandText(*command) + ". Who may: **" +
                                    nameOf(command->right) + "**.\n\n"
                              : "Who may: " + std::string(other->who) + ".\n\n";
  }
  return out;
}

// --- errors ---

std::string errorRows() {
  static const std::regex enumerant(R"(^  ([A-Z]\w+), +// (.*)$)");
  const std::string text = readTree("runtime/result.h");
  std::istringstream lines(text.substr(text.find("enum class ErrorCode")));
  std::string out = row({"code", "meaning"}) + "|---|---|\n";
  std::smatch found;
  int count = 0;
  for (std::string line; std::getline(lines, line) && line != "};";) {
    if (!std::regex_match(line, found, enumerant)) continue;
    out += row({code(errorName(static_cast<ErrorCode>(count++))), cell(found[2].str())});
  }
  EXPECT_EQ(count, static_cast<int>(ErrorCode::Internal) + 1) << "a code without a comment";
  return out;
}

constexpr const char* kErrorsHead = R"(## Errors

A refusal is an RPC exception of the type FAILED whose text is `CODE: MESSAGE`; with
`overloaded` its type is OVERLOADED, and the same call may be made again later. DISCONNECTED: the
daemon is gone. UNIMPLEMENTED: it is of a version that does not know this method. A bad argument
names the field and what would be right.

)";

constexpr const char* kTypesHead = R"(## Types

Of parameters and results. `schema/types.capnp`, `envelope.capnp` and `cluster.capnp` say what each
field means. Times are nanoseconds, memory is bytes, shares are thousandths of a card, unless a name
says otherwise.

)";

TEST(Reference, ThePageOfRpcIsWhatTheSchemaSays) {
  Types types;
  std::string page = kHead;
  page += methodTexts<schema::Request>(capnp::Schema::from<schema::Node>(), kNodeMethods,
                                       "schema/node.capnp", types);
  page += methodTexts<schema::ClusterRequest>(capnp::Schema::from<schema::Scheduler>(),
                                              kSchedulerMethods, "schema/scheduler.capnp", types);
  page += "## Requests\n\nOf a node (`Node.ask`):\n\n";
  page += requestRows<schema::Request>("schema/envelope.capnp", "struct Request ");
  page += "Of a cluster (`Scheduler.ask`):\n\n";
  page += requestRows<schema::ClusterRequest>("schema/cluster.capnp", "struct ClusterRequest ");
  page += kErrorsHead + errorRows() + "\n";
  // They have a section of their own, without what daemons alone send.
  for (const char* other : {"Request", "ClusterRequest", "OrderBind", "OrderEnd", "Admission"}) {
    types.leaveOut(other);
  }
  testing::expectPage("rpc.md", page + kTypesHead + types.rows());
}

}  // namespace
}  // namespace qgpu::rpc_reference_test
