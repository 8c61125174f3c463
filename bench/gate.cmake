# What libqgpu.so costs a launch while the gate is open: the core alone, and the whole layer.
set(guest_dir ${CMAKE_SOURCE_DIR}/services/guest)
add_executable(bench_gate
  bench_gate.cc
  ${CMAKE_SOURCE_DIR}/tests/unit/fake_manager.cc
  ${guest_dir}/attach.cc ${guest_dir}/channels.cc ${guest_dir}/driver_files.cc
  ${guest_dir}/freeze.cc ${guest_dir}/gate.cc ${guest_dir}/lending.cc ${guest_dir}/quota.cc
  ${guest_dir}/real_loader.cc ${guest_dir}/rm_card.cc
  ${guest_dir}/rm_decode.cc ${guest_dir}/rm_files.cc ${guest_dir}/rm_ioctl.cc
  ${guest_dir}/rm_objects.cc ${guest_dir}/sys.cc ${guest_dir}/timeslice.cc ${guest_dir}/token.cc
)
target_link_libraries(bench_gate PRIVATE qgpu_flags Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(bench_gate PRIVATE QGPU_GUEST_LIBRARY="$<TARGET_FILE:qgpu_guest>")
add_dependencies(bench_gate qgpu_guest)
