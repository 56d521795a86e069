#include <gmock/gmock.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "base/file.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/weight_file.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class WeightCommands : public CliTest {
 protected:
  WeightCommands() {
    state_ = nn::make_initial_state(model_, 3, 0, 0);
    state_.committed = Step{17};
    state_.momentum[0] = 1;
    EXPECT_TRUE(engine::save_checkpoint(folder_ / "run",
                                        nn::encode_checkpoint(model_, state_, 3, {}), Step{17}, 1)
                    .ok());
  }

  /// All entries of the folder, so that a test can check that no file is left behind.
  [[nodiscard]] std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      names.push_back(entry.path().string());
    }
    std::ranges::sort(names);
    return names;
  }

  void expect_refused(const std::vector<std::string>& words, const std::string& text) {
    const std::vector<std::string> before = left();
    EXPECT_EQ(run(words), kExitUsage) << out();
    EXPECT_THAT(err(), HasSubstr(text));
    EXPECT_EQ(std::ranges::count(err(), '\n'), 1) << err();
    EXPECT_EQ(left(), before);
  }

  const test_support::TemporaryFolder folder_;
  const std::string file_ = folder_ / "weights.safetensors";
  const nn::Model model_ = nn::make_model("resnet20", 10).value();
  nn::ModelState state_;
};

TEST_F(WeightCommands, ExportedWeightsComeBackAsACheckpointOfStepZero) {
  ASSERT_EQ(run({"export", folder_ / "run", "--output", file_}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("resnet20, 10 classes, step 17"));
  ASSERT_EQ(run({"import", file_, "--model", "resnet20", "--output", folder_ / "new", "--json"}), 0)
      << err();
  const auto json = boost::json::parse(out()).as_object();
  EXPECT_EQ(json.at("path").as_string(), folder_ / "new/step-0");
  EXPECT_EQ(json.at("classes").as_int64(), 10);

  const auto loaded = engine::load_checkpoint(folder_ / "new");
  ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
  const auto back = nn::decode_checkpoint(model_, loaded.value().files);
  ASSERT_TRUE(back.ok()) << back.error().detail;
  EXPECT_EQ(json.at("digest").as_string(), to_string(nn::digest_of(back.value())));
  EXPECT_TRUE(std::ranges::equal(back.value().parameters.span(), state_.parameters.span()));
  EXPECT_TRUE(std::ranges::equal(back.value().statistics.span(), state_.statistics.span()));
  EXPECT_EQ(back.value().momentum[0], 0.0F);
  EXPECT_EQ(back.value().committed, Step{0});
}

TEST_F(WeightCommands, NothingIsOverwritten) {
  ASSERT_EQ(run({"export", folder_ / "run", "--output", file_}), 0) << err();
  expect_refused({"export", folder_ / "run", "--output", file_}, "already exists");
  expect_refused({"import", file_, "--model", "resnet20", "--output", folder_ / "run"},
                 "already exists");
}

TEST_F(WeightCommands, BadInputIsOneLineAndLeavesNothing) {
  ASSERT_EQ(run({"export", folder_ / "run", "--output", file_}), 0) << err();
  const std::string other = folder_ / "other";
  expect_refused({"export", folder_ / "run"}, "export needs --output FILE");
  expect_refused({"export", folder_ / "nix", "--output", other}, "does not exist");
  expect_refused({"import", "--model", "resnet20", "--output", other}, "import needs FILE");
  expect_refused({"import", file_, "--output", other}, "import needs --model NAME");
  expect_refused({"import", file_, "--model", "resnet20"}, "import needs --output FOLDER");
  expect_refused({"import", file_, "--model", "resnet21", "--output", other},
                 "did you mean \"resnet20\"");
  expect_refused({"import", file_, "--model", "resnet32", "--output", other},
                 file_ + ": tensor layer1.3.conv1.weight (and 59 more) of resnet32 is missing");
  expect_refused({"import", file_, "--model", "resnet20", "--classes", "100", "--output", other},
                 "tensor fc.weight: expected F32, F16 or BF16 [100, 64], found F32 [10, 64]");
  expect_refused({"import", file_, "--model", "resnet20", "--classes", "x", "--output", other},
                 "--classes expects a whole number, got 'x'");
}

TEST_F(WeightCommands, TheNameOfAFileMayBeAnyBytes) {
  const std::string odd = folder_ / "caf\xe9.safetensors";
  ASSERT_TRUE(write_file_atomic(odd, nn::encode_weight_file(model_, state_)).ok());
  ASSERT_EQ(run({"import", odd, "--model", "resnet20", "--output", folder_ / "new"}), kExitDone)
      << err();
  EXPECT_EQ(run({"inspect", folder_ / "new"}), kExitDone) << err();
  EXPECT_THAT(out(), HasSubstr("caf?.safetensors"));
}

TEST_F(WeightCommands, AFileThatIsNoSafetensorsIsBadInput) {
  std::ofstream(file_) << "these are no weights";
  expect_refused({"import", file_, "--model", "resnet20", "--output", folder_ / "new"},
                 file_ + ": no safetensors file");
}

}  // namespace
}  // namespace mayfly::cli
