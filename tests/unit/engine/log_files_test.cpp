#include "engine/run/member_logs.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

TEST(LogFiles, ThoseWrittenLastStay) {
  const test_support::TemporaryFolder run;
  keep_newest_logs(run.path(), "flight-member-", 1);  // there is no logs/
  fs::create_directory(run / "logs");
  const auto file = [&](const std::string& name, int age) {
    std::ofstream(run / ("logs/" + name)) << "x";
    fs::last_write_time(run / ("logs/" + name),
                        fs::file_time_type::clock::now() - std::chrono::hours(age));
  };
  file("flight-member-1.log", 1);
  file("flight-member-2.log", 9);
  file("flight-member-10.log", 2);
  file("flight-member-11.log", 3);
  file("flight-coordinator.log", 20);
  file("worker-0.log", 20);
  keep_newest_logs(run.path(), "flight-member-", 2);
  for (const auto& [name, stays] : {std::pair{"flight-member-1.log", true},
                                    {"flight-member-10.log", true},
                                    {"flight-member-2.log", false},
                                    {"flight-member-11.log", false},
                                    {"flight-coordinator.log", true},
                                    {"worker-0.log", true}}) {
    EXPECT_EQ(fs::exists(run / (std::string("logs/") + name)), stays) << name;
  }
}

}  // namespace
}  // namespace mayfly::engine
