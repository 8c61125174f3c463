#pragma once
// What a snapshot has in it, for a person and for programs. What it is stands in store/row_copy.h.

#include <string>

#include "services/ctl/answers/document.h"
#include "store/row_copy.h"

namespace qgpu::ctl {

std::string snapshotTable(const std::string& path, const RowCopy& copy);
std::string snapshotJson(const RowCopy& copy);

}  // namespace qgpu::ctl
