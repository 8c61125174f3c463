# The actors and the ledger, in the deterministic fixture.
qgpu_test(ledger_test SOURCES ledger_test.cc LIBS qgpu_actors LABELS unit)
qgpu_test(actors_test
  SOURCES actors_together_test.cc actors_world.cc card_actor_test.cc durable_shell_test.cc
    node_actor_test.cc member_actor_test.cc member_order_test.cc member_world.cc
    node_restart_test.cc task_actor_test.cc
  LIBS qgpu_actors qgpu_testing
  LABELS unit)
