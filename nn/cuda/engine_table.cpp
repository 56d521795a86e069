#include "nn/cuda/engine_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace mayfly::nn::cuda {
namespace {

constexpr std::string_view kTitle = "mayfly-engine-table\t1\t";
constexpr std::string_view kColumns =
    "pass\tdtype\timages\tin\tout\tkernel\tstride\tpadding\tsize\tengine\tus\tfirst_us";
constexpr std::size_t kColumnCount = 12;
constexpr std::int64_t kNumberMax = 1 << 20;  // no size of ours; products still fit

/// to_string() as one word.
std::string word_of(ConvPass pass) {
  std::string word = to_string(pass);
  std::ranges::replace(word, ' ', '-');
  return word;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

std::optional<ConvPass> pass_in(std::string_view word) {
  const auto* const found =
      std::ranges::find_if(kConvPasses, [&](ConvPass pass) { return word_of(pass) == word; });
  return found == std::end(kConvPasses) ? std::nullopt : std::optional(*found);
}

/// Of columns 2 to 8; none if it is no convolution.
std::optional<ConvShape> shape_in(std::span<const std::string_view> columns) {
  ConvShape shape;
  std::int64_t* const fields[] = {&shape.images,    &shape.in_channels, &shape.out_channels,
                                  &shape.kernel,    &shape.stride,      &shape.padding,
                                  &shape.input_size};
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const auto number = number_in<std::int64_t>(columns[i]);
    const std::int64_t least = fields[i] == &shape.padding ? 0 : 1;
    if (!number.has_value() || *number < least || *number > kNumberMax) {
      return std::nullopt;
    }
    *fields[i] = *number;
  }
  const std::int64_t room = shape.input_size + 2 * shape.padding - shape.kernel;
  shape.output_size = room / shape.stride + 1;
  return room >= 0 ? std::optional(shape) : std::nullopt;
}

std::optional<double> time_in(std::string_view text) {
  const auto time = number_in<double>(text);
  return time.has_value() && std::isfinite(*time) && *time >= 0 ? time : std::nullopt;
}

std::optional<std::pair<ConvKey, EngineEntry>> row_in(std::string_view line) {
  const std::vector<std::string_view> columns = split(line, '\t');
  if (columns.size() != kColumnCount) {
    return std::nullopt;
  }
  const auto pass = pass_in(columns[0]);
  const Result<Dtype> dtype = parse_dtype(std::string(columns[1]));
  const auto shape = shape_in(std::span(columns).subspan(2, 7));
  Result<EngineName> engine = EngineName::parse(columns[9]);
  const auto time = time_in(columns[10]);
  const auto first_time = time_in(columns[11]);
  if (!pass || !dtype.ok() || !shape || !engine.ok() || !time || !first_time) {
    return std::nullopt;
  }
  if (engine.value().is_unfused() && !is_fused(*pass)) {
    return std::nullopt;
  }
  return std::pair(ConvKey{dtype.value(), *shape, *pass},
                   EngineEntry{std::move(engine).value(), *time, *first_time});
}

/// What decides bits, of one row.
std::string choice_text(const ConvKey& key, const EngineName& engine) {
  const ConvShape& s = key.shape;
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}", word_of(key.pass),
                     name_of(key.dtype), s.images, s.in_channels, s.out_channels, s.kernel,
                     s.stride, s.padding, s.input_size, engine.text());
}

/// Whether a convolution's input is the ReLU of one norm, and nobody else reads it.
bool is_inner(const Model& model, const ConvSpec& spec) {
  return std::ranges::any_of(model.blocks, [&](const BlockSpec& block) {
    const auto found = std::ranges::find(block.convs, &spec, [](const ConvSpec& c) { return &c; });
    return found != block.convs.end() && found != block.convs.begin();
  });
}

}  // namespace

std::set<ConvKey> convolutions_of_step(const Model& model, std::uint32_t microbatch, Dtype dtype) {
  std::set<ConvKey> all;
  for (const ConvSpec* spec : convolutions_of(model)) {
    for (const ConvPass pass : kConvPasses) {
      const bool is_of_images = pass == ConvPass::kInputGradient && spec == &model.stem;
      const bool is_behind_join = pass == ConvPass::kInputGradientSums && !is_inner(model, *spec);
      if (!is_of_images && !is_behind_join && (!is_fused(pass) || dtype == kFusedDtype)) {
        all.insert({dtype, ConvShape::of(*spec, microbatch), pass});
      }
    }
  }
  return all;
}

Result<EngineTable> EngineTable::parse(std::string_view text) {
  const auto wrong = [](std::size_t line, const char* why) {
    return Error{Errc::kCorrupt, fmt::format("line {}: {}", line, why)};
  };
  const std::vector<std::string_view> lines = split(text, '\n');
  if (!lines[0].starts_with(kTitle) || lines[0].size() == kTitle.size()) {
    return wrong(1, "no engine table of version 1");
  }
  if (lines.size() < 3 || lines[1] != kColumns) {
    return wrong(2, "other columns than those of an engine table");
  }
  if (!lines.back().empty()) {
    return wrong(lines.size(), "the file ends within a line");
  }
  EngineTable table(std::string(lines[0].substr(kTitle.size())));
  for (std::size_t i = 2; i + 1 < lines.size(); ++i) {
    const auto row = row_in(lines[i]);
    if (!row.has_value()) {
      return wrong(i + 1, "no convolution with an engine and two times");
    }
    if (!table.entries_.insert(*row).second) {
      return wrong(i + 1, "this convolution has an engine already");
    }
  }
  return table;
}

std::string EngineTable::text() const {
  std::string text = fmt::format("{}{}\n{}\n", kTitle, kind_, kColumns);
  for (const auto& [key, entry] : entries_) {
    text += fmt::format("{}\t{:.2f}\t{:.2f}\n", choice_text(key, entry.engine), entry.microseconds,
                        entry.first_microseconds);
  }
  return text;
}

const EngineEntry* EngineTable::find(const ConvKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void EngineTable::set(const ConvKey& key, const EngineEntry& entry) {
  entries_[key] = entry;
}

void EngineTable::merge(const EngineTable& newer) {
  ENSURE(newer.kind_ == kind_, "tables of one GPU and cuDNN are merged");
  for (const auto& [key, entry] : newer.entries_) {
    set(key, entry);
  }
}

EngineTable EngineTable::used_by(const std::set<ConvKey>& convolutions) const {
  EngineTable used(kind_);
  for (const ConvKey& key : convolutions) {
    if (const EngineEntry* entry = find(key); entry != nullptr) {
      used.set(key, *entry);
    }
  }
  return used;
}

Digest EngineTable::digest() const {
  std::string text;
  for (const auto& [key, entry] : entries_) {
    text += choice_text(key, entry.engine) + "\n";
  }
  return digest_of(std::as_bytes(std::span(text)));
}

std::string engines_fingerprint(const EngineTable& table, const std::set<ConvKey>& convolutions) {
  const EngineTable used = table.used_by(convolutions);
  std::string text = "cudnn";
  if (std::ranges::any_of(convolutions, [](const ConvKey& key) { return is_fused(key.pass); })) {
    text += ", fused where it offers that";
  }
  if (used.size() > 0) {
    text += fmt::format(", {} of {} by engine table {}", used.size(), convolutions.size(),
                        to_string(used.digest()).substr(0, 16));
  }
  return text;
}

std::string text_of(const ConvKey& key) {
  return fmt::format("the {} of {} in {}", to_string(key.pass), key.shape.text(),
                     name_of(key.dtype));
}

std::string EngineRefusal::text() const {
  return fmt::format("{} for {} does not run on this GPU: {}; {}", engine.text(), text_of(key), why,
                     is_fused(key.pass) ? "the layer is computed in parts"
                                        : "the next engine that cuDNN offers is taken");
}

std::string EngineUse::fingerprint() const {
  std::string choices;
  for (const auto& [key, engine] : engines) {
    choices += choice_text(key, engine) + "\n";
  }
  const Digest digest = digest_of(std::as_bytes(std::span(choices)));
  std::string text = fmt::format("{} engines {}, {} refused by the GPU", engines.size(),
                                 to_string(digest).substr(0, 16), not_run.size());
  if (!not_run.empty()) {
    text += fmt::format(", the first {} for {}", not_run[0].engine.text(), text_of(not_run[0].key));
  }
  return text;
}

std::vector<std::string> EngineUse::warnings() const {
  std::vector<std::string> lines;
  for (const EngineRefusal& each : not_run) {
    lines.push_back(each.text());
  }
  return lines;
}

std::string EngineUse::remark() const {
  if (by_table == convolutions) {
    return {};
  }
  std::string text = fmt::format(
      "{} of {} convolutions are computed by cuDNN's own first choice of engine: {} are not in the "
      "engine table",
      convolutions - by_table, convolutions, convolutions - by_table - refused);
  if (fused > 0) {
    text += fmt::format(", {} are fused with a part of batch norm", fused);
  }
  if (refused > 0) {
    text += fmt::format(", {} engines of the table are not possible, the first {}", refused,
                        first_refusal);
  }
  return text;
}

}  // namespace mayfly::nn::cuda
