#pragma once
// The same as restoreFile() (restore.h) where schedulers share an etcd. Who restores is seated
// meanwhile, so that no scheduler acts on half of it.

#include <string>

#include "runtime/result.h"
#include "services/etcd/etcd_options.h"
#include "store/row_copy.h"

namespace qgpu {

// Conflict: a scheduler acts. Waits for a seat that nobody gave back, and so for some seconds.
Status restoreEtcd(const RowCopy& copy, const EtcdOptions& etcd, const std::string& hostname);

}  // namespace qgpu
