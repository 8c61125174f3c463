#include "services/cards/suspend/detached.h"

#include <system_error>
#include <thread>
#include <utility>

namespace qgpu::suspend {

bool runDetached(std::function<void()> call) {
  try {
    std::thread(std::move(call)).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace qgpu::suspend
