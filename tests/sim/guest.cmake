# Tenants and the attach room by themselves: with a real card actor, without a node.
qgpu_test(sim_guest_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/guest_test.cc
  LIBS qgpu_sim_world LABELS unit)
