# store/: real SQLite on real files, and on a disk in memory that crashes and fills up on demand.
qgpu_test(store_test
  SOURCES store_test.cc
  LIBS qgpu_store LABELS unit threads)
target_compile_definitions(store_test PRIVATE
  QGPU_FIXTURES="${CMAKE_CURRENT_SOURCE_DIR}/fixtures")
qgpu_test(journal_test
  SOURCES journal_test.cc
  LIBS qgpu_store qgpu_store_testing LABELS unit threads)
qgpu_test(store_crash_test
  SOURCES store_crash_test.cc
  LIBS qgpu_store qgpu_store_testing LABELS unit threads)
