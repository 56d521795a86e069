# What the rank processes of `mayfly bench allreduce` share, ours and the peers in benchmarks/; and
# the names of the contestants, for the command line.
mayfly_library(engine_bench_rank
  SOURCES bench/group/contestants.cpp bench/group/line_socket.cpp bench/group/rank_session.cpp
          bench/group/reduction_check.cpp bench/group/shared_barrier.cpp
  PUBLIC mayfly_base mayfly_collectives_plan
  PRIVATE Threads::Threads)

# What `mayfly bench` runs.
mayfly_library(engine_bench
  SOURCES bench/elastic/detect_bench.cpp bench/elastic/event_cycle.cpp
          bench/elastic/event_report.cpp bench/elastic/goodput_bench.cpp
          bench/elastic/goodput_model.cpp bench/elastic/join_bench.cpp
          bench/elastic/network_namespaces.cpp bench/elastic/own_core.cpp
          bench/elastic/recovery_bench.cpp bench/elastic/recovery_times.cpp
          bench/elastic/spot_trace.cpp bench/elastic/step_log.cpp
          bench/group/allreduce_bench.cpp bench/group/allreduce_report.cpp
          bench/group/control_hub.cpp bench/group/control_store.cpp bench/group/group_rank.cpp
          bench/group/rank_team.cpp bench/group/reform_bench.cpp bench/group/reform_rank.cpp
          bench/group/reform_report.cpp bench/step/engines_bench.cpp
          bench/step/gpu_step_bench.cpp bench/step/machine_peak.cpp
          bench/step/step_bench.cpp bench/step/step_loop.cpp bench/step/step_report.cpp
          bench/step/step_timer.cpp bench/step/step_work.cpp bench/bench_output.cpp
          bench/data_bench.cpp bench/machine_facts.cpp bench/ps_bench.cpp
          bench/ps_cluster.cpp
  PUBLIC mayfly_engine mayfly_engine_bench_rank
  PRIVATE fmt::fmt Threads::Threads)
