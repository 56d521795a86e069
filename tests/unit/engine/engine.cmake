mayfly_test(unit_engine LABEL unit
  SOURCES bench/step_bench_test.cpp bench/step_report_test.cpp bench/step_timer_test.cpp
          chaos_plan_test.cpp gradient_sums_test.cpp initial_weights_test.cpp records_test.cpp
          reduction_layout_test.cpp trace_test.cpp
  LIBS mayfly_engine_bench Boost::json)
