#pragma once
// What NVIDIA's driver calls an Xid: the number under which it reports that something went wrong
// with a card. The class says what follows: a program's own fault leaves the card well, a note is
// only told, any other takes the card out of use.
//
// Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, and
// its archive for Volta and older), names as in nverror.h of NVIDIA's open kernel modules. Where
// its immediate action is RESTART_APP, or the fault is an engine's that one program used, it is
// Program; where it is IGNORE and nothing is wrong with what runs, Note; where it is a reset or
// more, the card is ill. Deviations: 38, 63 and 92 are IGNORE there and stay ill here, since
// firmware or memory is no more what it should be until a reset; 109 is a reset there and a
// program's here, as NVIDIA's own device plugin has it.

#include <cstdint>
#include <string>

namespace qgpu {

enum class XidClass : std::uint8_t { Program, Note, Memory, Link, Driver, Card };

// Of a number that is not known here: Card.
XidClass xidClass(std::uint64_t xid);
// "program", "note", "memory", ...
const char* xidClassName(XidClass kind);
// "Xid 79 (card): it fell off the bus".
std::string xidText(std::uint64_t xid);

}  // namespace qgpu
