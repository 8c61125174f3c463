# Where tasks go in a cluster: rules, ledger, scores and the index that must agree with a scan.
qgpu_test(placement_test
  SOURCES cluster_ledger_test.cc fit_test.cc placement_explain_test.cc placement_index_test.cc
    placement_test.cc
  LIBS qgpu_cores
  LABELS unit)
# What is tried on a copy: whom a task would evict, what would happen if.
qgpu_test(what_if_test
  SOURCES preemption_test.cc what_if_test.cc
  LIBS qgpu_cores
  LABELS unit)
