mayfly_test(unit_engine_compare LABEL unit
  SOURCES compare/compare_plan_test.cpp compare/compare_report_test.cpp
          compare/run_result_test.cpp compare/svg_chart_test.cpp
          compare/switch_search_test.cpp
  LIBS mayfly_engine_compare)
