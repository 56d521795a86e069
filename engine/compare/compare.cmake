# What `mayfly compare` runs.
mayfly_library(engine_compare
  SOURCES compare/compare.cpp compare/compare_plan.cpp compare/compare_report.cpp
          compare/run_result.cpp compare/svg_chart.cpp
  PUBLIC mayfly_engine_config mayfly_nn
  PRIVATE mayfly_engine mayfly_engine_bench fmt::fmt Boost::json)
