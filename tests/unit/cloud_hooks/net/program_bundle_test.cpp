#include "cloud_hooks/bundle/program_bundle.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace mayfly::cloud_hooks {
namespace {

namespace fs = std::filesystem;

TEST(ProgramBundle, IsAskedForItsModuleHoweverManyFilesOfAUserItHas) {
  std::string pattern = (fs::temp_directory_path() / "mayfly-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  const std::string long_name(200, 'x');
  const fs::path deep = folder / "mayfly/program" / long_name / long_name / long_name / long_name;
  fs::create_directories(deep);
  fs::create_directories(folder / "mayfly/bin");
  for (int i = 0; i < 1500; ++i) {  // more than 1 MiB of names
    std::ofstream(deep / std::to_string(i)).put('x');
  }
  const auto pack = [&folder](const std::string& name) {
    const std::string command =
        "cd '" + folder.string() + "' && tar -czf " + name + " --sort=name mayfly";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return (folder / name).string();
  };
  const Result<bool> without = has_cuda_module(pack("without"));
  ASSERT_TRUE(without.ok()) << without.error().detail;
  EXPECT_FALSE(without.value());
  std::ofstream(folder / "mayfly/bin/libmayfly_cuda.so").put('x');
  const Result<bool> with = has_cuda_module(pack("with"));
  ASSERT_TRUE(with.ok()) << with.error().detail;
  EXPECT_TRUE(with.value());
  EXPECT_FALSE(has_cuda_module((folder / "nothing").string()).ok());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
