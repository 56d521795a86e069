# What `mayfly compare` and `mayfly tune-switch` run.
mayfly_library(engine_compare
  SOURCES compare/compare.cpp compare/compare_plan.cpp compare/compare_report.cpp
          compare/run_result.cpp compare/run_set.cpp compare/svg_chart.cpp
          compare/switch_report.cpp compare/switch_search.cpp compare/tune_switch.cpp
  PUBLIC mayfly_engine_config mayfly_nn
  PRIVATE mayfly_engine fmt::fmt Boost::json)
