#pragma once
// Histories of cards in the Trace Event Format, which Perfetto and chrome://tracing open: cards are
// processes, tasks are threads, spans are complete events, and an online task's submit is tied to
// the gate that was shut for it by a flow. Pure.

#include <string>
#include <vector>

#include "services/ctl/trace/card_history.h"

namespace qgpu::ctl {

std::string traceJson(const std::vector<CardHistory>& cards);

const char* spanName(Span::Kind kind);

}  // namespace qgpu::ctl
