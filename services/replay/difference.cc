#include "services/replay/difference.h"

#include <capnp/dynamic.h>
#include <kj/string.h>
#include <optional>

namespace qgpu {
namespace {

constexpr std::size_t kValueMax = 200;  // characters of a value that are shown

using Found = std::optional<std::string>;

std::string shown(capnp::DynamicValue::Reader value) {
  std::string text = kj::str(value).cStr();
  if (text.size() > kValueMax) text = text.substr(0, kValueMax) + "...";
  return text;
}

std::string nameOf(capnp::StructSchema::Field field) {
  return field.getProto().getName().cStr();
}

std::string memberOf(capnp::DynamicStruct::Reader reader) {
  KJ_IF_MAYBE (chosen, reader.which()) return nameOf(*chosen);
  return "nothing that is known";
}

std::string differs(const std::string& path, const std::string& was, const std::string& is) {
  return path + ": recorded " + was + ", now " + is;
}

Found compare(capnp::DynamicValue::Reader was, capnp::DynamicValue::Reader is,
              const std::string& path);

Found compareFields(capnp::DynamicStruct::Reader was, capnp::DynamicStruct::Reader is,
                    const std::string& path) {
  const auto at = [&](capnp::StructSchema::Field field) {
    return compare(was.get(field), is.get(field),
                   (path.empty() ? path : path + ".") + nameOf(field));
  };
  for (const auto field : was.getSchema().getNonUnionFields()) {
    if (Found found = at(field)) return found;
  }
  const std::string member = memberOf(was);
  if (member != memberOf(is)) return differs(path, member, memberOf(is));
  KJ_IF_MAYBE (chosen, was.which()) return at(*chosen);
  return std::nullopt;
}

Found compareEntries(capnp::DynamicList::Reader was, capnp::DynamicList::Reader is,
                     const std::string& path) {
  for (unsigned i = 0; i < was.size() && i < is.size(); ++i) {
    if (Found found = compare(was[i], is[i], path + "[" + std::to_string(i) + "]")) return found;
  }
  if (was.size() == is.size()) return std::nullopt;
  return differs(path, std::to_string(was.size()) + " entries", std::to_string(is.size()));
}

Found compare(capnp::DynamicValue::Reader was, capnp::DynamicValue::Reader is,
              const std::string& path) {
  if (was.getType() == capnp::DynamicValue::STRUCT) {
    return compareFields(was.as<capnp::DynamicStruct>(), is.as<capnp::DynamicStruct>(), path);
  }
  if (was.getType() == capnp::DynamicValue::LIST) {
    return compareEntries(was.as<capnp::DynamicList>(), is.as<capnp::DynamicList>(), path);
  }
  if (kj::str(was) == kj::str(is)) return std::nullopt;
  return differs(path, shown(was), shown(is));
}

std::string actor(std::uint32_t id) {
  return "actor " + std::to_string(id);
}

std::string rowOf(schema::KeyedRow::Reader row) {
  return memberOf(capnp::toDynamic(row.getRow())) + " " + std::to_string(row.getId());
}

}  // namespace

// A union in a union says more.
std::string kindOf(schema::Envelope::Reader message) {
  const capnp::DynamicStruct::Reader outer = capnp::toDynamic(message);
  std::string kind = memberOf(outer);
  KJ_IF_MAYBE (chosen, outer.which()) {
    const auto inner = outer.get(*chosen);
    if (inner.getType() != capnp::DynamicValue::STRUCT) return kind;
    const auto within = inner.as<capnp::DynamicStruct>();
    if (within.getSchema().getUnionFields().size() > 0) kind += "." + memberOf(within);
  }
  return kind;
}

std::string inWords(schema::Recorded::Reader record) {
  switch (record.which()) {
    case schema::Recorded::SENT: {
      const auto sent = record.getSent();
      return "sends " + kindOf(sent.getMessage()) + " to " + actor(sent.getTo());
    }
    case schema::Recorded::REFUSED:
      return "finds the mailbox of " + actor(record.getRefused()) + " full";
    case schema::Recorded::TIMER:
      return "sets a timer of " + std::to_string(record.getTimer().getDelayNs()) + " ns";
    case schema::Recorded::CANCELLED:
      return "cancels timer " + std::to_string(record.getCancelled());
    case schema::Recorded::STORED:
      return "stores " + rowOf(record.getStored());
    case schema::Recorded::BEGAN:
    case schema::Recorded::ROW:
    case schema::Recorded::TURN:
    case schema::Recorded::ENDED:
      break;
  }
  return "does nothing more";
}

std::string differenceOf(schema::Recorded::Reader recorded, schema::Recorded::Reader now) {
  const std::string was = inWords(recorded), is = inWords(now);
  if (was != is) return "recorded, it " + was + "; now it " + is;
  const Found found = compare(capnp::toDynamic(recorded), capnp::toDynamic(now), "");
  return "it " + is + ", and " + found.value_or("its bytes are others");
}

}  // namespace qgpu
