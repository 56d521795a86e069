mayfly_test(unit_engine_trainer LABEL unit
  SOURCES trainer/memory_hub.cpp trainer/trainer_test.cpp trainer/training_world.cpp
  LIBS mayfly_engine TIMEOUT 300 LONG)
