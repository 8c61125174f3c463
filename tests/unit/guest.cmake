# libqgpu.so in real programs on a real driver (PoCL), under a manager that a test plays. The
# library is built without sanitizers, so the programs that load it are, too.
add_executable(guest_program guest_program.cc)
target_link_libraries(guest_program PRIVATE OpenCL Threads::Threads)
target_compile_options(guest_program PRIVATE -fno-sanitize=all)
target_link_options(guest_program PRIVATE -fno-sanitize=all)

add_library(guest_notify_layer MODULE guest_notify_layer.cc)
target_compile_options(guest_notify_layer PRIVATE -fno-sanitize=all)
target_link_options(guest_notify_layer PRIVATE -fno-sanitize=all)

add_library(guest_fixture STATIC fake_manager.cc guest_child.cc)
target_link_libraries(guest_fixture PRIVATE qgpu_flags)
target_compile_definitions(guest_fixture PUBLIC
  QGPU_GUEST_PROGRAM="$<TARGET_FILE:guest_program>"
  QGPU_GUEST_NOTIFY_LAYER="$<TARGET_FILE:guest_notify_layer>"
  QGPU_GUEST_LIBRARY="$<TARGET_FILE:qgpu_guest_testing>")
add_dependencies(guest_fixture guest_program guest_notify_layer qgpu_guest_testing)

qgpu_test(image_bytes_test
  SOURCES image_bytes_test.cc ${CMAKE_SOURCE_DIR}/services/guest/opencl/opencl_images.cc
  LABELS unit)

qgpu_test(visible_cards_test
  SOURCES visible_cards_test.cc ${CMAKE_SOURCE_DIR}/services/guest/gate/visible_cards.cc
    ${CMAKE_SOURCE_DIR}/services/guest/gate/token.cc
  LABELS unit)

# They compete for this machine's few processors with their own kernels.
set(gate_timing GuestGate.EachWokenLaunchWakesTheNext
  GuestGate.EachLaunchThatLearnsTheEndWakesTheNext)
foreach(part gate memory link freeze front)
  set(plain PLAIN)
  if(TARGET qgpu_guest_sanitized AND NOT part STREQUAL "front")
    set(plain)
  endif()
  qgpu_test(guest_${part}_test ${plain} SOURCES guest_${part}_test.cc LIBS guest_fixture
    LABELS unit threads TIMING ${${part}_timing})
  qgpu_test_properties(guest_${part}_test RESOURCE_LOCK cpu_card)
endforeach()

# With sanitizers in this build: the library has them too where its program is ours and loads it as
# a layer. (What is preloaded stands before their runtime.) PoCL keeps some memory to its end.
if(TARGET qgpu_guest_sanitized)
  add_executable(guest_sanitized_program guest_program.cc)
  target_link_libraries(guest_sanitized_program PRIVATE OpenCL Threads::Threads)
  add_dependencies(guest_fixture guest_sanitized_program qgpu_guest_sanitized)
  set(sanitized "QGPU_GUEST_LIBRARY=$<TARGET_FILE:qgpu_guest_sanitized>"
    "QGPU_GUEST_PROGRAM=$<TARGET_FILE:guest_sanitized_program>" "ASAN_OPTIONS=detect_leaks=0")
  set_property(TEST guest_gate_test guest_gate_test_timing guest_memory_test guest_link_test
    guest_freeze_test PROPERTY ENVIRONMENT ${sanitized})
endif()

# The library that is shipped.
qgpu_test(guest_shipped_test PLAIN SOURCES guest_shipped_test.cc LABELS unit)
target_compile_definitions(guest_shipped_test PRIVATE
  QGPU_SHIPPED_LIBRARY="$<TARGET_FILE:qgpu_guest>"
  QGPU_TESTING_LIBRARY="$<TARGET_FILE:qgpu_guest_testing>")
add_dependencies(guest_shipped_test qgpu_guest qgpu_guest_testing)
