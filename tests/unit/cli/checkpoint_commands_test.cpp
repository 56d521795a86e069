#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <fstream>

#include "engine/run/checkpoint_store.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;

class CheckpointCommands : public CliTest {
 protected:
  CheckpointCommands() {
    nn::ModelState state = nn::make_initial_state(model_, 3, 0, 0);
    state.committed = Step{17};
    digest_ = to_string(nn::digest_of(state));
    const auto saved = engine::save_checkpoint(
        folder_ / "checkpoints", nn::encode_checkpoint(model_, state, 3, {{"seed", "3"}}), Step{17},
        1);
    EXPECT_TRUE(saved.ok());
    checkpoint_ = saved.ok() ? saved.value() : "";
  }

  const test_support::TemporaryFolder folder_;
  const nn::Model model_ = nn::make_model("resnet20", 10).value();
  std::string checkpoint_;
  std::string digest_;
};

TEST_F(CheckpointCommands, DigestVerifiesAndPrints) {
  EXPECT_EQ(run({"digest", checkpoint_}), 0) << err();
  EXPECT_EQ(out(), digest_ + "\n");
  EXPECT_EQ(run({"digest", folder_.path(), "--json"}), 0) << err();
  const auto json = boost::json::parse(out()).as_object();
  EXPECT_EQ(json.at("digest").as_string(), digest_.c_str());
  EXPECT_EQ(json.at("step").as_int64(), 17);
}

TEST_F(CheckpointCommands, ADamagedCheckpointIsNamedAndFails) {
  std::fstream file(checkpoint_ + "/" + nn::kModelFile, std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  for (const char* command : {"digest", "eval"}) {
    EXPECT_EQ(run({command, checkpoint_}), 1);
    EXPECT_THAT(err(), HasSubstr(nn::kModelFile));
    EXPECT_EQ(out(), "");
  }
}

TEST_F(CheckpointCommands, InspectListsFilesAndTensors) {
  EXPECT_EQ(run({"inspect", checkpoint_}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("resnet20, 10 classes"));
  EXPECT_THAT(out(), HasSubstr("layer1.0.conv1.weight"));
  EXPECT_THAT(out(), HasSubstr("F32 [16, 16, 3, 3]"));
  EXPECT_EQ(run({"inspect", checkpoint_, "--json"}), 0);
  const auto json = boost::json::parse(out()).as_object();
  EXPECT_EQ(json.at("files").as_array().size(), 3u);
  EXPECT_EQ(json.at("fingerprint").as_object().at("seed").as_string(), "3");
}

TEST_F(CheckpointCommands, EvalNeedsADataSetThatFits) {
  EXPECT_EQ(run({"eval", checkpoint_}), 2);
  EXPECT_THAT(err(), HasSubstr("needs --data"));
  EXPECT_EQ(run({"eval", checkpoint_, "--data", "/nonexistent"}), 2);
  EXPECT_THAT(err(), HasSubstr("/nonexistent"));
  EXPECT_EQ(run({"eval", checkpoint_, "--threads", "some"}), 2);
}

TEST_F(CheckpointCommands, EvalGivesTheSameAnswerOnAnyNumberOfThreads) {
  engine::JobConfig config;
  config.data = "procedural:64";
  std::ofstream(folder_ / "config.toml") << engine::to_toml(config);
  std::vector<std::string> answers;
  for (const char* threads : {"1", "2"}) {
    ASSERT_EQ(run({"eval", folder_.path(), "--threads", threads, "--json"}), 0) << err();
    answers.push_back(out());
  }
  EXPECT_EQ(answers[0], answers[1]);
  const auto json = boost::json::parse(answers[0]).as_object();
  EXPECT_EQ(json.at("step").as_int64(), 17);
  EXPECT_GT(json.at("samples").as_int64(), 0);
  EXPECT_GT(json.at("test_loss").as_double(), 0);
}

}  // namespace
}  // namespace mayfly::cli
