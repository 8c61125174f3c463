#pragma once
// Answers of the daemon as a person reads them. Pure: JSON in, text out; a field that is not there
// (an older or newer daemon) reads as empty or 0.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "services/api/commands/commands.h"
#include "services/ctl/client.h"

namespace qgpu::ctl {

std::uint64_t numberOf(simdjson::dom::element object, std::string_view key);
std::string textOf(simdjson::dom::element object, std::string_view key);
bool flagOf(simdjson::dom::element object, std::string_view key);
std::vector<simdjson::dom::element> listOf(simdjson::dom::element object, std::string_view key);

// The table or sentence for an answer, as its command's row has it; its error where it said no.
Result<std::string> viewOf(Shown shown, const Answer& answer);

// One line of `events`, from an event object.
std::string eventLine(simdjson::dom::element event);

}  // namespace qgpu::ctl
