#include "nn/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "nn/safetensors.hpp"

namespace mayfly::nn {
namespace {

// A state in which every number differs, so that a mixed-up tensor cannot go unnoticed.
ModelState numbered_state(const Model& model, std::size_t exponents) {
  ModelState state = make_initial_state(model, 3, exponents, -20);
  float next = 0;
  for (auto array : {state.parameters.span(), state.momentum.span(), state.statistics.span()}) {
    for (float& v : array) {
      v = next += 1.0F;
    }
  }
  for (std::size_t i = 0; i < exponents; ++i) {
    state.exponents[i] = static_cast<std::int32_t>(i) - 7;
  }
  state.committed = Step{4711};
  return state;
}

const Model& resnet20() {
  static const Model model = make_model("resnet20", 10).value();
  return model;
}

CheckpointFiles good_files() {
  return encode_checkpoint(resnet20(), numbered_state(resnet20(), 300), 42,
                           {{"isa", "avx2"}, {"reduction", "exact"}});
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void replace(Bytes& file, const std::string& from, const std::string& to) {
  std::string text = text_of(file);
  const std::size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  file = bytes_of(text.replace(place, from.size(), to));
}

/// The files of an earlier build, whose manifests did not contain their own hash.
CheckpointFiles earlier_files() {
  CheckpointFiles files = good_files();
  std::string text = text_of(files[kManifestFile]);
  text.resize(text.find(",\"manifest_xxh3\""));
  files[kManifestFile] = bytes_of(text + "}\n");
  return files;
}

TEST(Checkpoint, RestoresEveryBitOfTheState) {
  for (const std::size_t exponents : {0, 300}) {
    const ModelState state = numbered_state(resnet20(), exponents);
    const CheckpointFiles files = encode_checkpoint(resnet20(), state, 42, {});
    const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
    ASSERT_TRUE(restored.ok()) << restored.error().detail;
    EXPECT_EQ(restored.value().committed, Step{4711});
    EXPECT_EQ(restored.value().exponents, state.exponents);
    EXPECT_EQ(digest_of(restored.value()), digest_of(state));
    EXPECT_TRUE(std::ranges::equal(restored.value().momentum.span(), state.momentum.span()));
  }
}

TEST(Checkpoint, KeepsTheLossScaleOfFp16) {
  ModelState state = numbered_state(resnet20(), 3);
  const CheckpointFiles without = encode_checkpoint(resnet20(), state, 42, {});
  EXPECT_EQ(decode_checkpoint(resnet20(), without).value().loss_scale, std::nullopt);
  state.loss_scale = LossScale{13, 1234};
  CheckpointFiles files = encode_checkpoint(resnet20(), state, 42, {});
  EXPECT_EQ(files.at(kModelFile), without.at(kModelFile));
  const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
  ASSERT_TRUE(restored.ok()) << restored.error().detail;
  EXPECT_EQ(restored.value().loss_scale, state.loss_scale);
  EXPECT_EQ(digest_of(restored.value()), digest_of(state));
  state.loss_scale = LossScale{25, 0};
  const Result<ModelState> impossible =
      decode_checkpoint(resnet20(), encode_checkpoint(resnet20(), state, 42, {}));
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().detail,
            "tensor loss_scale: 2^25 for 0 steps is none that a job can have");
}

TEST(Checkpoint, ManifestTellsWhatIsInside) {
  const Result<CheckpointInfo> info = decode_manifest(good_files().at(kManifestFile));
  ASSERT_TRUE(info.ok()) << info.error().detail;
  EXPECT_EQ(info.value().model, "resnet20");
  EXPECT_EQ(info.value().classes, 10);
  EXPECT_EQ(info.value().committed, Step{4711});
  EXPECT_EQ(info.value().seed, 42U);
  EXPECT_EQ(info.value().digest, digest_of(numbered_state(resnet20(), 300)));
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(info.value().fingerprint, (Pairs{{"isa", "avx2"}, {"reduction", "exact"}}));
}

TEST(Checkpoint, KeepsSeedsOf64Bits) {
  const CheckpointFiles files =
      encode_checkpoint(resnet20(), numbered_state(resnet20(), 0), UINT64_MAX, {});
  EXPECT_EQ(decode_manifest(files.at(kManifestFile)).value().seed, UINT64_MAX);
}

TEST(Checkpoint, ModelFileUsesTorchvisionsNamesAndShapes) {
  const CheckpointFiles files = good_files();
  const auto tensors = decode_safetensors(files.at(kModelFile)).value();
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(tensors.at("conv1.weight").shape, (Shape{16, 3, 3, 3}));
  EXPECT_EQ(tensors.at("layer1.0.conv1.weight").shape, (Shape{16, 16, 3, 3}));
  EXPECT_EQ(tensors.at("bn1.running_var").shape, (Shape{16}));
  EXPECT_EQ(tensors.at("fc.weight").shape, (Shape{10, 64}));
  // The format requires that the data is aligned to 8 bytes in the file.
  const auto* start = reinterpret_cast<const char*>(files.at(kModelFile).data());
  const auto* data = reinterpret_cast<const char*>(tensors.at("conv1.weight").bytes.data());
  EXPECT_EQ((data - start) % 8, 0);
}

TEST(Checkpoint, FindsEveryTruncation) {
  const CheckpointFiles good = good_files();
  for (const auto& [name, content] : good) {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9},
          std::size_t{100}, content.size() / 2, content.size() - 2, content.size() - 1}) {
      CheckpointFiles torn = good;
      torn[name].resize(size);
      const Result<ModelState> restored = decode_checkpoint(resnet20(), torn);
      ASSERT_FALSE(restored.ok()) << name << " cut to " << size;
      EXPECT_EQ(restored.error().code, Errc::kCorrupt);
      EXPECT_NE(restored.error().detail.find(name), std::string::npos) << restored.error().detail;
    }
  }
}

TEST(Checkpoint, FindsBytesThatWereAppended) {
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) {
    CheckpointFiles files = good_files();
    files[name].push_back(std::byte{'x'});
    EXPECT_EQ(decode_checkpoint(resnet20(), files).error().code, Errc::kCorrupt) << name;
  }
}

TEST(Checkpoint, FindsEveryFlippedBitInTheTensors) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  CheckpointFiles files = good_files();
  for (const char* name : {kModelFile, kOptimizerFile}) {
    for (int i = 0; i < 100; ++i) {
      std::byte& victim = files[name][random() % files[name].size()];
      const std::byte before = victim;
      victim ^= std::byte{1} << (random() % 8);
      const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
      ASSERT_FALSE(restored.ok());
      EXPECT_EQ(restored.error().code, Errc::kCorrupt);
      EXPECT_NE(restored.error().detail.find(name), std::string::npos);
      victim = before;
    }
  }
}

TEST(Checkpoint, FindsEveryFlippedBitInTheManifest) {
  Bytes manifest = good_files().at(kManifestFile);
  for (std::size_t bit = 0; bit < 8 * manifest.size(); ++bit) {
    manifest[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_manifest(manifest).ok()) << text_of(manifest);
    manifest[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(decode_manifest(manifest).ok());
}

TEST(Checkpoint, FindsEveryChangeOfTheManifest) {
  for (const auto& [from, to] : {std::pair{"avx2", "avx3"},
                                 {"\"seed\":42", "\"seed\":43"},
                                 {"\"seed\":42", "\"seed\": 42"},
                                 {"\"isa\"", "\"ISA\""}}) {
    CheckpointFiles files = good_files();
    replace(files[kManifestFile], from, to);
    const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
    ASSERT_FALSE(restored.ok()) << to;
    EXPECT_EQ(restored.error().code, Errc::kCorrupt);
    EXPECT_EQ(restored.error().detail,
              "manifest.json: was changed after it was written: its hash does not fit");
  }
}

TEST(Checkpoint, ReadsAManifestWithoutAHashOfItself) {
  const CheckpointFiles files = earlier_files();
  const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
  ASSERT_TRUE(restored.ok()) << restored.error().detail;
  EXPECT_EQ(digest_of(restored.value()), digest_of(numbered_state(resnet20(), 300)));
  EXPECT_EQ(decode_manifest(files.at(kManifestFile)).value().seed, 42U);
}

// Goal: a damaged manifest of an earlier build gives an error, or the same state if the damage is
// in fields that do not affect the state (seed, fingerprint), but never a wrong state or a crash.
TEST(Checkpoint, NeverRestoresAWrongStateFromADamagedManifest) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const CheckpointFiles good = earlier_files();
  const Digest digest = digest_of(numbered_state(resnet20(), 300));
  for (int i = 0; i < 400; ++i) {
    CheckpointFiles files = good;
    Bytes& manifest = files[kManifestFile];
    for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      manifest[random() % manifest.size()] ^= std::byte{1} << (random() % 8);
    }
    const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
    EXPECT_TRUE(!restored.ok() || digest_of(restored.value()) == digest) << text_of(manifest);
  }
}

TEST(Checkpoint, RefusesAnotherModel) {
  const Model larger = make_model("resnet32", 10).value();
  const Result<ModelState> restored = decode_checkpoint(larger, good_files());
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code, Errc::kInvalidInput);
  EXPECT_NE(restored.error().detail.find("resnet20"), std::string::npos);
  EXPECT_NE(restored.error().detail.find("resnet32"), std::string::npos);
}

TEST(Checkpoint, RefusesAnotherClassCount) {
  const Model wider = make_model("resnet20", 100).value();
  const Result<ModelState> restored = decode_checkpoint(wider, good_files());
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code, Errc::kInvalidInput);
  EXPECT_NE(restored.error().detail.find("with 100"), std::string::npos);
}

// The files of a changed model that still has the name of the original.
CheckpointFiles files_of_variant(Model variant) {
  return encode_checkpoint(variant, numbered_state(variant, 0), 1, {});
}

TEST(Checkpoint, NamesTheTensorWithAWrongShape) {
  Model variant = resnet20();
  std::swap(variant.parameters[0].shape[0], variant.parameters[0].shape[1]);
  const Result<ModelState> restored = decode_checkpoint(resnet20(), files_of_variant(variant));
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code, Errc::kInvalidInput);
  const std::string& detail = restored.error().detail;
  EXPECT_NE(detail.find("conv1.weight"), std::string::npos) << detail;
  EXPECT_NE(detail.find("[16, 3, 3, 3]"), std::string::npos) << detail;
  EXPECT_NE(detail.find("[3, 16, 3, 3]"), std::string::npos) << detail;
}

TEST(Checkpoint, NamesAMissingTensor) {
  Model variant = resnet20();
  variant.parameters.back().name = "fc.bias2";
  const Result<ModelState> restored = decode_checkpoint(resnet20(), files_of_variant(variant));
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code, Errc::kInvalidInput);
  EXPECT_NE(restored.error().detail.find("fc.bias "), std::string::npos) << restored.error().detail;
}

TEST(Checkpoint, RefusesAForeignOrNewerManifest) {
  CheckpointFiles foreign = good_files();
  replace(foreign[kManifestFile], "mayfly-checkpoint", "other-checkpoint!");
  EXPECT_EQ(decode_checkpoint(resnet20(), foreign).error().code, Errc::kCorrupt);
  CheckpointFiles newer = good_files();
  replace(newer[kManifestFile], "\"version\":1", "\"version\":2");
  EXPECT_EQ(decode_checkpoint(resnet20(), newer).error().code, Errc::kUnsupported);
}

TEST(Checkpoint, ChecksTheDigestOfTheState) {
  CheckpointFiles files = earlier_files();
  replace(files[kManifestFile], "\"step\":4711", "\"step\":4712");
  const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().detail.find("digest"), std::string::npos);
}

TEST(Checkpoint, NamesAMissingFile) {
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) {
    CheckpointFiles files = good_files();
    files.erase(name);
    const Result<ModelState> restored = decode_checkpoint(resnet20(), files);
    ASSERT_FALSE(restored.ok());
    EXPECT_NE(restored.error().detail.find(name), std::string::npos);
  }
}

TEST(PackedState, RestoresEveryBit) {
  const ModelState state = numbered_state(resnet20(), 300);
  Bytes packed(packed_state_size(state));
  pack_state_part(state, 0, packed);
  ModelState other = make_initial_state(resnet20(), 9, 300, 0);
  ASSERT_TRUE(unpack_state(packed, other).ok());
  EXPECT_EQ(digest_of(other), digest_of(state));
}

TEST(PackedState, HasTheLossScaleOfFp16AtItsEnd) {
  ModelState state = numbered_state(resnet20(), 300);
  const std::size_t without = packed_state_size(state);
  state.loss_scale = LossScale{9, 77};
  Bytes packed(packed_state_size(state));
  EXPECT_EQ(packed.size(), without + sizeof(LossScale));
  pack_state_part(state, 0, packed);
  ModelState other = make_initial_state(resnet20(), 9, 300, 0);
  EXPECT_EQ(unpack_state(packed, other).error().code, Errc::kCorrupt) << "it expects none";
  other.loss_scale = LossScale{};
  ASSERT_TRUE(unpack_state(packed, other).ok());
  EXPECT_EQ(other.loss_scale, state.loss_scale);
  EXPECT_EQ(digest_of(other), digest_of(state));
  packed.back() = std::byte{1};
  EXPECT_EQ(unpack_state(packed, other).error().code, Errc::kCorrupt) << "2^24 steps and more";
}

TEST(PackedState, IsTheSameInPartsWhereverTheyAreCut) {
  const ModelState state = numbered_state(resnet20(), 300);
  Bytes whole(packed_state_size(state));
  pack_state_part(state, 0, whole);
  for (const std::size_t part : {std::size_t{1'000'003}, std::size_t{77'777}}) {
    Bytes packed(whole.size());
    for (std::size_t first = 0; first < packed.size(); first += part) {
      const std::size_t size = std::min(part, packed.size() - first);
      pack_state_part(state, first, std::span(packed).subspan(first, size));
    }
    EXPECT_TRUE(packed == whole) << part;
  }
}

TEST(PackedState, RefusesAnotherLayoutAndLeavesTheStateAlone) {
  const ModelState state = numbered_state(resnet20(), 300);
  Bytes packed(packed_state_size(state));
  pack_state_part(state, 0, packed);
  ModelState other = make_initial_state(resnet20(), 9, 299, 0);
  const Digest before = digest_of(other);
  EXPECT_EQ(unpack_state(packed, other).error().code, Errc::kCorrupt);
  ModelState same = make_initial_state(resnet20(), 9, 300, 0);
  packed.pop_back();
  EXPECT_EQ(unpack_state(packed, same).error().code, Errc::kCorrupt);
  packed.push_back(std::byte{0});
  packed[8] ^= std::byte{1};  // the parameter count
  EXPECT_EQ(unpack_state(packed, same).error().code, Errc::kCorrupt);
  EXPECT_EQ(digest_of(other), before);
}

}  // namespace
}  // namespace mayfly::nn
