# What libqgpu.so costs a CUDA launch, and an ioctl() of others: the same program with it and
# without, on the stand-in driver.
add_library(nothing_ioctl MODULE nothing_ioctl.cc)
target_compile_options(nothing_ioctl PRIVATE -fno-sanitize=all)
target_link_options(nothing_ioctl PRIVATE -fno-sanitize=all)
add_executable(bench_cuda_hook bench_cuda_hook.cc
  ${CMAKE_SOURCE_DIR}/tests/unit/services/guest/fake_manager.cc)
target_link_libraries(bench_cuda_hook PRIVATE
  qgpu_flags qgpu_stand_in qgpu_testing Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(bench_cuda_hook PRIVATE
  QGPU_GUEST_LIBRARY="$<TARGET_FILE:qgpu_guest>"
  QGPU_NOTHING_IOCTL="$<TARGET_FILE:nothing_ioctl>")
add_dependencies(bench_cuda_hook qgpu_guest nothing_ioctl)
