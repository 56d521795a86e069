#include "nn/cuda/engine_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace mayfly::nn::cuda {
namespace {

constexpr const char* kKind = "sm_90-cudnn-9.19.0";

std::set<ConvKey> all_of(const char* model, std::uint32_t microbatch = 16,
                         Dtype dtype = Dtype::kBf16) {
  return convolutions_of_step(make_usual_model(model).value(), microbatch, dtype);
}

EngineEntry entry(std::int64_t index) {
  return {{index, {{2, index + 1}, {14, 0}}}, 12.5, 20.25};
}

EngineTable table_for(const std::set<ConvKey>& convolutions) {
  EngineTable table(kKind);
  for (const ConvKey& key : convolutions) {
    table.set(key, entry(static_cast<std::int64_t>(table.size())));
  }
  return table;
}

std::string with_row(const std::string& row) {
  return EngineTable(kKind).text() + row + "\n";
}

constexpr const char* kRow =
    "forward\tbf16\t8\t64\t64\t3\t1\t1\t56\teng34_k2=2_k14=0\t12.50\t20.25";

TEST(EngineName, IsWhatCudnnsNameSays) {
  const EngineName name{34, {{2, 2}, {14, -1}}};
  EXPECT_EQ(name.text(), "eng34_k2=2_k14=-1");
  EXPECT_EQ(EngineName::parse(name.text()).value(), name);
  EXPECT_EQ(EngineName::parse("eng0").value(), EngineName{});
  for (const char* const wrong :
       {"", "eng", "34", "eng34_", "eng34_k2", "eng34_k2=", "eng34_k=2", "eng34 ", "eng+3",
        "eng034", "eng34_k2=2x", "eng99999999999999999999"}) {
    EXPECT_FALSE(EngineName::parse(wrong).ok()) << wrong;
  }
}

TEST(EngineTable, AStepHasEachConvolutionOnceAndNoGradientOfImages) {
  const Model model = make_usual_model("resnet50").value();
  const std::set<ConvKey> all = all_of("resnet50");
  const ConvShape stem = ConvShape::of(model.stem, 16);
  EXPECT_TRUE(all.contains({Dtype::kBf16, stem, ConvPass::kForward}));
  EXPECT_TRUE(all.contains({Dtype::kBf16, stem, ConvPass::kWeightGradient}));
  EXPECT_FALSE(all.contains({Dtype::kBf16, stem, ConvPass::kInputGradient}));
  EXPECT_LT(all.size(), 3 * convolutions_of(model).size()) << "equal layers share an entry";
}

TEST(EngineTable, ComesBackAsItWasWritten) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    const EngineTable table = table_for(all_of("resnet50", 64, dtype));
    const Result<EngineTable> again = EngineTable::parse(table.text());
    ASSERT_TRUE(again.ok()) << again.error().detail;
    EXPECT_EQ(again.value().text(), table.text());
    EXPECT_EQ(again.value().kind(), kKind);
    EXPECT_EQ(again.value().digest(), table.digest());
    for (const ConvKey& key : all_of("resnet50", 64, dtype)) {
      ASSERT_NE(again.value().find(key), nullptr);
      EXPECT_EQ(again.value().find(key)->engine, table.find(key)->engine);
    }
  }
}

TEST(EngineTable, WhatIsNoTableIsRefusedWithTheLine) {
  ASSERT_TRUE(EngineTable::parse(with_row(kRow)).ok());
  const std::string good = with_row(kRow);
  const std::string row = kRow;
  const auto row_with = [&row](const std::string& from, const std::string& to) {
    std::string other = row;
    other.replace(other.find(from), from.size(), to);
    return with_row(other);
  };
  const std::vector<std::pair<std::string, const char*>> wrong = {
      {"", "line 1"},
      {"mayfly-engine-table\t2\tsm_90\n", "line 1"},
      {"mayfly-engine-table\t1\t\n", "line 1"},
      {"mayfly-engine-table\t1\tsm_90\n", "line 2"},
      {good.substr(0, good.size() - 1), "line 3"},
      {with_row(row + "\n" + row), "line 4"},
      {with_row(""), "line 3"},
      {with_row(row + "\t"), "line 3"},
      {row_with("forward", "backward"), "line 3"},
      {row_with("bf16", "int8"), "line 3"},
      {row_with("eng34", "engine34"), "line 3"},
      {row_with("12.50", "nan"), "line 3"},
      {row_with("12.50", "-1"), "line 3"},
      {row_with("\t8\t", "\t0\t"), "line 3"},
      {row_with("\t8\t", "\t9999999\t"), "line 3"},
      {row_with("\t56\t", "\t1e3\t"), "line 3"},
      {row_with("\t3\t1\t1\t56", "\t9\t1\t0\t8"), "line 3"}};
  for (const auto& [text, line] : wrong) {
    const Result<EngineTable> table = EngineTable::parse(text);
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.error().code, Errc::kCorrupt);
    EXPECT_TRUE(table.error().detail.starts_with(line)) << table.error().detail << "\n" << text;
  }
}

TEST(EngineTable, AMergeTakesWhatIsNewerAndKeepsTheRest) {
  EngineTable table = table_for(all_of("resnet20"));
  const std::size_t before = table.size();
  const ConvKey known = *all_of("resnet20").begin();
  const ConvKey other = *all_of("resnet50").begin();
  EngineTable newer(kKind);
  newer.set(known, entry(1'000));
  newer.set(other, entry(1'001));
  table.merge(newer);
  EXPECT_EQ(table.size(), before + 1);
  EXPECT_EQ(table.find(known)->engine.index, 1'000);
  EXPECT_EQ(table.find(other)->engine.index, 1'001);
}

TEST(EngineTable, ConvolutionsOfOtherSizesTypesAndPassesAreOthers) {
  const EngineTable table = table_for(all_of("resnet20"));
  ConvKey key = *all_of("resnet20").rbegin();
  ASSERT_NE(table.find(key), nullptr);
  key.dtype = Dtype::kFp32;
  EXPECT_EQ(table.find(key), nullptr);
  for (const ConvKey& larger : all_of("resnet20", 32)) {
    EXPECT_EQ(table.find(larger), nullptr);
  }
}

TEST(EngineTable, TheFingerprintIsOfTheEnginesThatAreUsed) {
  const std::set<ConvKey> used = all_of("resnet20");
  EXPECT_EQ(engines_fingerprint(EngineTable(kKind), used), "cudnn");
  EngineTable table = table_for(used);
  const std::string print = engines_fingerprint(table, used);
  EXPECT_TRUE(print.starts_with("cudnn, ")) << print;
  EXPECT_EQ(engines_fingerprint(table, all_of("resnet50")), "cudnn");

  table.merge(table_for(all_of("resnet50")));
  EXPECT_EQ(engines_fingerprint(table, used), print) << "what others use is of no concern";
  EngineEntry slower = *table.find(*used.begin());
  slower.microseconds *= 2;
  table.set(*used.begin(), slower);
  EXPECT_EQ(engines_fingerprint(table, used), print) << "times decide nothing";
  slower.engine.knobs[1].second = 1;
  table.set(*used.begin(), slower);
  EXPECT_NE(engines_fingerprint(table, used), print);
}

TEST(EngineTable, FusedPassesAreOfFp16AndTheFingerprintSaysSo) {
  const Model model = make_usual_model("resnet20").value();
  const std::set<ConvKey> half = convolutions_of_step(model, 16, Dtype::kFp16);
  const auto fused = [](const ConvKey& key) { return is_fused(key.pass); };
  EXPECT_TRUE(std::ranges::any_of(half, fused));
  EXPECT_TRUE(std::ranges::none_of(convolutions_of_step(model, 16, Dtype::kBf16), fused));
  EXPECT_TRUE(std::ranges::none_of(convolutions_of_step(model, 16, Dtype::kFp32), fused));
  EngineTable table(kKind);
  EXPECT_EQ(engines_fingerprint(table, half), "cudnn, fused where it offers that");
  const ConvKey key = *std::ranges::find_if(half, fused);
  table.set(key, {.engine = {1, {}}});
  const std::string print = engines_fingerprint(table, half);
  table.set(key, {.engine = {EngineName::kUnfused, {}}});
  EXPECT_NE(engines_fingerprint(table, half), print);
}

TEST(EngineTable, OnlyAFusedPassCanBeUnfused) {
  const Model model = make_usual_model("resnet20").value();
  for (const ConvKey& key : convolutions_of_step(model, 16, Dtype::kFp16)) {
    EngineTable table(kKind);
    table.set(key, {.engine = {EngineName::kUnfused, {}}});
    const Result<EngineTable> read = EngineTable::parse(table.text());
    EXPECT_EQ(read.ok(), is_fused(key.pass)) << table.text();
    if (read.ok()) {
      EXPECT_TRUE(read.value().find(key)->engine.is_unfused());
    }
  }
}

TEST(EngineTable, TheLogSaysWhatTheTableDidNotDecide) {
  EXPECT_EQ((EngineUse{.convolutions = 9, .by_table = 9}.remark()), "");
  EXPECT_EQ((EngineUse{.convolutions = 9, .by_table = 2}.remark()),
            "7 of 9 convolutions are computed by cuDNN's own first choice of engine: 7 are not in "
            "the engine table");
  const std::string remark =
      EngineUse{.convolutions = 9, .by_table = 2, .refused = 3, .first_refusal = "eng1: no"}
          .remark();
  EXPECT_NE(remark.find("4 are not in the engine table, 3 engines of the table are not possible, "
                        "the first eng1: no"),
            std::string::npos)
      << remark;
}

TEST(EngineTable, EveryTableOfTheRepositoryIsOneAndHasTheNameOfItsKind) {
  for (const auto& file : std::filesystem::directory_iterator(MAYFLY_ENGINE_TABLES)) {
    if (file.path().extension() != ".tsv") {
      continue;
    }
    std::ifstream in(file.path());
    const Result<EngineTable> table =
        EngineTable::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    ASSERT_TRUE(table.ok()) << file.path() << ": " << table.error().detail;
    EXPECT_EQ(file.path().stem(), table.value().kind());
  }
}

}  // namespace
}  // namespace mayfly::nn::cuda
