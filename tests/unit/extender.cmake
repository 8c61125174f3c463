# What kube-scheduler and pods say, and what is answered.
qgpu_test(extender_wire_test
  SOURCES extender_wire_test.cc pod_rules_test.cc
  LIBS qgpu_extender LABELS unit)
qgpu_test(pod_fit_test SOURCES pod_fit_test.cc LIBS qgpu_cores LABELS unit)
qgpu_test(pod_verdicts_test SOURCES pod_verdicts_test.cc LIBS qgpu_extender LABELS unit)
qgpu_test(extender_test SOURCES extender_test.cc extender_world.cc waiting_pods_test.cc
  LIBS qgpu_extender qgpu_store qgpu_api_fixture LABELS unit threads)
