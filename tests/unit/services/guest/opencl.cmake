# libqgpu.so in real programs on a real driver (PoCL), under a manager that a test plays. Either has
# sanitizers where the other has: the program is ours there, and its runtime is the library's too.
add_executable(guest_program guest_program.cc)
target_link_libraries(guest_program PRIVATE OpenCL Threads::Threads)
set(library qgpu_guest_sanitized)
if(NOT TARGET qgpu_guest_sanitized)
  set(library qgpu_guest_testing)
  target_compile_options(guest_program PRIVATE -fno-sanitize=all)
  target_link_options(guest_program PRIVATE -fno-sanitize=all)
endif()

add_library(guest_notify_layer MODULE guest_notify_layer.cc)
target_compile_options(guest_notify_layer PRIVATE -fno-sanitize=all)
target_link_options(guest_notify_layer PRIVATE -fno-sanitize=all)

add_library(guest_fixture STATIC fake_manager.cc guest_child.cc)
target_link_libraries(guest_fixture PUBLIC qgpu_testing PRIVATE qgpu_flags)
target_compile_definitions(guest_fixture PUBLIC
  QGPU_GUEST_PROGRAM="$<TARGET_FILE:guest_program>"
  QGPU_GUEST_NOTIFY_LAYER="$<TARGET_FILE:guest_notify_layer>"
  QGPU_GUEST_LIBRARY="$<TARGET_FILE:${library}>"
  QGPU_GUEST_SANITIZED=$<BOOL:$<TARGET_EXISTS:qgpu_guest_sanitized>>)
add_dependencies(guest_fixture guest_program guest_notify_layer ${library})

# They compete for this machine's few processors with their own kernels.
set(plain PLAIN)
if(TARGET qgpu_guest_sanitized)
  set(plain)
endif()
qgpu_test(guest_gate_test ${plain}
  SOURCES gate/guest_freeze_test.cc gate/guest_gate_test.cc gate/guest_link_test.cc
    opencl/guest_memory_test.cc
  LIBS guest_fixture LABELS unit threads
  TIMING GuestGate.EachWokenLaunchWakesTheNext GuestGate.EachLaunchThatLearnsTheEndWakesTheNext
    GuestGate.TheWindowBoundsWhatIsInFlightOnlyWhileContended)
# Some of its programs are the distribution's.
qgpu_test(guest_front_test PLAIN SOURCES opencl/guest_front_test.cc
  LIBS guest_fixture LABELS unit threads)
qgpu_test_properties(guest_gate_test RESOURCE_LOCK cpu_card)
qgpu_test_properties(guest_front_test RESOURCE_LOCK cpu_card)

if(TARGET qgpu_guest_sanitized)  # PoCL keeps some memory to its end
  set_property(TEST guest_gate_test guest_gate_test_timing PROPERTY ENVIRONMENT
    ASAN_OPTIONS=detect_leaks=0)
endif()
