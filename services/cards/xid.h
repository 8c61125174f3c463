#pragma once
// What NVIDIA's driver calls an Xid: the number under which it reports that something went wrong
// with a card. The class says whose fault it is, and so what follows: a program's own leaves the
// card well, any other takes it out of use.

#include <cstdint>
#include <string>

namespace qgpu {

enum class XidClass : std::uint8_t { Program, Memory, Link, Driver, Card };

// Of a number that is not known here: Card.
XidClass xidClass(std::uint64_t xid);
// "program", "memory", ...
const char* xidClassName(XidClass kind);
// "Xid 79 (card): it fell off the bus".
std::string xidText(std::uint64_t xid);

}  // namespace qgpu
