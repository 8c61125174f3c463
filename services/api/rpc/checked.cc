#include "services/api/rpc/checked.h"

#include "schema/types.capnp.h"
#include "services/api/commands/schema_names.h"
#include "services/base/process.h"

namespace qgpu {
namespace {

using capnp::DynamicStruct;
using capnp::DynamicValue;

[[noreturn]] void refuse(std::string message) {
  kj::throwFatalException(toException(fail(ErrorCode::InvalidArgument, std::move(message))));
  std::abort();
}

class Check {
 public:
  Check(const Peer& peer, bool takesOwners) : peer_(peer), takesOwners_(takesOwners) {}

  void request(DynamicStruct::Builder request) {
    KJ_IF_MAYBE (question, request.which()) {
      field(request, *question, "");
    }
  }

 private:
  void structure(DynamicStruct::Builder value, const std::string& path) {
    for (const auto one : value.getSchema().getNonUnionFields()) field(value, one, path);
    if (value.getSchema().getUnionFields().size() > 0) {
      KJ_IF_MAYBE (active, value.which()) {
        field(value, *active, path);
      } else {
        refuse(path + ": this daemon does not know it");
      }
    }
    if (value.getSchema() == capnp::Schema::from<schema::TaskSpec>()) {
      owner(value.as<schema::TaskSpec>());
    }
  }

  void field(DynamicStruct::Builder in, capnp::StructSchema::Field field, const std::string& path) {
    // A struct that was left out is looked at too: it may hold the task whose owner this is.
    if (!field.getType().isStruct() && !in.has(field)) return;
    const std::string name =
        (path.empty() ? "" : path + ".") + std::string(view(field.getProto().getName()));
    value(in.get(field), name);
  }

  void value(DynamicValue::Builder value, const std::string& path) {
    switch (value.getType()) {
      case DynamicValue::TEXT:
        if (value.as<capnp::Text>().size() > kTextMax) {
          refuse(path + " has at most " + std::to_string(kTextMax) + " bytes");
        }
        return;
      case DynamicValue::DATA:
        if (value.as<capnp::Data>().size() <= kTextMax) return;
        refuse(path + " has at most " + std::to_string(kTextMax) + " bytes");
      case DynamicValue::ENUM:
        if (value.as<capnp::DynamicEnum>().getEnumerant() == nullptr) {
          refuse(path + ": this daemon does not know it");
        }
        return;
      case DynamicValue::STRUCT:
        structure(value.as<DynamicStruct>(), path);
        return;
      case DynamicValue::LIST: {
        auto list = value.as<capnp::DynamicList>();
        if (list.size() > kEntriesMax) {
          refuse(path + ": at most " + std::to_string(kEntriesMax) + " may be named");
        }
        for (kj::uint i = 0; i < list.size(); ++i) this->value(list[i], path);
        return;
      }
      default:
        return;
    }
  }

  void owner(schema::TaskSpec::Builder spec) {
    spec.setClusterTask(0);  // these two are the member's to set
    spec.setClusterEpoch(0);
    if (!peer_.mayChange) spec.setOwnerUid(peer_.uid);
    const std::uint32_t pid = spec.getOwnerPid();
    if (pid == 0) return;
    if (!takesOwners_) {
      refuse(
          "ownerPid: only a process on the task's own node can own it, and only that node's "
          "unix socket takes one");
    }
    if (spec.getOwnerStart() != 0) return;
    const auto start = processStart(pid);
    if (!start) refuse("ownerPid " + std::to_string(pid) + " does not run here");
    spec.setOwnerStart(*start);
  }

  const Peer& peer_;
  const bool takesOwners_;
};

}  // namespace

std::string checkedText(capnp::Text::Reader text, const char* what) {
  if (text.size() > kTextMax) {
    refuse(std::string(what) + " has at most " + std::to_string(kTextMax) + " bytes");
  }
  return std::string(view(text));
}

void copyQuestion(DynamicStruct::Reader from, DynamicStruct::Builder to) {
  KJ_IF_MAYBE (question, from.which()) {
    to.set(*question, from.get(*question));
  } else {
    kj::throwFatalException(
        toException(fail(ErrorCode::Unsupported, "this question is of a later version")));
  }
  KJ_IF_MAYBE (page, from.getSchema().findFieldByName("page")) {
    if (from.has(*page)) to.set(*page, from.get(*page));
  }
}

void checkRequest(DynamicStruct::Builder request, const Peer& peer, bool takesOwners) {
  Check(peer, takesOwners).request(request);
}

}  // namespace qgpu
