# The rules of the house, over the source tree itself.
qgpu_test(tidy_test PLAIN
  SOURCES tidy_test.cc tidy_pointers.cc tidy_rules.cc tidy_text.cc
  LABELS unit)
target_compile_definitions(tidy_test PRIVATE QGPU_SOURCE_ROOT="${CMAKE_SOURCE_DIR}")
