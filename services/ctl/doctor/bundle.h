#pragma once
// The report of `doctor --bundle FILE`, for somebody who does not sit at the machine: what doctor
// found, the machine's kernel and driver, and of each daemon here what it answers, its events of
// the last hour, its configuration and its metrics.
//
// It is one file of text, so that whoever sends it can look it over first with what they have, and
// no reader unpacks anything. Tokens, keys and what tasks have in their environment are not in it:
// nothing asks for them, members of answers that are called so are left out, and so is what looks
// like one, wherever it stands.

#include <string>
#include <string_view>

#include "runtime/result.h"
#include "services/ctl/answers/document.h"
#include "services/ctl/doctor/doctor.h"

namespace qgpu::ctl {

// `version`: of this program. What can't be had is said where it would stand.
std::string reportOf(const DoctorOptions& options, const Diagnosis& diagnosis,
                     const std::string& version);

// A new file for this user alone. AlreadyExists, Unavailable: with the path.
Status writeReport(const std::string& path, const std::string& text);

// A daemon's document, an entry of its lists a line, without members that hold secrets.
std::string tellable(Value document);

// Without private keys and whatever is as long and random as a token.
std::string withoutSecrets(std::string_view text);

}  // namespace qgpu::ctl
