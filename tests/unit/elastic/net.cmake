mayfly_test(unit_elastic_net LABEL unit
  SOURCES flight_recorder_test.cpp frame_test.cpp job_token_test.cpp member_place_test.cpp
          progress_board_test.cpp
          reconnect_test.cpp tls_link_test.cpp view_log_file_test.cpp
  LIBS mayfly_elastic_net)
