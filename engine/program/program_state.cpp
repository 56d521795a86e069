#include "engine/program/program_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "collectives/plan/exact_sum.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/checkpoint.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint64_t kPackedMagic = 0x314d4752504d464dULL;
// Names in the optimizer's file of a checkpoint, besides the program's own tensors.
constexpr const char* kExponentsName = "mayfly.exponents";
constexpr const char* kBlobName = "mayfly.blob";

/// The change of an unchanged value is 0, even if the value is infinite, as in a mask.
template <typename T>
void put_changes(std::span<const std::byte> now, std::span<const std::byte> before,
                 std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T a{};
    T b{};
    std::memcpy(&a, now.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, before.data() + i * sizeof(T), sizeof(T));
    out[i] = std::memcmp(&a, &b, sizeof(T)) == 0 ? 0.0F : static_cast<float>(a - b);
  }
}

template <typename T>
T changed_by(T before, float change) {
  if constexpr (std::is_integral_v<T>) {
    return before + static_cast<T>(std::llround(change));
  } else {
    return before + static_cast<T>(change);
  }
}

template <typename T>
void add_changes(std::span<const float> changes, std::span<std::byte> to) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    T element{};
    std::memcpy(&element, to.data() + i * sizeof(T), sizeof(T));
    element = changed_by(element, changes[i]);
    std::memcpy(to.data() + i * sizeof(T), &element, sizeof(T));
  }
}

void add_tensor(Digester& digester, const ProgramTensor& tensor, ByteSpan content) {
  digester.add(std::as_bytes(std::span(tensor.name)));
  digester.add(content);
}

Error misfit(const ProgramTensor& wanted, const std::string& found) {
  return {Errc::kInvalidInput, fmt::format("tensor {}: expected {} {}, found {}", wanted.name,
                                           wanted.type, nn::shape_text(wanted.shape), found)};
}

Result<ByteSpan> find(const std::map<std::string, nn::TensorView>& tensors,
                      const ProgramTensor& wanted) {
  const auto found = tensors.find(wanted.name);
  if (found == tensors.end()) {
    return misfit(wanted, "none of this name");
  }
  const nn::TensorView& tensor = found->second;
  if (tensor.type != wanted.type || tensor.shape != wanted.shape) {
    return misfit(wanted, tensor.type + " " + nn::shape_text(tensor.shape));
  }
  return tensor.bytes;
}

/// kCorrupt if the size is wrong or if an exponent is illegal, which would end a process that sums.
Result<std::vector<std::int32_t>> exponents_in(ByteSpan content) {
  std::vector<std::int32_t> exponents(content.size() / sizeof(std::int32_t));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(exponents));
  std::ranges::copy(content.first(bytes.size()), bytes.begin());
  if (bytes.size() != content.size() ||
      !std::ranges::all_of(exponents, collectives::is_legal_exponent)) {
    return Error{Errc::kCorrupt, "the state has an exponent that no sum can have"};
  }
  return exponents;
}

/// Moves a read position over bytes whose sizes are known.
ByteSpan take_front(ByteSpan& bytes, std::size_t size) {
  const ByteSpan front = bytes.first(size);
  bytes = bytes.subspan(size);
  return front;
}

}  // namespace

ProgramState::ProgramState(const Job& job, const ReductionLayout& layout, ProgramTensors tensors,
                           std::size_t optimizer_bytes_max, Mailbox& mailbox)
    : job_(job),
      layout_(layout),
      tensors_(std::move(tensors)),
      rest_bytes_max_(optimizer_bytes_max),
      mailbox_(mailbox),
      step_means_(layout, job.microbatches),
      exponents_(job.exact() ? layout.blocks().block_count() : 0, collectives::kUnsetExponent),
      means_(step_means_.blank()) {
  for (const ProgramTensor& buffer : tensors_.buffers) {
    buffers_.emplace_back(buffer.content().begin(), buffer.content().end());
  }
}

Result<void> ProgramState::set_optimizer_state(std::vector<ProgramTensor> tensors, Bytes blob,
                                               double learning_rate) {
  constexpr std::size_t kBytesOfEach = 128;  // in the container's header, besides the name
  std::size_t bytes = blob.size() + 2 * kBytesOfEach;
  std::size_t header = 2 * kBytesOfEach;
  std::set<std::string_view> names = {kBlobName, kExponentsName};
  for (const ProgramTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Error{Errc::kInvalidInput,
                   fmt::format("the optimizer has two tensors of the name {}", tensor.name)};
    }
    bytes += tensor.bytes + tensor.name.size() + kBytesOfEach;
    header += tensor.name.size() + kBytesOfEach;
  }
  if (header > nn::kSafetensorsHeaderBytesMax / 2) {  // JSON has two bytes for a quotation mark
    return Error{
        Errc::kInvalidInput,
        fmt::format("the optimizer has {} tensors, too many for a checkpoint", tensors.size())};
  }
  if (bytes > rest_bytes_max_) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("the state of the optimizer and of the other registered objects has {} bytes, "
                    "and {} were reserved for it when the job began",
                    bytes, rest_bytes_max_)};
  }
  optimizer_ = std::move(tensors);
  blob_ = std::move(blob);
  learning_rate_ = learning_rate;
  return {};
}

void ProgramState::restore_buffers() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    std::ranges::copy(buffers_[i], tensors_.buffers[i].data);
  }
}

template <typename Function>
void ProgramState::for_all_summed_buffers(const Function& function) const {
  std::size_t first = 0;
  for (std::size_t i = 0; i < tensors_.buffers.size(); ++i) {
    if (tensors_.buffers[i].is_summable()) {
      function(i, first);
      first += tensors_.buffers[i].elements;
    }
  }
}

void ProgramState::put_buffer_changes(std::span<float> statistics) const {
  for_all_summed_buffers([&](std::size_t i, std::size_t first) {
    const ProgramTensor& buffer = tensors_.buffers[i];
    const std::span<float> out = statistics.subspan(first, buffer.elements);
    if (buffer.type == "F32") {
      put_changes<float>(buffer.content(), buffers_[i], out);
    } else if (buffer.type == "F64") {
      put_changes<double>(buffer.content(), buffers_[i], out);
    } else {
      put_changes<std::int64_t>(buffer.content(), buffers_[i], out);
    }
  });
}

void ProgramState::commit_buffers(std::span<const float> changes) {
  for_all_summed_buffers([&](std::size_t i, std::size_t first) {
    const ProgramTensor& buffer = tensors_.buffers[i];
    const std::span<const float> own = changes.subspan(first, buffer.elements);
    if (buffer.type == "F32") {
      add_changes<float>(own, buffers_[i]);
    } else if (buffer.type == "F64") {
      add_changes<double>(own, buffers_[i]);
    } else {
      add_changes<std::int64_t>(own, buffers_[i]);
    }
  });
}

std::size_t ProgramState::buffer_elements() const {
  std::size_t count = 0;
  for_all_summed_buffers(
      [&](std::size_t i, std::size_t first) { count = first + tensors_.buffers[i].elements; });
  return count;
}

std::span<const float> ProgramState::mean_gradients() const {
  return means_.means.span().subspan(layout_.parameters_offset());
}

double ProgramState::apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                           bool skips) {
  ENSURE(!skips, "without a loss scale no update is skipped");
  means_.step = next(committed_);
  step_means_.observe(reduced, exponents, *computer_, means_);
  const std::span<const float> statistics =
      means_.means.span().subspan(layout_.statistics_offset());
  commit_buffers(statistics);
  const std::span<const float> metrics = statistics.subspan(buffer_elements());
  own_metrics_.clear();
  for (std::size_t i = 0; i < tensors_.metrics.size(); ++i) {
    own_metrics_.push_back({tensors_.metrics[i], metrics[i]});
  }
  // The mean of weights that are all 1 may be off by a rounding.
  constexpr float kRounding = 1e-6F;
  double loss = step_means_.loss(reduced, exponents);
  const float weight = means_.means.span()[weight_at()];
  if (weight > 0 && std::abs(weight - 1) > kRounding) {
    for (float& mean : means_.means.span().subspan(layout_.parameters_offset())) {
      mean /= weight;
    }
    loss /= weight;
  }
  mailbox_.ask({ProgramTask::Kind::kUpdate, value(means_.step), 0, false, loss});
  committed_ = means_.step;
  exponents_ = means_.next_exponents;
  return loss;
}

// ---- packed

std::size_t ProgramState::packed_size() const {
  std::size_t size = 3 * sizeof(std::uint64_t) + exponents_.size() * sizeof(std::int32_t);
  for (const auto* tensors : {&tensors_.parameters, &tensors_.buffers}) {
    for (const ProgramTensor& tensor : *tensors) {
      size += tensor.bytes;
    }
  }
  return size + rest_bytes_max_;
}

Bytes ProgramState::packed_rest() const {
  std::vector<nn::NamedTensor> all;
  for (const ProgramTensor& tensor : optimizer_) {
    all.push_back(tensor.view());
  }
  all.push_back({kBlobName, {"U8", {static_cast<std::int64_t>(blob_.size())}, ByteSpan(blob_)}});
  return nn::encode_safetensors(all);
}

Result<void> ProgramState::split_rest(ByteSpan rest, LoadedState& into) const {
  TRY_ASSIGN(const auto tensors, nn::decode_safetensors(rest));
  for (const auto& [name, tensor] : tensors) {
    if (name == kBlobName) {
      into.blob = tensor.bytes;
    } else if (name != kExponentsName) {
      into.tensors.push_back({name, tensor});
    }
  }
  // A file lists tensors by name, but contains them in the order in which they were passed.
  std::ranges::stable_sort(into.tensors, {}, [](const nn::NamedTensor& named) {
    return std::pair(named.tensor.bytes.data(), named.tensor.bytes.size());
  });
  return {};
}

void ProgramState::prepare_to_pack() {
  rest_ = packed_rest();
  ENSURE(rest_.size() <= rest_bytes_max_, "checked when the program gave it");
  WireWriter head;
  head.put(kPackedMagic);
  head.put(value(committed_));
  head.put(static_cast<std::uint64_t>(rest_.size()));
  for (const std::int32_t exponent : exponents_) {
    head.put(exponent);
  }
  head_ = head.take();
}

void ProgramState::pack(std::size_t first, std::span<std::byte> out) const {
  const auto put = [&first, &out](ByteSpan part) {
    if (first >= part.size()) {
      first -= part.size();
      return;
    }
    const std::size_t size = std::min(part.size() - first, out.size());
    std::ranges::copy(part.subspan(first, size), out.begin());
    out = out.subspan(size);
    first = 0;
  };
  put(head_);
  for (const ProgramTensor& parameter : tensors_.parameters) {
    put(parameter.content());
  }
  for (const Bytes& buffer : buffers_) {
    put(buffer);
  }
  put(rest_);
  std::ranges::fill(out, std::byte{0});
}

Result<void> ProgramState::unpack(ByteSpan packed) {
  if (packed.size() != packed_size()) {
    return Error{Errc::kCorrupt, "a state of another size"};
  }
  const auto number = [&packed] {
    std::uint64_t read = 0;
    std::memcpy(&read, take_front(packed, sizeof read).data(), sizeof read);
    return read;
  };
  Incoming incoming;
  const std::uint64_t magic = number();
  incoming.committed = Step{number()};
  const std::uint64_t rest_bytes = number();
  if (magic != kPackedMagic || rest_bytes > rest_bytes_max_) {
    return Error{Errc::kCorrupt, "not the state of a program"};
  }
  const std::size_t exponents_bytes = exponents_.size() * sizeof(std::int32_t);
  TRY_ASSIGN(incoming.exponents, exponents_in(take_front(packed, exponents_bytes)));
  for (const ProgramTensor& parameter : tensors_.parameters) {
    incoming.parameters.push_back(take_front(packed, parameter.bytes));
  }
  for (const ProgramTensor& buffer : tensors_.buffers) {
    incoming.buffers.push_back(take_front(packed, buffer.bytes));
  }
  TRY(split_rest(packed.first(rest_bytes), incoming.rest));
  incoming.is_of_member = true;
  request_load(std::move(incoming));
  return {};
}

void ProgramState::request_load(Incoming incoming) {
  incoming_ = std::move(incoming);
  mailbox_.ask({ProgramTask::Kind::kLoad, value(incoming_.committed)});
  committed_ = incoming_.committed;
  exponents_ = std::move(incoming_.exponents);
  incoming_ = {};
}

const LoadedState& ProgramState::take_loaded() {
  for (std::size_t i = 0; i < incoming_.parameters.size(); ++i) {
    std::ranges::copy(incoming_.parameters[i], tensors_.parameters[i].data);
  }
  for (std::size_t i = 0; i < incoming_.buffers.size(); ++i) {
    buffers_[i].assign(incoming_.buffers[i].begin(), incoming_.buffers[i].end());
  }
  restore_buffers();
  return incoming_.rest;
}

Result<void> ProgramState::was_taken() const {
  if (!incoming_.is_of_member) {
    return {};
  }
  // The order of tensors without elements is not preserved in the packed form.
  std::vector<nn::NamedTensor> loaded;
  std::ranges::copy_if(incoming_.rest.tensors, std::back_inserter(loaded),
                       [](const nn::NamedTensor& named) { return !named.tensor.bytes.empty(); });
  std::vector<nn::NamedTensor> own;
  for (const ProgramTensor& tensor : optimizer_) {
    if (tensor.bytes > 0) {
      own.push_back(tensor.view());
    }
  }
  for (std::size_t i = 0; i < std::max(loaded.size(), own.size()); ++i) {
    const bool is_equal = i < loaded.size() && i < own.size() && loaded[i].name == own[i].name &&
                          std::ranges::equal(loaded[i].tensor.bytes, own[i].tensor.bytes);
    if (!is_equal) {
      return Error{Errc::kInvalidInput,
                   fmt::format("a state has arrived, and the program has not adopted the tensor {} "
                               "of the optimizer unchanged",
                               i < loaded.size() ? loaded[i].name : own[i].name)};
    }
  }
  return {};
}

// ---- checkpoints

nn::CheckpointFiles ProgramState::checkpoint() {
  std::vector<nn::NamedTensor> model;
  for (const ProgramTensor& parameter : tensors_.parameters) {
    model.push_back(parameter.view());
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const ProgramTensor& buffer = tensors_.buffers[i];
    model.push_back({buffer.name, {buffer.type, buffer.shape, ByteSpan(buffers_[i])}});
  }
  std::vector<nn::NamedTensor> rest;
  for (const ProgramTensor& tensor : optimizer_) {
    rest.push_back(tensor.view());
  }
  rest.push_back({kBlobName, {"U8", {static_cast<std::int64_t>(blob_.size())}, ByteSpan(blob_)}});
  rest.push_back({kExponentsName,
                  {"I32",
                   {static_cast<std::int64_t>(exponents_.size())},
                   std::as_bytes(std::span(exponents_))}});
  nn::CheckpointFiles files;
  files[nn::kModelFile] = nn::encode_safetensors(model);
  files[nn::kOptimizerFile] = nn::encode_safetensors(rest);
  return nn::with_manifest(std::move(files), {job_.config.model, 0, committed_, job_.config.seed,
                                              digest(), job_.fingerprint});
}

Result<void> ProgramState::load(const nn::CheckpointFiles& files) {
  TRY_ASSIGN(const nn::CheckpointInfo info, nn::check_files(files));
  TRY_ASSIGN(const auto model, nn::decode_safetensors(files.at(nn::kModelFile)));
  const ByteSpan rest(files.at(nn::kOptimizerFile));
  TRY_ASSIGN(const auto all, nn::decode_safetensors(rest));
  Incoming incoming;
  incoming.committed = info.committed;
  for (const ProgramTensor& parameter : tensors_.parameters) {
    TRY_ASSIGN(const ByteSpan content, find(model, parameter));
    incoming.parameters.push_back(content);
  }
  for (const ProgramTensor& buffer : tensors_.buffers) {
    TRY_ASSIGN(const ByteSpan content, find(model, buffer));
    incoming.buffers.push_back(content);
  }
  const auto found = all.find(kExponentsName);
  TRY_ASSIGN(incoming.exponents,
             exponents_in(found == all.end() ? ByteSpan() : found->second.bytes));
  const bool has_our_number = incoming.exponents.size() == exponents_.size();
  const bool has_our_tensors = model.size() == tensors_.parameters.size() + tensors_.buffers.size();
  if (found == all.end() || incoming.exponents.empty() != exponents_.empty() ||
      !(has_our_number || has_our_tensors)) {
    return Error{Errc::kInvalidInput,
                 "the checkpoint was written with another --reduction or by another program"};
  }
  // Other tensors or metrics, or another order of them, have other blocks, whose exponents are
  // measured again: with one that is far too high the sums would be coarse for many steps.
  const std::string ours = to_string(tensors_.layout_digest());
  if (!has_our_number || difference({{"program: tensors", ours}}, info.fingerprint)) {
    incoming.exponents.assign(exponents_.size(), collectives::kUnsetExponent);
  }
  TRY(split_rest(rest, incoming.rest));
  request_load(std::move(incoming));
  return {};
}

// ---- hashes

std::uint64_t ProgramState::rest_hash() {
  Digester digester;
  for (const ProgramTensor& tensor : optimizer_) {
    add_tensor(digester, tensor, tensor.content());
  }
  return digester.finish().low;
}

std::uint32_t ProgramState::check(std::optional<std::uint64_t> rest) {
  Digester digester;
  digester.add_value(rest.value_or(0));
  digester.add(std::as_bytes(std::span(exponents_)));
  for (const ProgramTensor& parameter : tensors_.parameters) {
    digester.add(parameter.content());
  }
  for (const Bytes& buffer : buffers_) {
    digester.add(buffer);
  }
  return static_cast<std::uint32_t>(digester.finish().low);
}

Digest ProgramState::digest() {
  Digester digester;
  digester.add_value(value(committed_));
  digester.add(std::as_bytes(std::span(exponents_)));
  for (const ProgramTensor& parameter : tensors_.parameters) {
    add_tensor(digester, parameter, parameter.content());
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    add_tensor(digester, tensors_.buffers[i], buffers_[i]);
  }
  for (const ProgramTensor& tensor : optimizer_) {
    add_tensor(digester, tensor, tensor.content());
  }
  return digester.finish();
}

std::vector<std::uint64_t> ProgramState::part_hashes() {
  std::vector<std::uint64_t> hashes;
  for (const ProgramTensor& parameter : tensors_.parameters) {
    hashes.push_back(digest_of(parameter.content()).low);
  }
  for (const Bytes& buffer : buffers_) {
    hashes.push_back(digest_of(buffer).low);
  }
  hashes.push_back(rest_hash());
  hashes.push_back(digest_of(std::as_bytes(std::span(exponents_))).low);
  return hashes;
}

}  // namespace mayfly::engine
