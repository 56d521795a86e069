# Settings, the run directory and checkpoints on disk: what the command line and the
# engine share. It starts no thread and opens no socket.
mayfly_library(engine_config
  SOURCES config.cpp config_settings.cpp cloud_offers.cpp cloud_provider.cpp config_toml.cpp
          config_validate.cpp checkpoint_store.cpp derived_settings.cpp device_choice.cpp
          injection_plan.cpp json_text.cpp line_file.cpp low_priority.cpp
          run_directory.cpp run_history.cpp
          summary.cpp tensorboard.cpp unfinished_run.cpp parameter_server/ps_settings.cpp
          parameter_server/switch_order.cpp
  PUBLIC mayfly_base mayfly_nn mayfly_elastic_core mayfly_parameter_server_core
         mayfly_cloud_hooks mayfly_cloud_hooks_gce mayfly_cloud_hooks_ec2
  PRIVATE mayfly_cloud_hooks_notice fmt::fmt tomlplusplus::tomlplusplus Boost::json)
