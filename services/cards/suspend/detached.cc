#include "services/cards/suspend/aside.h"

#include <system_error>
#include <thread>
#include <utility>

namespace qgpu::suspend {

bool aside(std::function<void()> call) {
  try {
    std::thread(std::move(call)).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace qgpu::suspend
