#include "nn/weight_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>

namespace mayfly::nn {
namespace {

/// A weight file as a list that a test can change: names, types, shapes and bytes.
struct Entry {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};
using Entries = std::vector<Entry>;

Model model_of(const std::string& name, int classes = 10) {
  return make_model(name, classes).value();
}

/// A state in which all numbers differ and fit 16-bit types.
ModelState numbered_state(const Model& model) {
  ModelState state = make_initial_state(model, 3, 0, 0);
  int next = 0;
  for (auto array : {state.parameters.span(), state.statistics.span()}) {
    for (float& v : array) {
      next = next % 250 + 1;
      v = static_cast<float>(next) / 64;
    }
  }
  state.committed = Step{4711};
  return state;
}

Entries entries_of(const Bytes& file) {
  Entries entries;
  const auto decoded = decode_safetensors(file);
  for (const auto& [name, tensor] : decoded.value()) {
    entries.push_back(
        {name, tensor.type, tensor.shape, Bytes(tensor.bytes.begin(), tensor.bytes.end())});
  }
  return entries;
}

Bytes file_of(const Entries& entries) {
  std::vector<NamedTensor> tensors;
  for (const Entry& entry : entries) {
    tensors.push_back({entry.name, {entry.type, entry.shape, ByteSpan(entry.bytes)}});
  }
  return encode_safetensors(tensors);
}

Entry& entry_named(Entries& entries, const std::string& name) {
  const auto found =
      std::ranges::find_if(entries, [&](const Entry& entry) { return entry.name == name; });
  EXPECT_NE(found, entries.end()) << name;
  return *found;
}

Entries exported(const std::string& model, int classes = 10) {
  const Model described = model_of(model, classes);
  return entries_of(encode_weight_file(described, numbered_state(described)));
}

struct Loaded {
  Result<bool> took_classifier;
  ModelState state;
};

Loaded load(const Model& model, const Entries& entries,
            ClassifierPolicy policy = ClassifierPolicy::kMustFit) {
  Loaded loaded{false, make_initial_state(model, 9, 0, 0)};
  const Bytes file = file_of(entries);
  const auto tensors = read_weight_file(file);
  loaded.took_classifier =
      tensors.ok() ? load_weights(model, tensors.value(), policy, loaded.state) : tensors.error();
  return loaded;
}

std::string error_of(const Model& model, const Entries& entries) {
  const Loaded loaded = load(model, entries, ClassifierPolicy::kOwnIfClassesDiffer);
  EXPECT_FALSE(loaded.took_classifier.ok());
  return loaded.took_classifier.ok() ? "" : loaded.took_classifier.error().detail;
}

/// Rewrites an F32 tensor as one of 16 bits.
void narrow(Entry& entry, const std::string& type,
            const std::function<std::uint16_t(float)>& convert) {
  Bytes narrow(entry.bytes.size() / 2);
  for (std::size_t i = 0; i < entry.bytes.size() / 4; ++i) {
    float value = 0;
    std::memcpy(&value, entry.bytes.data() + 4 * i, 4);
    const std::uint16_t bits = convert(value);
    std::memcpy(narrow.data() + 2 * i, &bits, 2);
  }
  entry.type = type;
  entry.bytes = narrow;
}

TEST(WeightFile, HasAStateDictsNamesAndTypes) {
  Entries entries = exported("resnet18");
  EXPECT_EQ(entries.size(), 122U);  // as torchvision.models.resnet18().state_dict()
  const Entry& counter = entry_named(entries, "layer2.0.downsample.1.num_batches_tracked");
  EXPECT_EQ(counter.type, "I64");
  EXPECT_TRUE(counter.shape.empty());
  std::int64_t steps = 0;
  std::memcpy(&steps, counter.bytes.data(), sizeof steps);
  EXPECT_EQ(steps, 4711);
  EXPECT_EQ(entry_named(entries, "bn1.running_var").type, "F32");
}

TEST(WeightFile, RestoresParametersAndStatisticsAndNothingElse) {
  for (const char* name : {"resnet20", "resnet50"}) {
    const Model model = model_of(name);
    const ModelState state = numbered_state(model);
    const Loaded loaded = load(model, entries_of(encode_weight_file(model, state)));
    ASSERT_TRUE(loaded.took_classifier.ok()) << loaded.took_classifier.error().detail;
    EXPECT_TRUE(loaded.took_classifier.value());
    EXPECT_TRUE(std::ranges::equal(loaded.state.parameters.span(), state.parameters.span()));
    EXPECT_TRUE(std::ranges::equal(loaded.state.statistics.span(), state.statistics.span()));
    EXPECT_EQ(loaded.state.committed, Step{0});
    EXPECT_EQ(loaded.state.momentum[0], 0.0F);
  }
}

TEST(WeightFile, TensorsLieAligned) {
  const Model model = model_of("resnet18", 3);
  const Bytes file = encode_weight_file(model, numbered_state(model));
  const auto tensors = decode_safetensors(file);
  for (const auto& [name, tensor] : tensors.value()) {
    const auto offset = static_cast<std::size_t>(tensor.bytes.data() - file.data());
    EXPECT_EQ(offset % (tensor.type == "I64" ? 8 : 4), 0U) << name;
  }
}

TEST(WeightFile, TakesOtherPeoplesNames) {
  Entries entries = exported("resnet20");
  std::erase_if(entries,
                [](const Entry& entry) { return entry.name.ends_with("num_batches_tracked"); });
  for (Entry& entry : entries) {
    if (entry.name.starts_with("fc.")) {
      entry.name.replace(0, 2, "linear");
    }
    entry.name.insert(0, "module.");
  }
  const Model model = model_of("resnet20");
  const Loaded loaded = load(model, entries);
  ASSERT_TRUE(loaded.took_classifier.ok()) << loaded.took_classifier.error().detail;
  EXPECT_TRUE(
      std::ranges::equal(loaded.state.parameters.span(), numbered_state(model).parameters.span()));
}

TEST(WeightFile, TwoTensorsForOnePlaceAreRefused) {
  Entries entries = exported("resnet20");
  Entry second = entry_named(entries, "fc.bias");
  second.name = "linear.bias";
  entries.push_back(second);
  EXPECT_EQ(error_of(model_of("resnet20"), entries), "two tensors stand for fc.bias");
}

TEST(WeightFile, WidensSixteenBitTypesExactly) {
  const Model model = model_of("resnet20");
  Entries entries = exported("resnet20");
  for (Entry& entry : entries) {
    if (entry.name.ends_with("weight")) {
      narrow(entry, "BF16", [](float v) {
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16);
      });
    } else if (entry.type == "F32") {
      narrow(entry, "F16", [](float v) {  // normal numbers that fit
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
        return static_cast<std::uint16_t>((bits >> 13 & 0x3ffU) | ((bits >> 23) - 112) << 10);
      });
    }
  }
  const Loaded loaded = load(model, entries);
  ASSERT_TRUE(loaded.took_classifier.ok()) << loaded.took_classifier.error().detail;
  EXPECT_TRUE(
      std::ranges::equal(loaded.state.parameters.span(), numbered_state(model).parameters.span()));
  EXPECT_TRUE(
      std::ranges::equal(loaded.state.statistics.span(), numbered_state(model).statistics.span()));
}

TEST(WeightFile, KnowsTheCornersOfHalfPrecision) {
  const Model model = model_of("resnet20");
  Entries entries = exported("resnet20");
  Entry& bias = entry_named(entries, "fc.bias");
  const std::array<std::uint16_t, 10> bits = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400,
                                              0x3c00, 0xc000, 0x7bff, 0x3555, 0x8400};
  const std::array<float, 10> values = {0.0F, -0.0F, 0x1p-24F, -0x3ffp-24F, 0x1p-14F,
                                        1.0F, -2.0F, 65504.0F, 0x1.554p-2F, -0x1p-14F};
  bias.type = "F16";
  bias.bytes.assign(20, std::byte{0});
  std::memcpy(bias.bytes.data(), bits.data(), 20);
  const Loaded loaded = load(model, entries);
  ASSERT_TRUE(loaded.took_classifier.ok()) << loaded.took_classifier.error().detail;
  const float* found = loaded.state.parameters.data() + model.parameters.back().offset;
  EXPECT_EQ(std::memcmp(found, values.data(), sizeof values), 0);
}

TEST(WeightFile, AClassifierOfOtherClassesStaysFreshOnlyForFineTuning) {
  const Entries entries = exported("resnet18", 1000);
  const Bytes file = file_of(entries);
  EXPECT_EQ(classes_of(read_weight_file(file).value()), 1000);
  const Model model = model_of("resnet18", 7);
  const Loaded tuned = load(model, entries, ClassifierPolicy::kOwnIfClassesDiffer);
  ASSERT_TRUE(tuned.took_classifier.ok()) << tuned.took_classifier.error().detail;
  EXPECT_FALSE(tuned.took_classifier.value());
  const ModelState fresh = make_initial_state(model, 9, 0, 0);
  const std::size_t classifier = model.parameters[model.classifier_weight].offset;
  EXPECT_TRUE(std::ranges::equal(tuned.state.parameters.span().subspan(classifier),
                                 fresh.parameters.span().subspan(classifier)));
  EXPECT_NE(tuned.state.parameters[0], fresh.parameters[0]);
  const Loaded strict = load(model, entries);
  EXPECT_EQ(strict.took_classifier.error().detail,
            "tensor fc.weight: expected F32, F16 or BF16 [7, 512], found F32 [1000, 512]");
}

TEST(WeightFile, NamesTheFirstTensorThatIsWrong) {
  const Model model = model_of("resnet20");
  Entries misspelt = exported("resnet20");
  entry_named(misspelt, "layer1.0.conv1.weight").name = "layer1.0.conv1.weigth";
  EXPECT_EQ(error_of(model, misspelt),
            "tensor layer1.0.conv1.weigth is not part of resnet20; did you mean "
            "layer1.0.conv1.weight?");

  Entries incomplete = exported("resnet20");
  std::erase_if(incomplete, [](const Entry& e) { return e.name == "layer2.0.bn1.running_var"; });
  EXPECT_EQ(error_of(model, incomplete),
            "tensor layer2.0.bn1.running_var of resnet20 is missing; expected shape [32]");

  Entries wrong_type = exported("resnet20");
  entry_named(wrong_type, "bn1.bias").type = "I32";
  EXPECT_EQ(error_of(model, wrong_type),
            "tensor bn1.bias: expected F32, F16 or BF16 [16], found I32 [16]");
}

TEST(WeightFile, SaysInOneLineWhateverTheNameIs) {
  Entries named = exported("resnet20");
  entry_named(named, "fc.bias").name = "fc\tbias\n";
  EXPECT_EQ(error_of(model_of("resnet20"), named),
            "tensor fc?bias? is not part of resnet20; did you mean fc.bias?");
}

TEST(WeightFile, RefusesAnotherNetwork) {
  EXPECT_EQ(error_of(model_of("resnet18"), exported("resnet34")),
            "tensor layer1.2.bn1.bias (and 79 more) is not part of resnet18");
  EXPECT_EQ(error_of(model_of("resnet34"), exported("resnet18")),
            "tensor layer1.2.conv1.weight (and 79 more) of resnet34 is missing; expected shape "
            "[64, 64, 3, 3]");
}

TEST(WeightFile, AFileOfTorchSaveIsCalledOne) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"PK\x03\x04\x00\x00\x08\x08 archive/data.pkl"sv,
                                      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"sv}) {
    EXPECT_EQ(read_weight_file(std::as_bytes(std::span(text))).error().detail,
              "no safetensors file, but one of torch.save(); docs/pytorch.md says how to make one "
              "of it");
  }
  EXPECT_EQ(read_weight_file(std::as_bytes(std::span("these are no weights"sv))).error().detail,
            "no safetensors file: no complete header in 20 bytes");
  // The rest of a header of 640 bytes is missing.
  EXPECT_EQ(
      read_weight_file(std::as_bytes(std::span("\x80\x02\0\0\0\0\0\0{\"fc"sv))).error().detail,
      "no safetensors file: no complete header in 12 bytes");
}

TEST(WeightFile, RefusesValuesThatNoNetworkCanHave) {
  const Model model = model_of("resnet20");
  Entries infinite = exported("resnet20");
  const float value = INFINITY;
  std::memcpy(entry_named(infinite, "conv1.weight").bytes.data(), &value, 4);
  EXPECT_EQ(error_of(model, infinite), "tensor conv1.weight holds inf");
  Entries negative = exported("resnet20");
  const float variance = -1;
  std::memcpy(entry_named(negative, "bn1.running_var").bytes.data(), &variance, 4);
  EXPECT_EQ(error_of(model, negative), "tensor bn1.running_var holds -1");
}

}  // namespace
}  // namespace mayfly::nn
