#pragma once
// Answers of the daemon as a person reads them. Pure: a document in, text out; a field that is not
// there (an older or newer daemon) reads as empty or 0.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/api/commands/commands.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/names.h"

namespace qgpu::ctl {

// True for a task that has whole cards, and so all of their memory.
bool isWhole(Value task);

// Tables have short names of cards; wide ones whole ids, and more columns.
struct Style {
  bool wide = false;
  CardNames cards{};
};

// The table or sentence for an answer, as its command's row has it; its error where it said no.
Result<std::string> viewOf(Shown shown, const Answer& answer, const Style& style = {});

// The ids of a list of nodes, cards or tasks, one a line; those of a cluster's cards as NODE/ID.
std::string idsOf(Shown shown, const Answer& answer);

// What a shell can `eval` of an answer's environment: a quoted export a line; nothing where the
// task waits, or where a name is none that a shell takes.
std::string exportsOf(const Answer& answer);

// One line of `events`, from an event object.
std::string eventLine(Value event, const Style& style = {});

}  // namespace qgpu::ctl
