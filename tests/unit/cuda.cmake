# NVIDIA cards without one: our declarations beside the toolkit's header where there is one, the
# stand-in driver itself, and libqgpu.so in programs that run on it.
find_file(QGPU_CUDA_HEADER cuda.h PATHS /usr/local/cuda/include)
qgpu_test(cuda_abi_test SOURCES cuda_abi_test.cc LABELS unit)
target_compile_definitions(cuda_abi_test PRIVATE
  QGPU_CUDA_SYMBOLS="${CMAKE_CURRENT_SOURCE_DIR}/cuda_symbols.txt")
if(QGPU_CUDA_HEADER)
  get_filename_component(cuda_include ${QGPU_CUDA_HEADER} DIRECTORY)
  target_include_directories(cuda_abi_test SYSTEM PRIVATE ${cuda_include})
  target_compile_definitions(cuda_abi_test PRIVATE QGPU_CUDA_HEADER="${QGPU_CUDA_HEADER}")
endif()

qgpu_test(cuda_stand_in_test SOURCES cuda_stand_in_test.cc
  LIBS qgpu_stand_in Threads::Threads ${CMAKE_DL_LIBS} LABELS unit)
