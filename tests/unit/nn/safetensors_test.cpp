#include "nn/safetensors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace mayfly::nn {
namespace {

Bytes container(const std::string& header, std::size_t data_bytes) {
  Bytes file(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

void expect_corrupt(const std::string& header, std::size_t data_bytes) {
  const Bytes file = container(header, data_bytes);
  const auto decoded = decode_safetensors(file);
  ASSERT_FALSE(decoded.ok()) << header;
  EXPECT_EQ(decoded.error().code, Errc::kCorrupt);
}

TEST(Safetensors, RoundTrips) {
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  const std::array<std::int32_t, 2> numbers = {-1, 7};
  const Bytes file =
      encode_safetensors({{"b.weight", {"F32", {2, 3}, std::as_bytes(std::span(values))}},
                          {"a \"quoted\" name", {"I32", {2}, std::as_bytes(std::span(numbers))}},
                          {"empty", {"F32", {0}, {}}}});
  const auto tensors = decode_safetensors(file).value();
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors.at("b.weight").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(tensors.at("b.weight").bytes.data(), values.data(), 24), 0);
  EXPECT_EQ(std::memcmp(tensors.at("a \"quoted\" name").bytes.data(), numbers.data(), 8), 0);
  EXPECT_TRUE(tensors.at("empty").bytes.empty());
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  // A file without metadata and padding, with another order of keys.
  const Bytes file = container(R"({"x":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})", 4);
  EXPECT_EQ(decode_safetensors(file).value().at("x").bytes.size(), 4U);
}

TEST(Safetensors, SaysWhichTensorsItCannotHold) {
  const std::vector<std::int64_t> eight(8, 1);
  const auto why = [](const std::string& name, const std::vector<std::int64_t>& shape) {
    const Result<void> checked = check_storable(name, shape);
    return checked.ok() ? std::string() : checked.error().detail;
  };
  EXPECT_EQ(why("caf\u00e9", eight), "");
  const Bytes one(4);
  EXPECT_TRUE(decode_safetensors(encode_safetensors({{"caf\u00e9", {"F32", eight, one}}})).ok());
  EXPECT_EQ(why("a", std::vector<std::int64_t>(9, 1)),
            "tensor a: 9 dimensions, and a checkpoint has room for 8");
  EXPECT_EQ(why("caf\xe9", {1}), "tensor caf?: the name is not UTF-8, and a checkpoint needs it");
  EXPECT_EQ(why("__metadata__", {1}),
            "tensor __metadata__: a checkpoint has something else by this name");
}

TEST(Safetensors, RefusesAHeaderThatLies) {
  expect_corrupt("", 0);
  expect_corrupt("[1]", 0);
  expect_corrupt(R"({"x":3})", 0);
  expect_corrupt(R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[1]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,6]}})", 6);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4);
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5);  // left over
}

TEST(Safetensors, SaysInOneLineWhatIsWrongWithATensor) {
  const Bytes file =
      container(R"({"a\nb":{"dtype":"F\u001b","shape":[1],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(decode_safetensors(file).error().detail, "tensor a?b: 4 bytes do not fit F? [1]");
}

TEST(Safetensors, RefusesShapesWhoseProductOverflows) {
  expect_corrupt(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                 0);
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":)") + a +
           R"(},"y":{"dtype":"F32","shape":[1],"data_offsets":)" + b + "}}";
  };
  EXPECT_TRUE(decode_safetensors(container(two("[0,4]", "[4,8]"), 8)).ok());
  expect_corrupt(two("[0,4]", "[0,4]"), 4);
  expect_corrupt(two("[0,4]", "[2,6]"), 6);
  expect_corrupt(two("[0,4]", "[8,12]"), 12);
}

TEST(Safetensors, RefusesAHugeOrDeepHeader) {
  Bytes file(8);
  const std::uint64_t length = UINT64_MAX;
  std::memcpy(file.data(), &length, 8);
  EXPECT_FALSE(decode_safetensors(file).ok());
  expect_corrupt("{\"x\":\"" + std::string(std::size_t{1} << 20, 'x') + "\"}", 0);
  expect_corrupt("{\"x\":" + std::string(1000, '[') + std::string(1000, ']') + "}", 0);
}

// Goal: no input makes the reader touch memory outside the file (run under ASan) or crash.
TEST(Safetensors, SurvivesRandomDamage) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  const Bytes good = encode_safetensors({{"w", {"F32", {2, 3}, std::as_bytes(std::span(values))}},
                                         {"b", {"F32", {6}, std::as_bytes(std::span(values))}}});
  for (int round = 0; round < 20'000; ++round) {
    Bytes file = good;
    for (std::uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      file[random() % file.size()] = static_cast<std::byte>(random());
    }
    file.resize(random() % 4 == 0 ? random() % (file.size() + 1) : file.size());
    const auto decoded = decode_safetensors(file);
    if (decoded.ok()) {
      for (const auto& [name, tensor] : decoded.value()) {
        EXPECT_LE(tensor.bytes.size(), file.size());
      }
    }
  }
}

}  // namespace
}  // namespace mayfly::nn
