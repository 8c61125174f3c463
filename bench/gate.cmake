# What libqgpu.so costs a launch while the gate is open: the core alone, and the whole layer.
add_executable(bench_gate
  bench_gate.cc
  ${CMAKE_SOURCE_DIR}/tests/unit/services/guest/fake_manager.cc
)
target_link_libraries(bench_gate PRIVATE qgpu_flags qgpu_guest_core qgpu_testing Threads::Threads
  ${CMAKE_DL_LIBS})
target_compile_definitions(bench_gate PRIVATE QGPU_GUEST_LIBRARY="$<TARGET_FILE:qgpu_guest>")
add_dependencies(bench_gate qgpu_guest)
