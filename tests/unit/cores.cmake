# The pure cores of actors/: behaviour, every small state, and long runs in a closed loop.
qgpu_test(cores_test OPTIMIZED
  SOURCES arbiter_test.cc share_meter_test.cc arbiter_model.cc arbiter_model_test.cc
    arbiter_checker.cc arbiter_explore_test.cc
    tenant_environment_test.cc
  LIBS qgpu_cores
  LABELS unit)
