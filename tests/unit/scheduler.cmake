# The scheduler of a cluster: its cores, and the actor in the deterministic fixture.
qgpu_test(membership_test
  SOURCES membership_test.cc wait_queue_test.cc
  LIBS qgpu_cores
  LABELS unit)
qgpu_test(scheduler_actor_test
  SOURCES scheduler_actor_test.cc scheduler_chaos_test.cc scheduler_parts_test.cc
    scheduler_plans_test.cc scheduler_requests_test.cc scheduler_restart_test.cc
    scheduler_returns_test.cc scheduler_waiting_test.cc scheduler_world.cc
  LIBS qgpu_actors qgpu_testing
  LABELS unit)
