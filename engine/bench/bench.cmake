# What the rank processes of `mayfly bench allreduce` share, ours and the peers in benchmarks/; and
# the names of the contestants, for the command line.
mayfly_library(engine_bench_rank
  SOURCES bench/contestants.cpp bench/line_socket.cpp bench/rank_session.cpp
          bench/reduction_check.cpp bench/shared_barrier.cpp
  PUBLIC mayfly_base mayfly_collectives_plan
  PRIVATE Threads::Threads)

# What `mayfly bench` runs.
mayfly_library(engine_bench
  SOURCES bench/allreduce_bench.cpp bench/allreduce_report.cpp bench/bench_output.cpp
          bench/child_process.cpp bench/control_hub.cpp bench/control_store.cpp
          bench/data_bench.cpp bench/detect_bench.cpp bench/event_cycle.cpp bench/event_report.cpp
          bench/goodput_bench.cpp bench/goodput_model.cpp bench/gpu_step_bench.cpp
          bench/group_rank.cpp
          bench/join_bench.cpp bench/machine_facts.cpp bench/machine_peak.cpp
          bench/network_namespaces.cpp bench/ps_bench.cpp bench/ps_cluster.cpp
          bench/rank_team.cpp bench/recovery_bench.cpp
          bench/recovery_times.cpp bench/reform_bench.cpp bench/reform_rank.cpp
          bench/reform_report.cpp bench/spot_trace.cpp bench/statistics.cpp bench/step_bench.cpp
          bench/step_log.cpp bench/step_loop.cpp bench/step_report.cpp bench/step_timer.cpp
  PUBLIC mayfly_engine mayfly_engine_bench_rank
  PRIVATE fmt::fmt Threads::Threads)
