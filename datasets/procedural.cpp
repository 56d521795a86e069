#include "datasets/readers.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/parse.hpp"
#include "datasets/core/shape_image.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kDefaultSamples = 20'000;
constexpr std::uint64_t kSamplesMax = std::uint64_t{1} << 31;

class ShapeSet final : public Dataset {
 public:
  ShapeSet(std::uint64_t seed, ShapePart part, std::uint64_t count)
      : seed_(seed), part_(part), count_(count) {}

  [[nodiscard]] std::size_t size() const override { return count_; }
  [[nodiscard]] int image_size() const override { return kShapeImageSize; }
  [[nodiscard]] Result<void> read(std::size_t index,
                                  std::span<std::uint8_t> pixels) const override {
    ENSURE(index < count_, "the sample is in the data set");
    render_shape_image(seed_, part_, index, pixels);
    return {};
  }
  [[nodiscard]] std::uint16_t label(std::size_t index) const override { return shape_label(index); }

 private:
  std::uint64_t seed_;
  ShapePart part_;
  std::uint64_t count_;
};

Digest content_digest(std::uint64_t seed, std::uint64_t count) {
  Digester digester;
  digester.add(std::as_bytes(std::span<const char>("mayfly shape images")));
  digester.add_value(kShapeImageVersion);
  digester.add_value(seed);
  digester.add_value(count);
  return digester.finish();
}

}  // namespace

DatasetPair make_procedural(std::uint64_t train_count, std::uint64_t seed) {
  const std::uint64_t test_count = std::clamp<std::uint64_t>(train_count / 5, 1'000, 10'000);
  DatasetPair pair;
  pair.name = "procedural";
  pair.classes = kShapeClasses;
  pair.class_names.assign(std::begin(kShapeNames), std::end(kShapeNames));
  pair.mean = {0.5F, 0.5F, 0.5F};
  pair.deviation = {0.29F, 0.29F, 0.29F};
  pair.train = std::make_shared<ShapeSet>(seed, ShapePart::kTrain, train_count);
  pair.test = std::make_shared<ShapeSet>(seed, ShapePart::kTest, test_count);
  pair.digest = content_digest(seed, train_count);
  pair.test_digest = pair.digest;  // it follows from the same numbers
  return pair;
}

Result<DatasetPair> open_procedural(const std::string& spec, std::uint64_t seed) {
  const std::size_t colon = spec.find(':');
  if (colon == std::string::npos) {
    return make_procedural(kDefaultSamples, seed);
  }
  const std::string text = spec.substr(colon + 1);
  const auto count = number_in<std::uint64_t>(text, 1, kSamplesMax);
  if (!count) {
    return Error{Errc::kInvalidInput, "'" + spec + "': expected procedural:SAMPLES with 1 to " +
                                          std::to_string(kSamplesMax) + " samples"};
  }
  return make_procedural(*count, seed);
}

}  // namespace mayfly::datasets
