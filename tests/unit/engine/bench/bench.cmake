mayfly_test(unit_engine_bench LABEL unit
  SOURCES bench/allreduce_report_test.cpp bench/contestants_test.cpp
          bench/control_hub_test.cpp bench/elastic_figures_test.cpp
          bench/engines_bench_test.cpp bench/gpu_step_bench_test.cpp
          bench/line_socket_test.cpp
          bench/reduction_check_test.cpp bench/reform_report_test.cpp
          bench/shared_barrier_test.cpp bench/spot_trace_test.cpp
          bench/step_bench_test.cpp bench/step_report_test.cpp bench/step_timer_test.cpp
  LIBS mayfly_engine_bench Boost::json)
