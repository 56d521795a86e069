#include <gmock/gmock.h>

#include <boost/json.hpp>

#include "tests/unit/cli/cli_fixture.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class InspectCommand : public CliTest {
 protected:
  boost::json::object json(std::vector<std::string> words) {
    words.emplace_back("--json");
    EXPECT_EQ(run(words), 0) << err();
    return boost::json::parse(out()).as_object();
  }
};

TEST_F(InspectCommand, KernelsListsEveryConvolution) {
  EXPECT_EQ(run({"inspect", "--kernels"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("resnet20 at 32x32, 10 classes"));
  EXPECT_THAT(out(), HasSubstr("layer3.2.conv2.weight"));
  const auto network = json({"inspect", "--kernels", "--model", "resnet18"});
  EXPECT_EQ(network.at("classes").as_int64(), 1000);
  EXPECT_EQ(network.at("image_size").as_int64(), 224);
  const auto& layers = network.at("layers").as_array();
  ASSERT_EQ(layers.size(), 20u);
  EXPECT_EQ(layers[0].at("kernel_size").as_int64(), 7);
  EXPECT_EQ(layers[0].at("kernel").as_string(), "direct");
}

TEST_F(InspectCommand, TheKernelsCanBeChosen) {
  EXPECT_EQ(run({"inspect", "--kernels", "--conv-kernels", "direct"}), 0) << err();
  EXPECT_THAT(out(), Not(HasSubstr("winograd")));
  EXPECT_EQ(run({"inspect", "--kernels", "--conv-kernels", "auto"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("winograd"));
}

TEST_F(InspectCommand, MemorySharesAndStaysInsideTheBlock) {
  const auto plan = json({"inspect", "--memory", "--microbatch", "4"});
  const std::int64_t total = plan.at("total_bytes").as_int64();
  EXPECT_LT(total, plan.at("bytes_without_sharing").as_int64());
  ASSERT_GT(plan.at("tensors").as_array().size(), 40u);
  for (const auto& tensor : plan.at("tensors").as_array()) {
    EXPECT_LE(tensor.at("offset").as_int64() + tensor.at("bytes").as_int64(), total);
  }
  EXPECT_EQ(run({"inspect", "--memory", "--microbatch", "4"}), 0);
  EXPECT_THAT(out(), HasSubstr("f18 - b18"));
}

TEST_F(InspectCommand, BadUsageIsOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"inspect"}, "needs CHECKPOINT"},
      {{"inspect", "--kernels", "--memory"}, "one at a time"},
      {{"inspect", "--kernels", "runs/a"}, "unexpected argument 'runs/a'"},
      {{"inspect", "runs/a", "--model", "resnet20"}, "--model needs --kernels or --memory"},
      {{"inspect", "--kernels", "--model", "resnet21"}, "did you mean 'resnet20'?"},
      {{"inspect", "--memory", "--dtype", "fp8"},
       "dtype 'fp8' is not known (known: fp32, bf16, fp16)"},
      {{"inspect", "--kernels", "--isa", "mmx"}, "isa 'mmx' is not known"},
      {{"inspect", "--kernels", "--conv-kernels", "fft"}, "conv_kernels 'fft' is not known"},
      {{"inspect", "--kernels", "--image-size", "33"}, "multiples of 4"},
      {{"inspect", "--memory", "--microbatch", "5000"}, "1 to 4096 are possible"},
      {{"inspect", "--kernel"}, "did you mean '--kernels'?"},
  };
  for (const auto& [words, expected] : cases) {
    EXPECT_EQ(run(words), 2) << expected;
    const std::string text = err();
    EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_EQ(out(), "");
  }
}

}  // namespace
}  // namespace mayfly::cli
